//! Does what a plan says. Nothing is decided here.

use std::net::IpAddr;

use net::ethtool::{Ethtool, Switch};
use net::{Address, Batch, Errno, NetError, PROTO_HEADCNI, Route, RouteKind, sysctl};
use ruleset::{Sets, Table, host_ports};

use super::plan::unreachable;
use super::{Action, Desired, LO_INDEX, NetworkError, Sockets};

/// Does all of it, as far as possible: an error does not keep the others from being done.
pub(super) fn apply(sockets: &Sockets, desired: &Desired, actions: &[Action]) -> Vec<NetworkError> {
    let outcomes = actions.iter().map(|action| act(sockets, desired, action));
    outcomes.filter_map(Result::err).collect()
}

fn act(sockets: &Sockets, desired: &Desired, action: &Action) -> Result<(), NetworkError> {
    let filter = &sockets.netfilter;
    // What somebody else has done meanwhile is as good as done by us.
    let send = |tolerated: &'static [Errno], write: &dyn Fn(&mut Batch)| {
        let mut batch = Batch::new();
        write(&mut batch);
        batch.tolerating(tolerated);
        Ok(sockets.route.send(batch)?)
    };
    match action {
        Action::SetSysctl { name, value, .. } => set_sysctl(name, value),
        Action::PutTable(Table::Pods, _) => {
            ruleset::replace(filter, &desired.cluster, &desired.contents)
                .map_err(NetworkError::Replace)
        }
        Action::PutTable(Table::Ports, _) => {
            ruleset::repair_ports(filter).map_err(NetworkError::Replace)?;
            Ok(ruleset::ensure_covered(
                filter,
                Sets::Excluded,
                &desired.cluster,
            )?)
        }
        Action::SetContents => Ok(ruleset::set_contents(filter, &desired.contents)?),
        Action::Cover(sets) => Ok(ruleset::ensure_covered(filter, *sets, &desired.cluster)?),
        Action::Uncover(networks) => {
            for sets in [Sets::Excluded, Sets::Cluster] {
                ruleset::uncover(filter, sets, networks)?;
                // What was part of an old network, and still is one.
                ruleset::ensure_covered(filter, sets, &desired.cluster)?;
            }
            Ok(())
        }
        Action::AddGateway(gateway) => {
            send(&[Errno::EXIST], &|batch| on_lo(*gateway).add_to(batch))?;
            match gateway {
                IpAddr::V4(_) => Ok(()),
                // The kernel makes the address local in its own time.
                IpAddr::V6(gateway) => send(&[Errno::EXIST, Errno::NETDOWN], &|batch| {
                    Route::early_local(*gateway, LO_INDEX, PROTO_HEADCNI).add_to(batch);
                }),
            }
        }
        Action::RemoveGateway(gateway) => send(&[Errno::ADDRNOTAVAIL], &|batch| {
            on_lo(*gateway).remove_in(batch);
        }),
        Action::AddRoute(network) => send(&[Errno::EXIST], &|batch| {
            unreachable(*network).add_to(batch);
        }),
        Action::RemoveRoute(network) => send(&[Errno::SRCH], &|batch| {
            unreachable(*network).remove_in(batch);
        }),
        // The link may be gone or off by now; when it is back there is another pass.
        Action::SetRoutes(routes) => send_all(sockets, routes, |route, batch| {
            route.replace_in(batch);
            batch.tolerating(&[Errno::NODEV, Errno::NETDOWN]);
        }),
        Action::RemoveRoutes(routes) => remove_routes(sockets, routes),
        Action::AddRule(rule) => send(&[Errno::EXIST], &|batch| rule.add_to(batch)),
        Action::RemoveRule(rule) => send(&[Errno::NOENT], &|batch| rule.remove_in(batch)),
        Action::SwitchOn { link, .. } => send(&[Errno::NODEV], &|batch| batch.set_up(*link)),
        Action::SetFeature {
            link,
            name,
            feature,
            switch,
        } => {
            // Pods are reached without it, only slower: it must not count as a fault of the network.
            if let Err(error) = set_feature(*link, feature, *switch) {
                tracing::warn!(link = name, feature, %switch, %error, "a link can't be tuned");
            }
            Ok(())
        }
        // The link may be gone or off by now, and then there is nothing to restore.
        Action::RestoreRoute { address, link } => send(
            &[Errno::EXIST, Errno::NODEV, Errno::NETDOWN, Errno::INVAL],
            &|batch| {
                let kind = RouteKind::Via {
                    link: *link,
                    gateway: None,
                };
                Route::new((*address).into(), kind, PROTO_HEADCNI).add_to(batch);
            },
        ),
        Action::RestoreNeighbour(neighbour) => send(&[Errno::NODEV, Errno::NETDOWN], &|batch| {
            neighbour.add_to(batch);
        }),
        Action::Publish(port) => host_ports::add(filter, &[*port]).map_err(NetworkError::HostPort),
        Action::Unpublish(port) => Ok(host_ports::remove(filter, &[*port])?),
    }
}

/// Sends something for each of these routes, which may be hundreds; fails with the first that was
/// refused.
fn send_all(
    sockets: &Sockets,
    routes: &[Route],
    write: impl Fn(&Route, &mut Batch),
) -> Result<(), NetworkError> {
    // The answers to so many, should the kernel refuse them all, fit into the socket.
    const AT_ONCE: usize = 100;
    let send = |routes: &[Route]| {
        let mut batch = Batch::new();
        for route in routes {
            write(route, &mut batch);
        }
        sockets.route.send(batch)
    };
    // All are tried before the first error counts.
    let outcomes: Vec<_> = routes.chunks(AT_ONCE).map(send).collect();
    Ok(outcomes.into_iter().collect::<Result<(), _>>()?)
}

pub(super) fn remove_routes(sockets: &Sockets, routes: &[Route]) -> Result<(), NetworkError> {
    send_all(sockets, routes, |route, batch| {
        route.remove_in(batch);
        batch.tolerating(&[Errno::SRCH]);
    })
}

/// A kernel that has no such thing can't have been asked for it before.
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

pub(super) fn set_sysctl(name: &str, value: &str) -> Result<(), NetworkError> {
    let outcome = sysctl::set(name, value);
    outcome.map(drop).map_err(|source| NetworkError::Sysctl {
        attempt: "set",
        name: name.to_owned(),
        source,
    })
}
