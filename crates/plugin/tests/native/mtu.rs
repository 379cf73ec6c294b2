//! Packets that are as large as the links are, and larger ones.

use lab::scenario::PluginNode;
use std::net::IpAddr;

use lab::{Netns, Node};
use rstest::rstest;
use serde_json::{Value, json};

use crate::connections::{carries, connect};
use crate::networks::{NETWORK, dual_stack, host_link, ip, plugin_node, with};
use crate::outside_node::{NODE, UPLINK, WORLD, world};

/// What comes before the payload of a ping, per family.
const HEADS: [u32; 2] = [28, 48];
const BOTH: [usize; 2] = [0, 1];

/// Pings once with a packet of this size, which nobody may cut; what ping says.
fn ping(place: &impl Netns, to: &str, packet_bytes: u32, family: usize) -> Result<(), String> {
    ping_within("5", place, to, packet_bytes - HEADS[family])
}

/// As [`ping`], with a packet that doesn't even leave: ping would wait for an answer all the same.
fn refusal(place: &impl Netns, to: &str, packet_bytes: u32, family: usize) -> String {
    ping_within("0.1", place, to, packet_bytes - HEADS[family]).unwrap_err()
}

fn ping_within(
    seconds: &str,
    place: &impl Netns,
    to: &str,
    payload_bytes: u32,
) -> Result<(), String> {
    let size = payload_bytes.to_string();
    let line = [
        "ping", "-n", "-c", "1", "-W", seconds, "-M", "do", "-s", &size, to,
    ];
    let said = place.attempt(line).unwrap();
    if said.status.success() {
        Ok(())
    } else {
        Err(said.stdout + &said.stderr)
    }
}

/// A world behind a wire of the node with this MTU. It doesn't know that the wire is so narrow, as
/// if that were further away, and asks for large segments.
fn narrow_world(plugin: &PluginNode, mtu_bytes: u32) -> Node {
    let world = world(plugin);
    let mtu_bytes = mtu_bytes.to_string();
    for place in [&plugin.node, &world] {
        let line = ["ip", "link", "set", UPLINK, "mtu", &mtu_bytes];
        place.run(line).unwrap();
    }
    for node in NODE {
        let route = ["ip", "route", "add", node, "dev", UPLINK, "advmss", "1440"];
        world.run(route).unwrap();
    }
    world
}

/// The MTU of both ends of a pod's link, which its result must have, too.
fn mtu(plugin: &PluginNode, pod: &impl Netns, result: &Value) -> u64 {
    let host = plugin.node.link(&host_link(result)).unwrap().unwrap();
    let pod = pod.link("eth0").unwrap().unwrap();
    let ends = [host["mtu"].as_u64(), pod["mtu"].as_u64()];
    let stated = [0, 1].map(|index| result["interfaces"][index]["mtu"].as_u64());
    assert_eq!(ends, stated);
    assert_eq!(ends[0], ends[1]);
    ends[0].unwrap()
}

#[rstest]
#[case::unsaid(dual_stack(), 1280)]
#[case::said(with(dual_stack(), "mtu", 1400.into()), 1400)]
#[case::large(with(dual_stack(), "mtu", 9000.into()), 9000)]
fn a_packet_of_the_links_size_passes_everywhere_and_a_larger_one_nowhere(
    #[case] conf: Value,
    #[case] expected: u32,
) {
    let plugin = plugin_node();
    let (one, first) = plugin.attached("one", &conf);
    let (_two, second) = plugin.attached("two", &conf);
    assert_eq!(mtu(&plugin, &one, &first), u64::from(expected));
    for family in BOTH {
        let (first, second) = (ip(&first, family), ip(&second, family));
        let gateway = ["10.9.0.1", "fd00:9::1"][family];
        for to in [second.as_str(), gateway] {
            ping(&one, to, expected, family).unwrap();
            let refused = refusal(&one, to, expected + 1, family);
            let reason = format!("mtu: {expected}");
            assert!(
                refused.replace("mtu=", "mtu: ").contains(&reason),
                "{refused}"
            );
        }
        ping(&plugin.node, &first, expected, family).unwrap();
        let refused = refusal(&plugin.node, &first, expected + 1, family);
        assert!(refused.contains("message too long"), "{refused}");
    }
}

