//! What has to be done for the network to be as it should be. Nothing is touched here.

use std::fmt;
use std::net::IpAddr;

use ipnet::IpNet;
use net::host_ports::HostPort;
use net::ruleset::{Sets, Table};
use net::{DestinationRule, Neighbour, PROTO_HEADCNI, Route, RouteKind, TABLE_MAIN};

use super::desired::Family;
use super::{Desired, LO_INDEX, Memory, Observed, TableState};

/// The rule that keeps whatever else is configured from stealing packets to this node's own pods:
/// ahead of Tailscale's, which begin at 5210. 5195 and 5200 are for the mesh.
pub const PRIORITY_LOCAL: u32 = 5190;
/// Worse than any route to a pod, and than a bridge's to all of them.
pub const METRIC_UNREACHABLE: u32 = 4_000_000;

pub(super) const FORWARD_IPV4: &str = "ipv4/ip_forward";
pub(super) const FORWARD_IPV6: &str = "ipv6/conf/all/forwarding";

/// The sysctl that says whether a link listens to routers: 1 does so unless the node forwards, 2
/// whatever it does.
pub(super) fn accept_ra(link: &str) -> String {
    format!("ipv6/conf/{link}/accept_ra")
}

/// What is wrong with a table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Edit {
    /// It isn't there.
    Missing,
    /// It says that it is of another version.
    OtherVersion,
    /// It isn't as we left it, or not from us.
    Changed,
}

/// Something to be done.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Action {
    /// A sysctl gets another value.
    SetSysctl {
        /// Its name below `/proc/sys/net`.
        name: String,
        /// The new value.
        value: &'static str,
        /// The old one.
        found: String,
    },
    /// A table is put in place.
    PutTable(Table, Edit),
    /// The sets of the table for pods are filled.
    SetContents,
    /// Networks are added to the sets of both tables.
    Cover(Sets),
    /// Networks are taken out of the sets of both tables.
    Uncover(Vec<IpNet>),
    /// `lo` gets a gateway's address.
    AddGateway(IpAddr),
    /// `lo` loses one.
    RemoveGateway(IpAddr),
    /// A network of ours becomes unreachable where no pod has the address.
    AddRoute(IpNet),
    /// One that isn't ours any more is not unreachable any more.
    RemoveRoute(IpNet),
    /// A rule is added.
    AddRule(DestinationRule),
    /// A rule is removed.
    RemoveRule(DestinationRule),
    /// A pod's address leads by its link again.
    RestoreRoute {
        /// The pod's address.
        address: IpAddr,
        /// The number of the link.
        link: u32,
    },
    /// A pod's hardware address is known again.
    RestoreNeighbour(Neighbour),
    /// A hostPort leads to its pod again.
    Publish(HostPort),
    /// A hostPort that leads to no pod is taken back.
    Unpublish(HostPort),
}

impl Action {
    /// The table that looks different afterwards.
    pub(super) fn table(&self) -> Option<Table> {
        match self {
            Self::PutTable(table, _) => Some(*table),
            _ => None,
        }
    }
}

impl fmt::Display for Action {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::SetSysctl { name, value, found } => {
                write!(f, "net/{name} was {found}, and is {value} now")
            }
            Self::PutTable(table, edit) => {
                let was = match edit {
                    Edit::Missing => "was missing",
                    Edit::OtherVersion => "was of another version",
                    Edit::Changed => "was not as we left it",
                };
                write!(f, "nftables table inet {} {was}", table.name())
            }
            Self::SetContents => f.write_str("sets of nftables table inet headcni were changed"),
            Self::Cover(Sets::Cluster) => {
                f.write_str("networks were missing from masquerade's sets")
            }
            Self::Cover(Sets::Excluded) => {
                f.write_str("networks were missing from hostPorts' sets")
            }
            Self::Uncover(networks) => write!(f, "{networks:?} are no networks of the cluster now"),
            Self::AddGateway(gateway) => write!(f, "gateway {gateway} was missing on lo"),
            Self::RemoveGateway(gateway) => write!(f, "{gateway} is no gateway now"),
            Self::AddRoute(network) => write!(f, "route unreachable {network} was missing"),
            Self::RemoveRoute(network) => write!(f, "{network} is no network of this node now"),
            Self::AddRule(rule) => write!(f, "rule for packets to {} was missing", rule.to),
            Self::RemoveRule(rule) => write!(f, "rule for packets to {} was too much", rule.to),
            Self::RestoreRoute { address, .. } => write!(f, "route to pod {address} was missing"),
            Self::RestoreNeighbour(neighbour) => {
                write!(f, "neighbour of pod {} was missing", neighbour.address)
            }
            Self::Publish(port) => write!(f, "hostPort {port} of {} was missing", port.pod),
            Self::Unpublish(port) => write!(f, "hostPort {port} led to no pod, at {}", port.pod),
        }
    }
}

/// What has to be done, in this order: what protects comes before what lets through.
pub fn plan(desired: &Desired, observed: &Observed, memory: &Memory) -> Vec<Action> {
    let mut actions = Vec::new();
    plan_tables(desired, observed, memory, &mut actions);
    plan_sysctls(desired, observed, &mut actions);
    plan_gateways(desired, observed, memory, &mut actions);
    plan_routes(desired, observed, &mut actions);
    plan_rules(desired, observed, &mut actions);
    actions
}

