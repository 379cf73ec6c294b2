//! Restores routes, neighbours and hostPorts of running pods after a link flap or a wiped table.
//!
//! A link that goes down loses its routes and permanent neighbours. Only what is missing is added;
//! everything else of a pod belongs to the plugin.

use std::collections::{HashMap, HashSet};
use std::net::IpAddr;

use net::{Link, Mac, Neighbour, PROTO_HEADCNI, Route, RouteKind, TABLE_MAIN};
use ruleset::host_ports::HostPort;
use ruleset::{LINK_GROUP, Table};

use super::{Action, Observed};

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DesiredPodLink {
    /// On the host.
    pub name: String,
    pub pod_mac: Mac,
    pub addresses: Vec<IpAddr>,
}

/// The running pods of the native datapath.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DesiredPods {
    pub links: Vec<DesiredPodLink>,
    pub ports: Vec<HostPort>,
}

/// Plans for pods, given the actions that come before.
pub(super) fn plan(pods: &DesiredPods, observed: &Observed, before: &[Action]) -> Vec<Action> {
    let node = PodLookup::new(observed);
    let mut actions = restore(&pods.links, &node);
    actions.extend(ports(pods, &node, before));
    actions
}

/// Observed state by key: there may be hundreds of pods.
struct PodLookup<'a> {
    links: HashMap<&'a str, &'a Link>,
    /// Addresses with a route to a pod.
    routed: HashSet<IpAddr>,
    neighbours: HashMap<(u32, IpAddr), Mac>,
    published: HashSet<HostPort>,
    hairpins: HashSet<IpAddr>,
}

impl<'a> PodLookup<'a> {
    fn new(observed: &'a Observed) -> Self {
        let is_to_pod = |route: &&Route| {
            let is_host_route = route.dst.prefix_len() == route.dst.max_prefix_len();
            is_host_route
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
            routed: to_pods.map(|route| route.dst.addr()).collect(),
            neighbours: neighbours
                .map(|one| ((one.link, one.address), one.mac))
                .collect(),
            published: observed.tables.published.iter().copied().collect(),
            hairpins: observed.tables.hairpins.iter().copied().collect(),
        }
    }

    fn link_of(&self, pod: &DesiredPodLink) -> Option<&Link> {
        self.links.get(pod.name.as_str()).copied()
    }
}

/// Missing routes and neighbours. A link that is down takes none; when it comes up, another reconcile
/// follows.
fn restore(links: &[DesiredPodLink], node: &PodLookup<'_>) -> Vec<Action> {
    let mut actions = Vec::new();
    for pod in links {
        let Some(link) = node.link_of(pod).filter(|link| link.is_up) else {
            continue;
        };
        let link = link.index;
        for &address in &pod.addresses {
            // Another pod may have the address by now.
            if !node.routed.contains(&address) {
                actions.push(Action::RestorePodRoute { address, link });
            }
            let mac = pod.pod_mac;
            if node.neighbours.get(&(link, address)) != Some(&mac) {
                actions.push(Action::RestorePodNeighbour(Neighbour {
                    link,
                    address,
                    mac,
                }));
            }
        }
    }
    actions
}

/// Missing hostPorts of running pods, and published ones without a pod. ADD publishes a port after the
/// route exists, and DEL removes the record after both.
fn ports(pods: &DesiredPods, node: &PodLookup<'_>, before: &[Action]) -> Vec<Action> {
    let of_running = pods.links.iter().filter(|pod| node.link_of(pod).is_some());
    let running: HashSet<IpAddr> = of_running.flat_map(|pod| &pod.addresses).copied().collect();
    let desired: HashSet<HostPort> = pods.ports.iter().map(normalised).collect();
    // A replaced table may have lost its elements.
    let is_replaced = before
        .iter()
        .any(|action| action.replaced_table() == Some(Table::Ports));
    let is_published = |port: &HostPort| {
        !is_replaced && node.published.contains(port) && node.hairpins.contains(&port.pod)
    };
    let is_missing = |port: &&HostPort| running.contains(&port.pod) && !is_published(port);
    let is_dead = |port: &&HostPort| {
        !desired.contains(port) && !running.contains(&port.pod) && !node.routed.contains(&port.pod)
    };
    let missing = desired.iter().filter(is_missing).copied();
    let dead = node.published.iter().filter(is_dead).copied();
    let mut actions: Vec<Action> = missing.map(Action::PublishHostPort).collect();
    actions.extend(dead.map(Action::UnpublishHostPort));
    actions
}

/// The port as the kernel lists it: the unspecified address is none.
fn normalised(port: &HostPort) -> HostPort {
    HostPort {
        host: port.host.filter(|host| !host.is_unspecified()),
        ..*port
    }
}

#[cfg(test)]
mod tests;
