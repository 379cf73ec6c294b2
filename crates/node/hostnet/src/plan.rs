//! What has to be done for the network to be as it should be. Nothing is touched here.

mod mesh;
mod tuning;

use std::net::IpAddr;

use ipnet::IpNet;
use net::{DestinationRule, PROTO_HEADCNI, Route, RouteKind, RuleAction, TABLE_MAIN};
use ruleset::{Sets, Table};

use super::desired::Family;
use super::{Action, Desired, Edit, LO_INDEX, Memory, Observed, TableState};

pub use mesh::MESH_TABLE;
pub(super) use mesh::is_in_mesh_table;
use node_core::routing::{METRIC_UNREACHABLE, PRIORITY_LOCAL, PRIORITY_MARKED, PRIORITY_MESH};
pub(super) use tuning::uplinks;

pub(super) const FORWARD_IPV4: &str = "ipv4/ip_forward";
pub(super) const FORWARD_IPV6: &str = "ipv6/conf/all/forwarding";

/// The sysctl that says whether a link listens to routers: 1 does so unless the node forwards, 2
/// whatever it does.
pub(super) fn accept_ra(link: &str) -> String {
    format!("ipv6/conf/{link}/accept_ra")
}

/// What has to be done, in this order: what protects comes before what lets through, and goes after
/// it.
pub fn plan(desired: &Desired, observed: &Observed, memory: &Memory) -> Vec<Action> {
    let mut actions = Vec::new();
    plan_tables(desired, observed, memory, &mut actions);
    plan_sysctls(desired, observed, &mut actions);
    plan_gateways(desired, observed, memory, &mut actions);
    let (new, old) = plan_routes(desired, observed);
    let (new_of_mesh, old_of_mesh) = mesh::plan_routes(desired, observed);
    // All ways are there before a rule leads to them, and stay until none does.
    actions.extend(new);
    actions.extend(mesh::switch_on(desired, observed));
    actions.extend(new_of_mesh);
    plan_rules(desired, observed, &mut actions);
    actions.extend(old_of_mesh);
    actions.extend(old);
    tuning::plan(desired, observed, memory, &mut actions);
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
        let inside = &desired.contents.mesh_ifaces;
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

/// The route under those to pods: what isn't a pod's address has no way out. With a mesh there is one
/// to the whole cluster, too: whoever flushes all rules and nftables at once leaves but this between
/// pods' packets and the default route.
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

/// The networks that have such a route.
fn refused(desired: &Desired) -> Vec<IpNet> {
    let mut networks = desired.local.clone();
    if desired.mesh.is_some() {
        networks.extend(desired.cluster_of_pods());
        networks.sort_unstable();
        networks.dedup();
    }
    networks
}

/// Routes to add, and routes to remove.
fn plan_routes(desired: &Desired, observed: &Observed) -> (Vec<Action>, Vec<Action>) {
    let present: Vec<IpNet> = observed
        .routes
        .iter()
        .filter(|route| is_ours(route))
        .map(|route| route.dst)
        .collect();
    let wanted = refused(desired);
    let missing = wanted.iter().filter(|net| !present.contains(net));
    let old = present.iter().filter(|net| !wanted.contains(net));
    (
        missing.copied().map(Action::AddRoute).collect(),
        old.copied().map(Action::RemoveRoute).collect(),
    )
}

fn rule(local: IpNet) -> DestinationRule {
    DestinationRule {
        to: local,
        mark: None,
        action: RuleAction::Lookup(TABLE_MAIN),
        priority: PRIORITY_LOCAL,
        protocol: PROTO_HEADCNI,
    }
}

/// Whether a rule is one of ours, right or wrong.
pub(super) fn is_our_rule(rule: &DestinationRule) -> bool {
    let ours = [PRIORITY_LOCAL, PRIORITY_MARKED, PRIORITY_MESH];
    ours.contains(&rule.priority) && rule.protocol == PROTO_HEADCNI
}

fn plan_rules(desired: &Desired, observed: &Observed, actions: &mut Vec<Action>) {
    let outside = desired.mesh.iter().flat_map(|mesh| &mesh.outside);
    let local = desired.local.iter().chain(outside);
    let mut wanted: Vec<DestinationRule> = local.map(|local| rule(*local)).collect();
    wanted.extend(mesh::rules(desired));
    let missing = wanted.iter().filter(|rule| !observed.rules.contains(rule));
    actions.extend(missing.map(|rule| Action::AddRule(*rule)));
    let ours = observed.rules.iter().filter(|rule| is_our_rule(rule));
    let mut old: Vec<&DestinationRule> = ours.filter(|rule| !wanted.contains(rule)).collect();
    // As they are asked, but from the last to the first: what leads into the mesh goes before what
    // keeps out of it.
    old.sort_by_key(|rule| std::cmp::Reverse(rule.priority));
    actions.extend(old.into_iter().map(|rule| Action::RemoveRule(*rule)));
}

#[cfg(test)]
mod tests;
