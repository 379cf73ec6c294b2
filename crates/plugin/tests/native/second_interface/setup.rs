//! A machine with a pod that has several interfaces, a neighbour of it, and a machine outside.

use lab::scenario::PluginNode;
use std::net::SocketAddr;

use lab::{EchoServer, Family, Netns, Node, Pod};
use serde_json::Value;

use crate::networks::{call, ip, plugin_node};

const PORT: u16 = 80;

/// The machine for pods, and one that is joined to it by a wire.
pub(super) struct Stage {
    pub(super) outside: Node,
    pub(super) plugin: PluginNode,
}

impl Stage {
    pub(super) fn new() -> Self {
        let (plugin, outside) = (plugin_node(), Node::new("outside").unwrap());
        for (link, ours, theirs, networks) in [
            (
                "w4",
                "192.168.7.1",
                "192.168.7.2",
                ["10.9.0.0/24", "10.8.0.0/24"],
            ),
            (
                "w6",
                "fd00:7::1",
                "fd00:7::2",
                ["fd00:9::/64", "fd00:8::/64"],
            ),
        ] {
            let length = if link == "w4" { 24 } else { 64 };
            let (our_end, their_end) = (format!("{ours}/{length}"), format!("{theirs}/{length}"));
            plugin
                .node
                .wire(link, &our_end, &outside, &their_end)
                .unwrap();
            for network in networks {
                outside
                    .run(["ip", "route", "add", network, "via", ours])
                    .unwrap();
            }
        }
        Self { outside, plugin }
    }

    #[track_caller]
    pub(super) fn ask(&self, verb: &str, conf: &Value, pod: &Pod, ifname: &str) -> Option<Value> {
        let outcome = self.plugin.run(&call(verb, conf).pod(pod).ifname(ifname));
        if let Err(error) = outcome.ok() {
            panic!("{verb} of {ifname}: {error}");
        }
        outcome.json
    }

    /// Asserts that all of these addresses answer to a neighbour, to the host and to the outside.
    #[track_caller]
    pub(super) fn assert_reached(&self, neighbour: &Pod, addresses: &[String]) {
        for address in addresses {
            let server = SocketAddr::new(address.parse().unwrap(), PORT);
            for (who, answer) in [
                ("a neighbour", neighbour.call_echo(server, "hello")),
                ("the host", self.plugin.node.call_echo(server, "hello")),
                ("the outside", self.outside.call_echo(server, "hello")),
            ] {
                if let Err(error) = answer {
                    panic!("{address} doesn't answer to {who}: {error:#}");
                }
            }
        }
    }
}

/// A server on all addresses of a pod: one for IPv6 takes IPv4, too.
pub(super) fn answering(pod: &Pod) -> EchoServer {
    EchoServer::start(pod, Family::V6, PORT).unwrap()
}

pub(super) fn addresses(result: &Value) -> Vec<String> {
    let count = result["ips"].as_array().unwrap().len();
    (0..count).map(|index| ip(result, index)).collect()
}

/// What a pod has of rules and routes beside those that every namespace has.
pub(super) fn traces(pod: &Pod) -> Vec<String> {
    let mut lines = pod.routes().unwrap();
    // A table that no rule leads to is as good as none, and goes with its link.
    lines.retain(|route| !route.contains(" table "));
    for family in ["-4", "-6"] {
        let rules = pod.run(["ip", family, "rule"]).unwrap().stdout;
        lines.extend(rules.lines().map(|line| format!("rule {family} {line}")));
        let known = ["ip", family, "neighbour", "show", "nud", "permanent"];
        let known = pod.run(known).unwrap().stdout;
        lines.extend(known.lines().map(|line| format!("neighbour {line}")));
    }
    lines.sort();
    lines
}
