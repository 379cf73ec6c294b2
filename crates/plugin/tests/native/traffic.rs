//! Who reaches whom, and as whom: pods, their gateway, their node, and the world outside.

use lab::scenario::PluginNode;
use std::net::IpAddr;

use lab::{Netns, Node};
use serde_json::{Value, json};

use crate::connections::{assert_seen, seen_by_ping, seen_by_tcp, seen_by_udp};
use crate::networks::{NETWORK, dual_stack, host_link, ip, plugin_node};
use crate::outside_node::{NODE, UPLINK, WORLD, world};

/// Elsewhere in the world.
const FAR: [&str; 2] = ["198.51.100.9", "2001:db8::9"];
/// A pod of another node.
const FAR_POD: [&str; 2] = ["10.9.5.5", "fd00:9:0:5::5"];
/// A service, which the world serves here.
const SERVICE: [&str; 2] = ["10.96.0.10", "fd00:96::10"];
const BOTH: [usize; 2] = [0, 1];

/// A network that knows of other nodes' pods and of services.
fn cluster() -> Value {
    json!({
        "cniVersion": "1.1.0", "name": NETWORK, "type": "headcni",
        "pod_cidr": "10.9.0.0/16,fd00:9::/48", "service_cidr": "10.96.0.0/16,fd00:96::/112",
        "ipam": { "type": "headcni-ipam",
            "ranges": [[{ "subnet": "10.9.0.0/24" }], [{ "subnet": "fd00:9::/64" }]] },
    })
}

/// A world in which others have their addresses, too.
fn peopled_world(plugin: &PluginNode) -> Node {
    let world = world(plugin);
    for address in [FAR, FAR_POD, SERVICE].as_flattened() {
        let line = ["ip", "address", "add", address, "dev", "lo", "nodad"];
        world.run(line).unwrap();
    }
    world
}

fn address(text: &str) -> IpAddr {
    text.parse().unwrap()
}

#[test]
fn pods_see_each_other_as_they_are() {
    let plugin = plugin_node();
    let conf = dual_stack();
    let (one, first) = plugin.attached("one", &conf);
    let (two, second) = plugin.attached("two", &conf);
    for family in BOTH {
        let (first, second) = (address(&ip(&first, family)), address(&ip(&second, family)));
        assert_seen(&one, (&two, "eth0"), second, first);
        assert_seen(&two, (&one, "eth0"), first, second);
    }
}

#[test]
fn a_pod_reaches_itself() {
    let plugin = plugin_node();
    let (pod, result) = plugin.attached("one", &dual_stack());
    // As every runtime does.
    pod.run(["ip", "link", "set", "lo", "up"]).unwrap();
    for family in BOTH {
        let own = address(&ip(&result, family));
        assert_seen(&pod, (&pod, "lo"), own, own);
    }
}

#[test]
fn the_node_sees_a_pod_as_it_is_by_the_gateway_s_and_its_own_address() {
    let plugin = plugin_node();
    let _world = world(&plugin);
    let (pod, result) = plugin.attached("one", &dual_stack());
    let link = host_link(&result);
    for family in BOTH {
        let own = address(&ip(&result, family));
        let gateway = result["ips"][family]["gateway"].as_str().unwrap();
        for to in [gateway, NODE[family]] {
            assert_seen(&pod, (&plugin.node, &link), address(to), own);
        }
    }
}

#[test]
fn a_pod_is_reached_by_its_node_and_sees_an_address_of_the_node() {
    let plugin = plugin_node();
    let _world = world(&plugin);
    let (pod, result) = plugin.attached("one", &dual_stack());
    for family in BOTH {
        let to = address(&ip(&result, family));
        let gateway = result["ips"][family]["gateway"].as_str().unwrap();
        let nodes = [gateway, NODE[family]].map(address);
        for seen in [
            seen_by_udp(&plugin.node, &pod, to),
            seen_by_tcp(&plugin.node, &pod, to),
            seen_by_ping(&plugin.node, (&pod, "eth0"), to),
        ] {
            assert!(nodes.contains(&seen), "{seen} called {to}");
        }
    }
}

#[test]
fn the_world_sees_the_node_in_place_of_a_pod() {
    let plugin = plugin_node();
    let world = peopled_world(&plugin);
    let (pod, _) = plugin.attached("one", &cluster());
    for family in BOTH {
        for to in [WORLD, FAR].map(|place| address(place[family])) {
            assert_seen(&pod, (&world, UPLINK), to, address(NODE[family]));
        }
    }
}

#[test]
fn other_nodes_pods_and_services_see_a_pod_as_it_is() {
    let plugin = plugin_node();
    let world = peopled_world(&plugin);
    let (pod, result) = plugin.attached("one", &cluster());
    for family in BOTH {
        let own = address(&ip(&result, family));
        for to in [FAR_POD, SERVICE].map(|place| address(place[family])) {
            assert_seen(&pod, (&world, UPLINK), to, own);
        }
    }
}

#[test]
fn a_pod_sees_who_calls_it_from_the_world() {
    let plugin = plugin_node();
    let world = peopled_world(&plugin);
    let (pod, result) = plugin.attached("one", &cluster());
    for family in BOTH {
        let to = address(&ip(&result, family));
        assert_seen(&world, (&pod, "eth0"), to, address(WORLD[family]));
    }
}

#[test]
fn pods_of_two_networks_on_a_node_see_each_other_as_they_are() {
    let plugin = plugin_node();
    let (one, first) = plugin.attached("one", &dual_stack());
    let other = json!({
        "cniVersion": "1.1.0", "name": "other", "type": "headcni",
        "ipam": { "type": "headcni-ipam",
            "ranges": [[{ "subnet": "10.7.0.0/24" }], [{ "subnet": "fd00:77::/64" }]] },
    });
    let (two, second) = plugin.attached("two", &other);
    for family in BOTH {
        let (first, second) = (address(&ip(&first, family)), address(&ip(&second, family)));
        assert_seen(&one, (&two, "eth0"), second, first);
        assert_seen(&two, (&one, "eth0"), first, second);
    }
}

#[test]
fn pods_whose_ipam_names_no_gateway_reach_each_other_and_the_world() {
    let plugin = plugin_node();
    let world = peopled_world(&plugin);
    let conf = |own: [&str; 2]| {
        json!({
            "cniVersion": "1.1.0", "name": NETWORK, "type": "headcni",
            "pod_cidr": "10.9.0.0/24,fd00:9::/64",
            "ipam": { "type": "static", "addresses": own.map(|own| json!({ "address": own })) },
        })
    };
    let (one, first) = plugin.attached("one", &conf(["10.9.0.11/24", "fd00:9::11/64"]));
    let (two, second) = plugin.attached("two", &conf(["10.9.0.12/32", "fd00:9::12/128"]));
    for family in BOTH {
        let (first, second) = (address(&ip(&first, family)), address(&ip(&second, family)));
        assert_seen(&one, (&two, "eth0"), second, first);
        assert_seen(&two, (&one, "eth0"), first, second);
        let far = address(FAR[family]);
        assert_seen(&one, (&world, UPLINK), far, address(NODE[family]));
        plugin.node.ping(&first.to_string()).unwrap();
    }
}