#[test]
fn the_mesh_s_mtu_is_taken_from_the_node_s_subnet_file() {
    let plugin = plugin_node();
    let file = "HEADCNI_NETWORK=10.244.0.0/16\nHEADCNI_SUBNET=10.244.1.0/24\nHEADCNI_MTU=1380\n\
                HEADCNI_IPMASQ=true\n";
    plugin.node.write("/run/headcni/subnet.env", file).unwrap();
    let conf = json!({ "cniVersion": "1.1.0", "name": NETWORK, "type": "headcni" });
    let (pod, result) = plugin.attached("one", &conf);
    assert_eq!(mtu(&plugin, &pod, &result), 1380);
    ping(&pod, "10.244.1.1", 1380, 0).unwrap();
    // What the configuration says comes first.
    let (pod, result) = plugin.attached("two", &with(conf, "mtu", 1300.into()));
    assert_eq!(mtu(&plugin, &pod, &result), 1300);
}

#[test]
fn a_packet_that_is_cut_arrives_whole() {
    let plugin = plugin_node();
    let (one, _) = plugin.attached("one", &dual_stack());
    let (_two, second) = plugin.attached("two", &dual_stack());
    for family in BOTH {
        let to = ip(&second, family);
        let line = [
            "ping", "-n", "-c", "1", "-W", "5", "-M", "dont", "-s", "5000", &to,
        ];
        one.run(line).unwrap();
    }
}

#[test]
fn a_pod_is_told_when_its_packet_is_too_large_for_what_comes_later() {
    let plugin = plugin_node();
    let _world = narrow_world(&plugin, 1400);
    let (pod, _) = plugin.attached("one", &with(dual_stack(), "mtu", 1500.into()));
    let (_small, second) = plugin.attached("two", &with(dual_stack(), "mtu", 1300.into()));
    for family in BOTH {
        for (to, limit) in [
            (WORLD[family].to_owned(), 1400),
            (ip(&second, family), 1300),
        ] {
            let told = ping(&pod, &to, limit + 1, family).unwrap_err();
            let told = told.replace("mtu = ", "mtu=");
            assert!(told.contains(&format!("mtu={limit}")), "{told}");
            ping(&pod, &to, limit, family).unwrap();
        }
    }
}

#[test]
fn the_world_is_told_when_its_packet_is_too_large_for_a_pod() {
    let plugin = plugin_node();
    let world = world(&plugin);
    let (_pod, result) = plugin.attached("one", &dual_stack());
    for family in BOTH {
        let to = ip(&result, family);
        let told = ping(&world, &to, 1400, family).unwrap_err();
        let told = told.replace("mtu = ", "mtu=");
        assert!(told.contains("mtu=1280"), "{told}");
        ping(&world, &to, 1280, family).unwrap();
    }
}

#[rstest]
#[case::small_pod(1280, 1500)]
#[case::small_wire(1500, 1300)]
fn much_data_passes_both_ways(#[case] pod_mtu: u32, #[case] wire_mtu: u32) {
    const BYTES: usize = 1 << 20;
    let plugin = plugin_node();
    let world = narrow_world(&plugin, wire_mtu);
    let conf = with(dual_stack(), "mtu", pod_mtu.into());
    let (one, first) = plugin.attached("one", &conf);
    let (two, second) = plugin.attached("two", &dual_stack());
    let address = |text: &str| -> IpAddr { text.parse().unwrap() };
    for family in BOTH {
        let pairs = [
            connect(&one, &world, address(WORLD[family])),
            connect(&one, &two, address(&ip(&second, family))),
            connect(&plugin.node, &one, address(&ip(&first, family))),
        ];
        for (mut calling, mut called) in pairs {
            assert!(carries(&mut calling, &mut called, BYTES));
            assert!(carries(&mut called, &mut calling, BYTES));
        }
    }
}
