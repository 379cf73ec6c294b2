//! What is outside of a node: one machine that has all addresses there are.

use lab::scenario::PluginNode;
use lab::{Netns, Node};

/// Where the node meets the world, on both sides.
pub(crate) const UPLINK: &str = "up0";
/// The node's own addresses there.
pub(crate) const NODE: [&str; 2] = ["192.168.7.2", "fd00:7::2"];
/// The world's.
pub(crate) const WORLD: [&str; 2] = ["192.168.7.1", "fd00:7::1"];

/// A world that the node's packets go to if they go nowhere else, and that knows the way to pods.
pub(crate) fn world(plugin: &PluginNode) -> Node {
    let world = Node::new("world").unwrap();
    let ends = [NODE[0], WORLD[0]].map(|address| format!("{address}/24"));
    plugin
        .node
        .wire(UPLINK, &ends[0], &world, &ends[1])
        .unwrap();
    for (place, address) in [(&plugin.node, NODE[1]), (&world, WORLD[1])] {
        let address = format!("{address}/64");
        let line = ["ip", "address", "add", &address, "dev", UPLINK, "nodad"];
        place.run(line).unwrap();
    }
    for family in [0, 1] {
        let line = ["ip", "route", "add", "default", "via", WORLD[family]];
        plugin.node.run(line).unwrap();
        let pods = ["10.9.0.0/24", "fd00:9::/64"][family];
        let line = ["ip", "route", "add", pods, "via", NODE[family]];
        world.run(line).unwrap();
    }
    world
}
