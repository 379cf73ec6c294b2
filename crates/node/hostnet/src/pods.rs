//! What pods lose when their links flap or somebody wipes a table, and how it comes back.
//!
//! A link that is switched off and on has neither routes nor permanent neighbours any more. Only what
//! is missing is put back: what a pod has that isn't known here is the plugin's business.

use std::collections::{HashMap, HashSet};
use std::net::IpAddr;

use net::{Link, Mac, Neighbour, PROTO_HEADCNI, Route, RouteKind, TABLE_MAIN};
use ruleset::host_ports::HostPort;
use ruleset::{LINK_GROUP, Table};

use super::{Action, Observed};

/// A living pod's link on the host, and what is behind it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PodLink {
    /// The link's name on the host.
    pub name: String,
    /// The hardware address of the pod's end.
    pub pod_mac: Mac,
    /// The pod's addresses.
    pub addresses: Vec<IpAddr>,
}

/// The pods of the native datapath that live.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Pods {
    /// Their links.
    pub links: Vec<PodLink>,
    /// Their hostPorts.
    pub ports: Vec<HostPort>,
}

/// What has to be done for pods, after what `before` does for all of them.
pub(super) fn plan(pods: &Pods, observed: &Observed, before: &[Action]) -> Vec<Action> {
    let node = Node::new(observed);
    let mut actions = restore(&pods.links, &node);
    actions.extend(ports(pods, &node, before));
    actions
}

/// What the node has, ordered by what is looked for: there may be hundreds of pods.
struct Node<'a> {
    /// Links to pods by their names.
    links: HashMap<&'a str, &'a Link>,
    /// Addresses that lead to a pod.
    led: HashSet<IpAddr>,
    neighbours: HashMap<(u32, IpAddr), Mac>,
    published: HashSet<HostPort>,
    hairpins: HashSet<IpAddr>,
}

impl<'a> Node<'a> {
    fn new(observed: &'a Observed) -> Self {
        let is_to_pod = |route: &&Route| {
            let is_alone = route.dst.prefix_len() == route.dst.max_prefix_len();
            is_alone
                && route.table == TABLE_MAIN
                && route.protocol == PROTO_HEADCNI
                && matches!(route.kind, RouteKind::Via { .. })
        };
        let of_pods = observed
            .links
            .iter()
            .filter(|link| link.group == LINK_GROUP);
        let to_pods = observed.routes.iter().filter(is_to_pod);
        let neighbours = observed.neighbours.iter();
        Self {
            links: of_pods.map(|link| (link.name.as_str(), link)).collect(),
            led: to_pods.map(|route| route.dst.addr()).collect(),
            neighbours: neighbours
                .map(|one| ((one.link, one.address), one.mac))
                .collect(),
            published: observed.tables.published.iter().copied().collect(),
            hairpins: observed.tables.hairpins.iter().copied().collect(),
        }
    }

    /// The pod's link, if it is there.
    fn link_of(&self, pod: &PodLink) -> Option<&Link> {
        self.links.get(pod.name.as_str()).copied()
    }
}

/// Routes and neighbours that are missing. A link that is off is left alone: the kernel would not
/// take them, and when it is switched on there is another pass.
fn restore(links: &[PodLink], node: &Node<'_>) -> Vec<Action> {
    let mut actions = Vec::new();
    for pod in links {
        let Some(link) = node.link_of(pod).filter(|link| link.is_up) else {
            continue;
        };
        let link = link.index;
        for &address in &pod.addresses {
            // Another pod may have the address by now: what is there stays.
            if !node.led.contains(&address) {
                actions.push(Action::RestoreRoute { address, link });
            }
            let mac = pod.pod_mac;
            if node.neighbours.get(&(link, address)) != Some(&mac) {
                actions.push(Action::RestoreNeighbour(Neighbour { link, address, mac }));
            }
        }
    }
    actions
}

/// hostPorts of living pods that are missing, and such that lead to nobody: a pod's port comes after
/// its route, and its record goes after both.
fn ports(pods: &Pods, node: &Node<'_>, before: &[Action]) -> Vec<Action> {
    let of_living = pods.links.iter().filter(|pod| node.link_of(pod).is_some());
    let living: HashSet<IpAddr> = of_living.flat_map(|pod| &pod.addresses).copied().collect();
    let known: HashSet<HostPort> = pods.ports.iter().map(normal).collect();
    // A table that is put in place may lose what it had.
    let is_remade = before
        .iter()
        .any(|action| action.table() == Some(Table::Ports));
    let is_whole = |port: &HostPort| {
        !is_remade && node.published.contains(port) && node.hairpins.contains(&port.pod)
    };
    let is_missing = |port: &&HostPort| living.contains(&port.pod) && !is_whole(port);
    let is_dead = |port: &&HostPort| {
        !known.contains(port) && !living.contains(&port.pod) && !node.led.contains(&port.pod)
    };
    let missing = known.iter().filter(is_missing).copied();
    let dead = node.published.iter().filter(is_dead).copied();
    let mut actions: Vec<Action> = missing.map(Action::Publish).collect();
    actions.extend(dead.map(Action::Unpublish));
    actions
}

/// The port as the kernel lists it: "every address" has no address.
fn normal(port: &HostPort) -> HostPort {
    HostPort {
        host: port.host.filter(|host| !host.is_unspecified()),
        ..*port
    }
}

#[cfg(test)]
mod tests;
