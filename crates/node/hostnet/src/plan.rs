//! Compares the desired with the observed host network. Pure.

mod mesh;
mod tuning;

use std::net::IpAddr;

use ipnet::IpNet;
use net::{DestinationRule, PROTO_HEADCNI, Route, RouteKind, RuleAction, TABLE_MAIN};
use ruleset::{Sets, Table};

use super::desired::Family;
use super::{Action, Desired, HostnetRecord, LO_INDEX, Observed, TableFault, TableState};

pub use mesh::MESH_TABLE;
pub(super) use mesh::is_in_mesh_table;
use node_core::routing::{METRIC_UNREACHABLE, PRIORITY_LOCAL, PRIORITY_MARKED, PRIORITY_MESH};
pub(super) use tuning::uplinks;

pub(super) const FORWARD_IPV4: &str = "ipv4/ip_forward";
pub(super) const FORWARD_IPV6: &str = "ipv6/conf/all/forwarding";

/// Value 1 accepts router advertisements unless the node forwards, 2 always.
/// <https://docs.kernel.org/networking/ip-sysctl.html>
pub(super) fn accept_ra(link: &str) -> String {
    format!("ipv6/conf/{link}/accept_ra")
}

/// The actions, in order: protection is installed before what it protects, and removed after it.
pub fn plan(desired: &Desired, observed: &Observed, record: &HostnetRecord) -> Vec<Action> {
    let mut actions = Vec::new();
    plan_tables(desired, observed, record, &mut actions);
    plan_sysctls(desired, observed, &mut actions);
    plan_gateways(desired, observed, record, &mut actions);
    let (new, old) = plan_routes(desired, observed);
    let (new_mesh, old_mesh) = mesh::plan_routes(desired, observed);
    // Routes exist before a rule selects their table, and go after it.
    actions.extend(new);
    actions.extend(mesh::set_link_up(desired, observed));
    actions.extend(new_mesh);
    plan_rules(desired, observed, &mut actions);
    actions.extend(old_mesh);
    actions.extend(old);
    tuning::plan(desired, observed, record, &mut actions);
    actions
}

fn plan_tables(
    desired: &Desired,
    observed: &Observed,
    record: &HostnetRecord,
    actions: &mut Vec<Action>,
) {
    let tables = &observed.tables;
    let fault = |table: Table, state: &Option<TableState>| match state {
        None => Some(TableFault::Missing),
        Some(state) if state.version != Some(table.version()) => Some(TableFault::OtherVersion),
        Some(state) if record.fingerprint_of(table) != Some(state.fingerprint.clone()) => {
            Some(TableFault::Changed)
        }
        Some(_) => None,
    };
    // A replaced table comes with its sets filled. The plugin assumes that a prefix in the masquerade
    // set is in the hostPort set too, so the latter is first.
    match fault(Table::Ports, &tables.ports) {
        Some(fault) => actions.push(Action::ReplaceTable(Table::Ports, fault)),
        None if !tables.covers_excluded => actions.push(Action::AddToSets(Sets::Excluded)),
        None => {}
    }
    if let Some(fault) = fault(Table::Pods, &tables.pods) {
        actions.push(Action::ReplaceTable(Table::Pods, fault));
    } else {
        actions.extend((!tables.has_contents).then_some(Action::FillSets));
        actions.extend((!tables.covers_cluster).then_some(Action::AddToSets(Sets::Cluster)));
    }
    let old: Vec<IpNet> = record
        .cluster
        .iter()
        .filter(|network| !desired.cluster.contains(network))
        .copied()
        .collect();
    if !old.is_empty() {
        actions.push(Action::RemoveFromSets(old));
    }
}

