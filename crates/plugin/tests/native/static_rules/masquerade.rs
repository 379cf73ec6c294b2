//! What leaves the node under the node's address, and what under the pod's own.

use lab::scenario::PluginNode;
use lab::{EchoServer, Family, Netns};
use rstest::rstest;
use serde_json::{Value, json};

use super::network;
use crate::host_ports::{NEIGHBOUR, NODE, Site, at, give_address};
use crate::networks::{dual_stack, ip, plugin_node, with};

/// Gives the neighbour an address, with the ways there and back.
fn extend(site: &Site, address: &str, pods: [&str; 2]) {
    let index = usize::from(address.contains(':'));
    let cidr = format!("{address}/{}", [32, 128][index]);
    give_address(&site.neighbour, &cidr, "lo");
    let to = ["ip", "route", "replace", address, "via", NEIGHBOUR[index]];
    site.plugin.node.run(to).unwrap();
    let back = ["ip", "route", "replace", pods[index], "via", NODE[index]];
    site.neighbour.run(back).unwrap();
}

#[test]
fn pods_reach_the_world_as_the_node_and_the_cluster_as_themselves() {
    let site = Site::new();
    let conf = with(dual_stack(), "pod_cidr", json!("10.9.0.0/16,fd00:9::/48"));
    let conf = with(conf, "service_cidr", json!("10.96.0.0/12,fd00:96::/112"));
    let (pod, result) = site.plugin.attached("pod", &conf);
    let back = ["10.9.0.0/24", "fd00:9::/64"];
    let cluster = ["10.9.7.7", "10.96.0.1", "fd00:9:0:7::7", "fd00:96::1"];
    let world = ["198.51.100.1", "10.112.0.1", "2001:db8:7::1"];
    for address in cluster.iter().chain(&world) {
        extend(&site, address, back);
    }
    for (index, family) in [Family::V4, Family::V6].into_iter().enumerate() {
        let _server = EchoServer::start(&site.neighbour, family, 7).unwrap();
        let of_family = |address: &&&str| usize::from(address.contains(':')) == index;
        for address in cluster.iter().filter(of_family) {
            let seen = pod.call_echo(at(address, 7), "x").unwrap();
            assert_eq!(seen.to_string(), ip(&result, index), "{address}");
        }
        for address in world.iter().filter(of_family) {
            let seen = pod.call_echo(at(address, 7), "x").unwrap();
            assert_eq!(seen.to_string(), NODE[index], "{address}");
        }
        // The way in is nobody's to change.
        let _inside = EchoServer::start(&pod, family, 8).unwrap();
        let inside = at(&ip(&result, index), 8);
        let seen = site.neighbour.call_echo(inside, "x").unwrap();
        assert_eq!(seen.to_string(), NEIGHBOUR[index]);
    }
}

#[test]
fn what_passes_the_node_without_being_a_pods_is_not_masqueraded() {
    let site = Site::new();
    let far = lab::Node::new("far").unwrap();
    let node = &site.plugin.node;
    node.wire("up1", "198.51.100.1/24", &far, "198.51.100.2/24")
        .unwrap();
    for (place, via) in [(&far, "198.51.100.1"), (&site.neighbour, NODE[0])] {
        place
            .run(["ip", "route", "add", "default", "via", via])
            .unwrap();
    }
    let (_pod, _) = site.plugin.attached("pod", &dual_stack());
    let _server = EchoServer::start(&far, Family::V4, 7).unwrap();
    let seen = site
        .neighbour
        .call_echo(at("198.51.100.2", 7), "x")
        .unwrap();
    assert_eq!(seen.to_string(), "192.0.2.2");
}

/// The elements of a set of the table `inet headcni`, in order.
fn networks(plugin: &PluginNode, set: &str) -> Vec<String> {
    let line = ["nft", "list", "set", "inet", "headcni", set];
    let listed = plugin.node.run(line).unwrap().stdout;
    let elements = listed.split_once("elements = {");
    let elements = elements.and_then(|(_, rest)| rest.split('}').next());
    let elements = elements.unwrap_or_default().split(',');
    elements
        .map(|element| element.trim().to_owned())
        .filter(|element| !element.is_empty())
        .collect()
}

fn named(name: &str, pods: &str, subnet: &str, services: &str) -> Value {
    let conf = with(network(name, subnet), "pod_cidr", json!(pods));
    with(conf, "service_cidr", json!(services))
}

#[rstest]
#[case::apart(
    named("b", "10.8.0.0/16", "10.8.0.0/24", "10.97.0.0/16"),
    &["10.8.0.0", "10.8.255.255", "10.97.0.0", "10.97.255.255"]
)]
#[case::the_same(named("b", "10.9.0.0/16", "10.9.0.0/24", "10.96.0.0/16"), &[])]
#[case::inside(named("b", "10.9.128.0/17", "10.9.128.0/24", "10.96.4.0/24"), &[])]
#[case::around(
    named("b", "10.0.0.0/10", "10.1.0.0/24", "10.96.0.0/12"),
    &["10.0.0.0", "10.63.255.255", "10.111.255.255"]
)]
fn two_networks_end_up_in_one_set(#[case] second: Value, #[case] more: &[&str]) {
    let plugin = plugin_node();
    let first = named("a", "10.9.0.0/16", "10.9.0.0/24", "10.96.0.0/16");
    plugin.succeed("ADD", &first, &plugin.pod("one"));
    plugin.succeed("ADD", &second, &plugin.pod("two"));
    let cluster = networks(&plugin, "cluster4");
    let of_first = ["10.9.0.0", "10.9.255.255", "10.96.0.0", "10.96.255.255"];
    for address in of_first.iter().chain(more) {
        assert!(is_covered(&cluster, address), "{address}: {cluster:?}");
    }
    for outside in ["10.64.0.0", "10.95.255.255", "10.112.0.0", "192.0.2.1"] {
        assert!(!is_covered(&cluster, outside), "{outside}: {cluster:?}");
    }
    // Whoever comes next finds everything there.
    plugin.succeed("ADD", &first, &plugin.pod("three"));
    plugin.succeed("ADD", &second, &plugin.pod("four"));
    assert_eq!(networks(&plugin, "cluster4"), cluster);
}

/// Whether an address is in one of nft's intervals: networks, single addresses, `first-last`.
fn is_covered(intervals: &[String], address: &str) -> bool {
    let number = |text: &str| u32::from(text.parse::<std::net::Ipv4Addr>().unwrap());
    let address = number(address);
    intervals.iter().any(|interval| {
        if let Some((first, last)) = interval.split_once('-') {
            return (number(first)..=number(last)).contains(&address);
        }
        let (net, prefix) = interval.split_once('/').unwrap_or((interval, "32"));
        let size = 1_u64 << (32 - prefix.parse::<u32>().unwrap());
        let first = u64::from(number(net));
        (first..first + size).contains(&u64::from(address))
    })
}
