//! hostPorts: ports of the node that lead to a pod.

mod bystanders;
mod leaving;
mod localhost;
mod reach;
mod refusal;
mod sctp;
mod udp;
mod udp_flows;

use lab::scenario::PluginNode;
use std::net::SocketAddr;

use lab::{Netns, Node};
use serde_json::{Value, json};

use crate::networks::{plugin_node, with};

/// The node's addresses, and its neighbour's.
pub(crate) const NODE: [&str; 2] = ["192.0.2.1", "2001:db8::1"];
pub(crate) const NEIGHBOUR: [&str; 2] = ["192.0.2.2", "2001:db8::2"];
/// The node's link to its neighbour, on both.
pub(crate) const UPLINK: &str = "up0";

/// A node with a neighbour.
pub(crate) struct Site {
    pub(crate) plugin: PluginNode,
    pub(crate) neighbour: Node,
}

impl Site {
    pub(crate) fn new() -> Self {
        let (plugin, neighbour) = (plugin_node(), Node::new("neighbour").unwrap());
        let cidr =
            |address: &str| format!("{address}/{}", if address.contains(':') { 64 } else { 24 });
        let [ours, theirs] = [NODE, NEIGHBOUR].map(|pair| pair.map(cidr));
        plugin
            .node
            .wire(UPLINK, &ours[0], &neighbour, &theirs[0])
            .unwrap();
        for (place, address) in [(&plugin.node, &ours[1]), (&neighbour, &theirs[1])] {
            give_address(place, address, UPLINK);
        }
        Self { plugin, neighbour }
    }
}

pub(crate) fn give_address(place: &impl Netns, cidr: &str, link: &str) {
    let add = ["ip", "address", "add", cidr, "dev", link, "nodad"];
    place.run(add).unwrap();
}

/// The configuration with these `portMappings` from the runtime.
pub(crate) fn publishing(conf: Value, mappings: &[Value]) -> Value {
    with(conf, "runtimeConfig", json!({ "portMappings": mappings }))
}

/// An entry of `portMappings`.
pub(crate) fn mapping(protocol: &str, host: u16, pod: u16) -> Value {
    json!({ "hostPort": host, "containerPort": pod, "protocol": protocol })
}

/// An entry of `portMappings` for one address of the node.
pub(crate) fn mapping_on(address: &str, host: u16, pod: u16) -> Value {
    with(mapping("tcp", host, pod), "hostIP", json!(address))
}

pub(crate) fn at(address: &str, port: u16) -> SocketAddr {
    SocketAddr::new(address.parse().unwrap(), port)
}

/// The elements of all maps and sets for hostPorts that hold some.
pub(crate) fn elements(plugin: &PluginNode) -> Vec<String> {
    let names = ["by_address4", "by_address6", "by_port4", "by_port6"];
    let maps = names.map(|name| ("map", name));
    let sets = ["hairpin4", "hairpin6"].map(|name| ("set", name));
    let mut found = Vec::new();
    for (kind, name) in maps.into_iter().chain(sets) {
        let line = ["nft", "list", kind, "inet", "headcni-ports", name];
        let listed = plugin.node.run(line).unwrap().stdout;
        if let Some((_, elements)) = listed.split_once("elements = {") {
            let elements = elements.split('}').next().unwrap();
            let words: Vec<_> = elements.split_whitespace().collect();
            found.push(format!("{name}: {}", words.join(" ")));
        }
    }
    found
}