fn plan_sysctls(desired: &Desired, observed: &Observed, actions: &mut Vec<Action>) {
    let mut set_unless = |name: &str, value: &'static str| match observed.sysctls.get(name) {
        Some(found) if found != value => actions.push(Action::SetSysctl {
            name: name.to_owned(),
            value,
            found: found.clone(),
        }),
        // Right, or unknown to this kernel.
        _ => {}
    };
    if desired.has(Family::Ipv4) {
        set_unless(FORWARD_IPV4, "1");
    }
    if desired.has(Family::Ipv6) {
        // Before forwarding: links with value 1 would then ignore router advertisements, and the node
        // could lose its default route.
        let mesh_ifaces = &desired.contents.mesh_ifaces;
        let links = observed.links.iter().map(|link| &link.name);
        for link in links.filter(|name| !mesh_ifaces.contains(name)) {
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
    record: &HostnetRecord,
    actions: &mut Vec<Action>,
) {
    let is_on_lo = |gateway: &IpAddr| {
        let mut on_lo = observed.addresses.iter().filter(|a| a.link == LO_INDEX);
        on_lo.any(|address| address.net.addr() == *gateway)
    };
    let missing = desired.gateways.iter().filter(|gateway| !is_on_lo(gateway));
    actions.extend(missing.map(|gateway| Action::AddGateway(*gateway)));
    let old = record
        .gateways
        .iter()
        .filter(|gateway| !desired.gateways.contains(gateway));
    actions.extend(old.map(|gateway| Action::RemoveGateway(*gateway)));
}

/// Below the routes to pods: an address without a pod is unreachable. With a mesh, the cluster CIDRs
/// have such a route too: after a flush of all rules and nftables, only it keeps pods' packets from the
/// default route.
pub(super) fn unreachable(network: IpNet) -> Route {
    Route {
        metric: Some(METRIC_UNREACHABLE),
        ..Route::new(network, RouteKind::Unreachable, PROTO_HEADCNI)
    }
}

pub(super) fn is_unreachable_route(route: &Route) -> bool {
    route.kind == RouteKind::Unreachable
        && route.protocol == PROTO_HEADCNI
        && route.table == TABLE_MAIN
        && route.metric == Some(METRIC_UNREACHABLE)
}

fn unreachable_prefixes(desired: &Desired) -> Vec<IpNet> {
    let mut networks = desired.local.clone();
    if desired.mesh.is_some() {
        networks.extend(desired.cluster_cidrs());
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
        .filter(|route| is_unreachable_route(route))
        .map(|route| route.dst)
        .collect();
    let wanted = unreachable_prefixes(desired);
    let missing = wanted.iter().filter(|net| !present.contains(net));
    let old = present.iter().filter(|net| !wanted.contains(net));
    (
        missing.copied().map(Action::AddUnreachableRoute).collect(),
        old.copied().map(Action::RemoveUnreachableRoute).collect(),
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

pub(super) fn is_managed_rule(rule: &DestinationRule) -> bool {
    let ours = [PRIORITY_LOCAL, PRIORITY_MARKED, PRIORITY_MESH];
    ours.contains(&rule.priority) && rule.protocol == PROTO_HEADCNI
}

fn plan_rules(desired: &Desired, observed: &Observed, actions: &mut Vec<Action>) {
    let extra = desired.mesh.iter().flat_map(|mesh| &mesh.extra_host_routes);
    let local = desired.local.iter().chain(extra);
    let mut wanted: Vec<DestinationRule> = local.map(|local| rule(*local)).collect();
    wanted.extend(mesh::rules(desired));
    let missing = wanted.iter().filter(|rule| !observed.rules.contains(rule));
    actions.extend(missing.map(|rule| Action::AddRule(*rule)));
    let ours = observed.rules.iter().filter(|rule| is_managed_rule(rule));
    let mut old: Vec<&DestinationRule> = ours.filter(|rule| !wanted.contains(rule)).collect();
    // By descending priority: rules into the mesh go before those that keep packets out of it.
    old.sort_by_key(|rule| std::cmp::Reverse(rule.priority));
    actions.extend(old.into_iter().map(|rule| Action::RemoveRule(*rule)));
}

#[cfg(test)]
mod tests;
