//! Several interfaces of ours in one pod.
//!
//! The node drops what comes from an address by any other link than that address's own. So as soon
//! as a pod has two of our interfaces, each of them has a routing table of its own, which has the
//! number of its link, and a rule per address leads there.

use std::net::IpAddr;

use net::{Batch, Errno, NetError, PROTO_HEADCNI, Route, RouteKind, Rule, Socket, TABLE_MAIN};

use super::kernel::direct_route;
use super::wiring::{Wiring, everything, is_index};

/// Where our rules inside a pod stand among others.
const RULE_PRIORITY: u32 = 5190;

/// The table inside a pod whose only route tells that we have an interface there.
const MARK_TABLE: u32 = 5190;

/// A route that leads nowhere: the first interface of ours in a pod has it, and it goes with it.
pub(super) fn mark(link: u32) -> Route {
    let nowhere = IpAddr::from([169, 254, 1, 1]);
    Route {
        table: MARK_TABLE,
        ..direct_route(nowhere, link)
    }
}

/// Sees to it that what comes from an address leaves by its interface, where a pod has several:
/// the node drops it anywhere else.
///
/// Each of our interfaces has a table of its own for that, which has the number of its link.
pub(super) fn arrange(socket: &Socket, wiring: &Wiring, link: u32) -> Result<(), NetError> {
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
        let mut default = Route::new(everything(hop.address), kind, PROTO_HEADCNI);
        default.table = hop.link;
        default.replace_in(&mut batch);
    }
    for route in &wiring.routes {
        let mut route = route.to_kernel(link, PROTO_HEADCNI);
        if route.table == TABLE_MAIN {
            route.table = link;
            route.replace_in(&mut batch);
        }
    }
    socket.send(batch)
}

/// Takes an interface of ours out of the pod's rules. Those of the last one that remains go with
/// it if it needs none.
pub(super) fn leave(socket: &Socket, name: &str) -> Result<(), NetError> {
    let leaving = net::link(socket, name)?.map(|link| link.index);
    let links = net::links(socket)?.into_iter().map(|link| link.index);
    let remaining: Vec<u32> = links
        .filter(|link| is_index(*link) && Some(*link) != leaving)
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

/// Whether an interface's routes are in table `main`: it is our first one in the pod, and no other
/// plugin's interface had the same routes before it.
fn has_its_routes_in_main(link: u32, routes: &[Route]) -> bool {
    let by = |route: &Route| match route.kind {
        RouteKind::Via { link, .. } => Some(link),
        RouteKind::Local { .. } | RouteKind::Unreachable => None,
    };
    let is_first = routes
        .iter()
        .any(|route| route.table == MARK_TABLE && by(route) == Some(link));
    let is_others = |own: &Route| {
        routes.iter().any(|route| {
            let is_same = route.table == TABLE_MAIN && route.dst == own.dst;
            is_same && by(route).is_some_and(|link| !is_index(link))
        })
    };
    let mut own = routes.iter().filter(|route| route.table == link);
    is_first && !own.any(is_others)
}

/// What comes from an address looks its way up in the table of its link.
fn rule(from: IpAddr, table: u32) -> Rule {
    Rule {
        from: from.into(),
        table,
        priority: RULE_PRIORITY,
        protocol: PROTO_HEADCNI,
    }
}
