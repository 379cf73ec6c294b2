//! The way to other nodes' pods: rules that send packets for the cluster to a table of our own, and
//! the routes in it.
//!
//! The table never lets anything through to other tables: what it knows no way for is unreachable.
//! So a mesh that is off, or not there yet, gives a fast and clear error. Routes by its link go with
//! the link, and come back with it.

use std::collections::HashMap;
use std::net::IpAddr;

use ipnet::{IpNet, Ipv4Net, Ipv6Net};
use net::{DestinationRule, PROTO_HEADCNI, Route, RouteKind, RuleAction};

use crate::desired::Family;
use crate::{Action, Desired, Mesh, Observed};
use node_core::routing::{METRIC_UNREACHABLE, PRIORITY_MARKED, PRIORITY_MESH, TAILSCALED_MARK};

/// The table with the routes to other nodes. The number is that of our link group, so that one
/// number means us wherever it stands.
pub const MESH_TABLE: u32 = ruleset::LINK_GROUP;

/// What IPv6 gives by default; said, because IPv4 gives another.
const METRIC_MESH: u32 = 1024;

/// The rules of the mesh, in the order in which they are to be made.
pub(super) fn rules(desired: &Desired) -> Vec<DestinationRule> {
    if desired.mesh.is_none() {
        return Vec::new();
    }
    let refuse = |to| DestinationRule {
        to,
        mark: Some(TAILSCALED_MARK),
        action: RuleAction::Unreachable,
        priority: PRIORITY_MARKED,
        protocol: PROTO_HEADCNI,
    };
    let lead = |to| DestinationRule {
        to,
        mark: None,
        action: RuleAction::Lookup(MESH_TABLE),
        priority: PRIORITY_MESH,
        protocol: PROTO_HEADCNI,
    };
    let cluster = || desired.cluster_of_pods();
    cluster().map(refuse).chain(cluster().map(lead)).collect()
}

/// The mesh's link that is off though it is ours: tailscaled switches it on once, when it has made it.
pub(super) fn switch_on(desired: &Desired, observed: &Observed) -> Option<Action> {
    let mesh = desired.mesh.as_ref().filter(|mesh| mesh.is_ours)?;
    let link = observed.mesh_link(mesh).filter(|link| !link.is_up)?;
    Some(Action::SwitchOn {
        link: link.index,
        name: link.name.clone(),
    })
}

/// Routes of the mesh's table to set, and those to remove.
pub(super) fn plan_routes(
    desired: &Desired,
    observed: &Observed,
) -> (Option<Action>, Option<Action>) {
    let mut present: HashMap<IpNet, Vec<&Route>> = HashMap::new();
    for route in observed
        .routes
        .iter()
        .filter(|route| is_in_mesh_table(route))
    {
        present.entry(route.dst).or_default().push(route);
    }
    let (mut set, mut remove) = (Vec::new(), Vec::new());
    for wanted in routes(desired, observed) {
        let found = present.remove(&wanted.dst).unwrap_or_default();
        let is_there = found.iter().any(|route| is_same(route, &wanted));
        // Setting it takes the place of one that has the same metric. Where there are more, the
        // wrong ones are removed.
        let is_replaced = found.len() == 1 && found[0].metric == wanted.metric;
        if !is_replaced {
            let wrong = found.into_iter().filter(|route| !is_same(route, &wanted));
            remove.extend(wrong.cloned());
        }
        if !is_there {
            set.push(wanted);
        }
    }
    let mut old: Vec<Route> = present.into_values().flatten().cloned().collect();
    // What protects goes last.
    old.sort_by_key(|route| (route.kind == RouteKind::Unreachable, route.dst));
    remove.extend(old);
    let unless_empty = |routes: Vec<Route>| (!routes.is_empty()).then_some(routes);
    (
        unless_empty(set).map(Action::SetRoutes),
        unless_empty(remove).map(Action::RemoveRoutes),
    )
}

/// Whether a route is one of ours to other nodes, right or wrong.
pub(crate) fn is_in_mesh_table(route: &Route) -> bool {
    route.table == MESH_TABLE && route.protocol == PROTO_HEADCNI
}

fn is_same(found: &Route, wanted: &Route) -> bool {
    let key = |route: &Route| (route.dst, route.kind, route.metric, route.source);
    key(found) == key(wanted)
}

/// What the mesh's table is to hold.
fn routes(desired: &Desired, observed: &Observed) -> Vec<Route> {
    let Some(mesh) = &desired.mesh else {
        return Vec::new();
    };
    let everything = [
        (Family::Ipv4, IpNet::V4(Ipv4Net::default())),
        (Family::Ipv6, IpNet::V6(Ipv6Net::default())),
    ];
    let ours = everything.iter().filter(|(family, _)| desired.has(*family));
    let ours = ours.map(|(_, all)| *all);
    let stolen = mesh.stolen.iter().copied();
    let stolen = stolen.filter(|network| desired.has(Family::of(network)));
    let mut routes: Vec<Route> = ours
        .chain(stolen.filter(|network| !mesh.remotes.contains(network)))
        .map(|network| Route {
            metric: Some(METRIC_UNREACHABLE),
            ..in_mesh_table(network, RouteKind::Unreachable)
        })
        .collect();
    // Without its link, the kernel would take no routes by it. Ours is on by then.
    let link = observed.mesh_link(mesh);
    let Some(link) = link.filter(|link| link.is_up || mesh.is_ours) else {
        return routes;
    };
    routes.extend(mesh.remotes.iter().map(|remote| {
        let family = Family::of(remote);
        let kind = RouteKind::Via {
            link: link.index,
            gateway: gateway(mesh, family),
        };
        Route {
            metric: Some(METRIC_MESH),
            source: source(desired, observed, family),
            ..in_mesh_table(*remote, kind)
        }
    }));
    routes
}

fn in_mesh_table(dst: IpNet, kind: RouteKind) -> Route {
    Route {
        table: MESH_TABLE,
        ..Route::new(dst, kind, PROTO_HEADCNI)
    }
}

fn gateway(mesh: &Mesh, family: Family) -> Option<IpAddr> {
    match family {
        Family::Ipv4 => mesh.via_ipv4.map(IpAddr::V4),
        Family::Ipv6 => mesh.via_ipv6.map(IpAddr::V6),
    }
}

/// The gateway's address, which is from a network that leads back here. The kernel takes only an
/// address that the node has: on `lo` it is put by the same pass, a bridge may not be there yet.
fn source(desired: &Desired, observed: &Observed, family: Family) -> Option<IpAddr> {
    let is_there = |source: &&IpAddr| {
        let mut addresses = observed.addresses.iter();
        desired.gateways.contains(source) || addresses.any(|one| one.net.addr() == **source)
    };
    let of_family = |source: &&IpAddr| Family::of(&IpNet::from(**source)) == family;
    let mut sources = desired.sources.iter().filter(of_family);
    sources.find(is_there).copied()
}
