//! Applies a plan. Nothing is decided here.

use std::net::IpAddr;

use net::ethtool::{Ethtool, Switch};
use net::{Address, Batch, Errno, NetError, PROTO_HEADCNI, Route, RouteKind, sysctl};
use ruleset::{Sets, Table, host_ports};

use super::plan::unreachable;
use super::{Action, Desired, HostnetError, LO_INDEX, Sockets};

/// Applies all actions, and continues after errors.
pub(super) fn apply(sockets: &Sockets, desired: &Desired, actions: &[Action]) -> Vec<HostnetError> {
    let outcomes = actions.iter().map(|action| act(sockets, desired, action));
    outcomes.filter_map(Result::err).collect()
}

fn act(sockets: &Sockets, desired: &Desired, action: &Action) -> Result<(), HostnetError> {
    let filter = &sockets.netfilter;
    // Tolerates what another program did in the meantime.
    let send = |tolerated: &'static [Errno], write: &dyn Fn(&mut Batch)| {
        let mut batch = Batch::new();
        write(&mut batch);
        batch.tolerating(tolerated);
        Ok(sockets.route.send(batch)?)
    };
    match action {
        Action::SetSysctl { name, value, .. } => set_sysctl(name, value),
        Action::ReplaceTable(Table::Pods, _) => {
            ruleset::replace(filter, &desired.cluster, &desired.contents)
                .map_err(HostnetError::Replace)
        }
        Action::ReplaceTable(Table::Ports, _) => {
            ruleset::repair_ports(filter).map_err(HostnetError::Replace)?;
            Ok(ruleset::ensure_covered(
                filter,
                Sets::Excluded,
                &desired.cluster,
            )?)
        }
        Action::FillSets => Ok(ruleset::set_contents(filter, &desired.contents)?),
        Action::AddToSets(sets) => Ok(ruleset::ensure_covered(filter, *sets, &desired.cluster)?),
        Action::RemoveFromSets(networks) => {
            for sets in [Sets::Excluded, Sets::Cluster] {
                ruleset::uncover(filter, sets, networks)?;
                // A removed prefix may have covered one that is still desired.
                ruleset::ensure_covered(filter, sets, &desired.cluster)?;
            }
            Ok(())
        }
        Action::AddGateway(gateway) => {
            send(&[Errno::EXIST], &|batch| on_lo(*gateway).add_to(batch))?;
            match gateway {
                IpAddr::V4(_) => Ok(()),
                // The kernel adds its local route asynchronously.
                IpAddr::V6(gateway) => send(&[Errno::EXIST, Errno::NETDOWN], &|batch| {
                    Route::early_local(*gateway, LO_INDEX, PROTO_HEADCNI).add_to(batch);
                }),
            }
        }
        Action::RemoveGateway(gateway) => send(&[Errno::ADDRNOTAVAIL], &|batch| {
            on_lo(*gateway).remove_in(batch);
        }),
        Action::AddUnreachableRoute(network) => send(&[Errno::EXIST], &|batch| {
            unreachable(*network).add_to(batch);
        }),
        Action::RemoveUnreachableRoute(network) => send(&[Errno::SRCH], &|batch| {
            unreachable(*network).remove_in(batch);
        }),
        // The link may be gone or down by now; its return triggers another reconcile.
        Action::ReplaceMeshRoutes(routes) => send_all(sockets, routes, |route, batch| {
            route.replace_in(batch);
            batch.tolerating(&[Errno::NODEV, Errno::NETDOWN]);
        }),
        Action::RemoveMeshRoutes(routes) => remove_routes(sockets, routes),
        Action::AddRule(rule) => send(&[Errno::EXIST], &|batch| rule.add_to(batch)),
        Action::RemoveRule(rule) => send(&[Errno::NOENT], &|batch| rule.remove_in(batch)),
        Action::SetLinkUp { link, .. } => send(&[Errno::NODEV], &|batch| batch.set_up(*link)),
        Action::SetFeature {
            link,
            name,
            feature,
            switch,
        } => {
            // Only speed is lost.
            if let Err(error) = set_feature(*link, feature, *switch) {
                tracing::warn!(link = name, feature, %switch, %error, "failed to tune link");
            }
            Ok(())
        }
        // Without the link there is nothing to restore.
        Action::RestorePodRoute { address, link } => send(
            &[Errno::EXIST, Errno::NODEV, Errno::NETDOWN, Errno::INVAL],
            &|batch| {
                let kind = RouteKind::Via {
                    link: *link,
                    gateway: None,
                };
                Route::new((*address).into(), kind, PROTO_HEADCNI).add_to(batch);
            },
        ),
        Action::RestorePodNeighbour(neighbour) => send(&[Errno::NODEV, Errno::NETDOWN], &|batch| {
            neighbour.add_to(batch);
        }),
        Action::PublishHostPort(port) => {
            host_ports::add(filter, &[*port]).map_err(HostnetError::HostPort)
        }
        Action::UnpublishHostPort(port) => Ok(host_ports::remove(filter, &[*port])?),
    }
}

/// Sends a message per route. Tries all, then returns the first error.
fn send_all(
    sockets: &Sockets,
    routes: &[Route],
    write: impl Fn(&Route, &mut Batch),
) -> Result<(), HostnetError> {
    // So many error replies fit into the socket buffer.
    const BATCH: usize = 100;
    let send = |routes: &[Route]| {
        let mut batch = Batch::new();
        for route in routes {
            write(route, &mut batch);
        }
        sockets.route.send(batch)
    };
    let outcomes: Vec<_> = routes.chunks(BATCH).map(send).collect();
    Ok(outcomes.into_iter().collect::<Result<(), _>>()?)
}

pub(super) fn remove_routes(sockets: &Sockets, routes: &[Route]) -> Result<(), HostnetError> {
    send_all(sockets, routes, |route, batch| {
        route.remove_in(batch);
        batch.tolerating(&[Errno::SRCH]);
    })
}

/// Does nothing on a kernel without ethtool netlink.
pub(super) fn set_feature(link: u32, feature: &str, switch: Switch) -> Result<(), NetError> {
    match Ethtool::open()? {
        Some(ethtool) => ethtool.set(link, feature, switch),
        None => Ok(()),
    }
}

pub(super) fn on_lo(gateway: IpAddr) -> Address {
    Address {
        link: LO_INDEX,
        net: gateway.into(),
    }
}

pub(super) fn set_sysctl(name: &str, value: &str) -> Result<(), HostnetError> {
    let outcome = sysctl::set(name, value);
    outcome.map(drop).map_err(|source| HostnetError::Sysctl {
        attempt: "set",
        name: name.to_owned(),
        source,
    })
}
