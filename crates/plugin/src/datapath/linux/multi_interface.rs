//! Source routing for pods with several of our interfaces.
//!
//! The node drops packets whose source address belongs to another link. So in a pod with several of
//! our interfaces, each has a routing table of its own, whose number is the index of the link, and a
//! rule per address selects it.

use std::net::IpAddr;

use net::{Batch, Errno, NetError, PROTO_HEADCNI, Route, RouteKind, Rule, Socket, TABLE_MAIN};

use super::apply::direct_route;
use super::plan::{PodNetwork, default_destination, is_index};

const RULE_PRIORITY: u32 = 5190;

/// The table of [`marker_route`].
const MARKER_TABLE: u32 = 5190;

/// An unused route that marks our first interface in a pod. It is deleted with the interface.
pub(super) fn marker_route(link: u32) -> Route {
    let unused = IpAddr::from([169, 254, 1, 1]);
    Route {
        table: MARKER_TABLE,
        ..direct_route(unused, link)
    }
}

/// Sets up tables and rules for all of our interfaces in the pod.
pub(super) fn ensure_source_routing(
    socket: &Socket,
    network: &PodNetwork,
    link: u32,
) -> Result<(), NetError> {
    let addresses = net::addresses(socket)?;
    let neighbours = net::permanent_neighbours(socket)?;
    let mut batch = Batch::new();
    for address in addresses.iter().filter(|address| is_index(address.link)) {
        let is_link_local =
            matches!(address.net.addr(), IpAddr::V6(ip) if ip.is_unicast_link_local());
        if !is_link_local {
            rule(address.net.addr(), address.link).add_to(&mut batch);
            batch.tolerating(&[Errno::EXIST]);
        }
    }
    for hop in neighbours.iter().filter(|known| is_index(known.link)) {
        let kind = RouteKind::Via {
            link: hop.link,
            gateway: Some(hop.address),
        };
        let mut default = Route::new(default_destination(hop.address), kind, PROTO_HEADCNI);
        default.table = hop.link;
        default.replace_in(&mut batch);
    }
    for route in &network.routes {
        let mut route = route.to_kernel(link, PROTO_HEADCNI);
        if route.table == TABLE_MAIN {
            route.table = link;
            route.replace_in(&mut batch);
        }
    }
    socket.send(batch)
}

/// Removes the rules of an interface, and those of the last remaining one if it needs none.
pub(super) fn remove_rules(socket: &Socket, name: &str) -> Result<(), NetError> {
    let removed = net::link(socket, name)?.map(|link| link.index);
    let links = net::links(socket)?.into_iter().map(|link| link.index);
    let remaining: Vec<u32> = links
        .filter(|link| is_index(*link) && Some(*link) != removed)
        .collect();
    let routes = net::routes(socket)?;
    let needed = match remaining[..] {
        [last] if has_its_routes_in_main(last, &routes) => Vec::new(),
        _ => remaining,
    };
    let mut batch = Batch::new();
    for rule in net::rules(socket)? {
        if rule.protocol == PROTO_HEADCNI && !needed.contains(&rule.table) {
            rule.remove_in(&mut batch);
            batch.tolerating(&[Errno::NOENT]);
        }
    }
    socket.send(batch)
}

/// Whether the routes of an interface are in table `main`: it is our first one in the pod, and no
/// interface of another plugin has the same routes.
fn has_its_routes_in_main(link: u32, routes: &[Route]) -> bool {
    let by = |route: &Route| match route.kind {
        RouteKind::Via { link, .. } => Some(link),
        RouteKind::Local { .. } | RouteKind::Unreachable => None,
    };
    let is_first = routes
        .iter()
        .any(|route| route.table == MARKER_TABLE && by(route) == Some(link));
    let is_others = |own: &Route| {
        routes.iter().any(|route| {
            let is_same = route.table == TABLE_MAIN && route.dst == own.dst;
            is_same && by(route).is_some_and(|link| !is_index(link))
        })
    };
    let mut own = routes.iter().filter(|route| route.table == link);
    is_first && !own.any(is_others)
}

fn rule(from: IpAddr, table: u32) -> Rule {
    Rule {
        from: from.into(),
        table,
        priority: RULE_PRIORITY,
        protocol: PROTO_HEADCNI,
    }
}
