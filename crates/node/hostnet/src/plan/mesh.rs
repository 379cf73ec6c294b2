//! Rules that send packets for the cluster to a routing table of our own, and the routes in it.
//!
//! The table has unreachable default routes, so no lookup falls through to other tables: while the mesh
//! is down, pods get an error at once. Routes via its link vanish and return with the link.

use std::collections::HashMap;
use std::net::IpAddr;

use ipnet::{IpNet, Ipv4Net, Ipv6Net};
use net::{DestinationRule, PROTO_HEADCNI, Route, RouteKind, RuleAction};

use crate::desired::Family;
use crate::{Action, Desired, MeshRoutes, Observed};
use node_core::routing::{METRIC_UNREACHABLE, PRIORITY_MARKED, PRIORITY_MESH, TAILSCALED_MARK};

/// The table with the peer routes. It has the number of our link group, so that one number identifies
/// headcni everywhere.
pub const MESH_TABLE: u32 = ruleset::LINK_GROUP;

/// The default of IPv6; explicit, because that of IPv4 differs.
const METRIC_MESH: u32 = 1024;

pub(super) fn rules(desired: &Desired) -> Vec<DestinationRule> {
    if desired.mesh.is_none() {
        return Vec::new();
    }
    let keep_out = |to| DestinationRule {
        to,
        mark: Some(TAILSCALED_MARK),
        action: RuleAction::Unreachable,
        priority: PRIORITY_MARKED,
        protocol: PROTO_HEADCNI,
    };
    let into_mesh = |to| DestinationRule {
        to,
        mark: None,
        action: RuleAction::Lookup(MESH_TABLE),
        priority: PRIORITY_MESH,
        protocol: PROTO_HEADCNI,
    };
    let cluster = || desired.cluster_cidrs();
    cluster()
        .map(keep_out)
        .chain(cluster().map(into_mesh))
        .collect()
}

/// tailscaled sets its interface up only once, when it creates it.
pub(super) fn set_link_up(desired: &Desired, observed: &Observed) -> Option<Action> {
    let mesh = desired.mesh.as_ref().filter(|mesh| mesh.is_managed)?;
    let link = observed.mesh_link(mesh).filter(|link| !link.is_up)?;
    Some(Action::SetLinkUp {
        link: link.index,
        name: link.name.clone(),
    })
}

/// Routes to replace, and routes to remove.
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
        // A replace takes the place of a single route of the same metric; others are removed.
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
    // Unreachable routes go last.
    old.sort_by_key(|route| (route.kind == RouteKind::Unreachable, route.dst));
    remove.extend(old);
    let unless_empty = |routes: Vec<Route>| (!routes.is_empty()).then_some(routes);
    (
        unless_empty(set).map(Action::ReplaceMeshRoutes),
        unless_empty(remove).map(Action::RemoveMeshRoutes),
    )
}

pub(crate) fn is_in_mesh_table(route: &Route) -> bool {
    route.table == MESH_TABLE && route.protocol == PROTO_HEADCNI
}

fn is_same(found: &Route, wanted: &Route) -> bool {
    let key = |route: &Route| (route.dst, route.kind, route.metric, route.source);
    key(found) == key(wanted)
}

fn routes(desired: &Desired, observed: &Observed) -> Vec<Route> {
    let Some(mesh) = &desired.mesh else {
        return Vec::new();
    };
    let everything = [
        (Family::Ipv4, IpNet::V4(Ipv4Net::default())),
        (Family::Ipv6, IpNet::V6(Ipv6Net::default())),
    ];
    let defaults = everything.iter().filter(|(family, _)| desired.has(*family));
    let defaults = defaults.map(|(_, all)| *all);
    let shadowed = mesh.shadowed.iter().copied();
    let shadowed = shadowed.filter(|network| desired.has(Family::of(network)));
    let mut routes: Vec<Route> = defaults
        .chain(shadowed.filter(|network| !mesh.peer_routes.contains(network)))
        .map(|network| Route {
            metric: Some(METRIC_UNREACHABLE),
            ..in_mesh_table(network, RouteKind::Unreachable)
        })
        .collect();
    // The kernel takes no routes via a link that is down. A managed one is set up before.
    let link = observed.mesh_link(mesh);
    let Some(link) = link.filter(|link| link.is_up || mesh.is_managed) else {
        return routes;
    };
    routes.extend(mesh.peer_routes.iter().map(|remote| {
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

fn gateway(mesh: &MeshRoutes, family: Family) -> Option<IpAddr> {
    match family {
        Family::Ipv4 => mesh.via_ipv4.map(IpAddr::V4),
        Family::Ipv6 => mesh.via_ipv6.map(IpAddr::V6),
    }
}

/// The gateway's address, because it is in a pod CIDR that peers route back here. The kernel takes only
/// an address that the node has: this reconcile adds those on `lo`, a bridge may not exist yet.
fn source(desired: &Desired, observed: &Observed, family: Family) -> Option<IpAddr> {
    let is_there = |source: &&IpAddr| {
        let mut addresses = observed.addresses.iter();
        desired.gateways.contains(source) || addresses.any(|one| one.net.addr() == **source)
    };
    let of_family = |source: &&IpAddr| Family::of(&IpNet::from(**source)) == family;
    let mut sources = desired.sources.iter().filter(of_family);
    sources.find(is_there).copied()
}