fn plan_tables(desired: &Desired, observed: &Observed, memory: &Memory, actions: &mut Vec<Action>) {
    let tables = &observed.tables;
    let wrong = |table: Table, state: &Option<TableState>| match state {
        None => Some(Edit::Missing),
        Some(state) if state.version != Some(table.version()) => Some(Edit::OtherVersion),
        Some(state) if memory.mark_of(table) != Some(state.mark.clone()) => Some(Edit::Changed),
        Some(_) => None,
    };
    // Where a table is put in place, its sets are filled at once. The plugin takes what is in the
    // set for masquerade to be in the one for hostPorts, too: so that one is first.
    match wrong(Table::Ports, &tables.ports) {
        Some(edit) => actions.push(Action::PutTable(Table::Ports, edit)),
        None if !tables.knows_excluded => actions.push(Action::Cover(Sets::Excluded)),
        None => {}
    }
    if let Some(edit) = wrong(Table::Pods, &tables.pods) {
        actions.push(Action::PutTable(Table::Pods, edit));
    } else {
        actions.extend((!tables.has_contents).then_some(Action::SetContents));
        actions.extend((!tables.knows_cluster).then_some(Action::Cover(Sets::Cluster)));
    }
    let old: Vec<IpNet> = memory
        .cluster
        .iter()
        .filter(|network| !desired.cluster.contains(network))
        .copied()
        .collect();
    if !old.is_empty() {
        actions.push(Action::Uncover(old));
    }
}

fn plan_sysctls(desired: &Desired, observed: &Observed, actions: &mut Vec<Action>) {
    let mut set_unless = |name: &str, value: &'static str| match observed.sysctls.get(name) {
        Some(found) if found != value => actions.push(Action::SetSysctl {
            name: name.to_owned(),
            value,
            found: found.clone(),
        }),
        // The kernel has no such setting, or it is right.
        _ => {}
    };
    if desired.has(Family::Ipv4) {
        set_unless(FORWARD_IPV4, "1");
    }
    if desired.has(Family::Ipv6) {
        // Before forwarding, which makes links that have 1 deaf to routers: the node could lose its
        // own default route.
        let inside = &desired.contents.inside;
        let links = observed.links.iter().map(|link| &link.name);
        for link in links.filter(|name| !inside.contains(name)) {
            let name = accept_ra(link);
            if observed
                .sysctls
                .get(&name)
                .is_some_and(|found| found == "1")
            {
                set_unless(&name, "2");
            }
        }
        set_unless(FORWARD_IPV6, "1");
    }
}

fn plan_gateways(
    desired: &Desired,
    observed: &Observed,
    memory: &Memory,
    actions: &mut Vec<Action>,
) {
    let is_on_lo = |gateway: &IpAddr| {
        let mut on_lo = observed.addresses.iter().filter(|a| a.link == LO_INDEX);
        on_lo.any(|address| address.net.addr() == *gateway)
    };
    let missing = desired.gateways.iter().filter(|gateway| !is_on_lo(gateway));
    actions.extend(missing.map(|gateway| Action::AddGateway(*gateway)));
    let old = memory
        .gateways
        .iter()
        .filter(|gateway| !desired.gateways.contains(gateway));
    actions.extend(old.map(|gateway| Action::RemoveGateway(*gateway)));
}

/// The route under those to pods: what isn't a pod's address has no way out.
pub(super) fn unreachable(network: IpNet) -> Route {
    Route {
        metric: Some(METRIC_UNREACHABLE),
        ..Route::new(network, RouteKind::Unreachable, PROTO_HEADCNI)
    }
}

/// Whether a route is one that [`unreachable`] makes.
pub(super) fn is_ours(route: &Route) -> bool {
    route.kind == RouteKind::Unreachable
        && route.protocol == PROTO_HEADCNI
        && route.table == TABLE_MAIN
        && route.metric == Some(METRIC_UNREACHABLE)
}

fn plan_routes(desired: &Desired, observed: &Observed, actions: &mut Vec<Action>) {
    let present: Vec<IpNet> = observed
        .routes
        .iter()
        .filter(|route| is_ours(route))
        .map(|route| route.dst)
        .collect();
    let missing = desired.local.iter().filter(|net| !present.contains(net));
    actions.extend(missing.map(|network| Action::AddRoute(*network)));
    let old = present.iter().filter(|net| !desired.local.contains(net));
    actions.extend(old.map(|network| Action::RemoveRoute(*network)));
}

fn rule(local: IpNet) -> DestinationRule {
    DestinationRule {
        to: local,
        table: TABLE_MAIN,
        priority: PRIORITY_LOCAL,
        protocol: PROTO_HEADCNI,
    }
}

/// Whether a rule is one of ours, right or wrong.
pub(super) fn is_our_rule(rule: &DestinationRule) -> bool {
    rule.priority == PRIORITY_LOCAL && rule.protocol == PROTO_HEADCNI
}

fn plan_rules(desired: &Desired, observed: &Observed, actions: &mut Vec<Action>) {
    let wanted: Vec<DestinationRule> = desired.local.iter().map(|local| rule(*local)).collect();
    let missing = wanted.iter().filter(|rule| !observed.rules.contains(rule));
    actions.extend(missing.map(|rule| Action::AddRule(*rule)));
    let ours = observed.rules.iter().filter(|rule| is_our_rule(rule));
    let old = ours.filter(|rule| !wanted.contains(rule));
    actions.extend(old.map(|rule| Action::RemoveRule(*rule)));
}

#[cfg(test)]
mod tests;
