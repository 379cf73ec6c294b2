//! The first pod makes a router of the node.

use std::time::Duration;

use lab::frames::{Ethernet, Icmpv6, Ipv6, Mac, RouterAdvertisement};
use lab::{Netns, Node, RawLink, eventually};

use super::network;
use crate::host_ports::{Site, UPLINK};
use crate::networks::{dual_stack, ip, ipv4, plugin_node};

fn setting(node: &Node, name: &str) -> String {
    let path = format!("/proc/sys/net/{name}");
    let text = node.run(["cat", &path]).unwrap().stdout;
    text.trim().to_owned()
}

#[test]
fn the_first_pod_switches_forwarding_on_for_its_families() {
    let plugin = plugin_node();
    let families = ["ipv4/ip_forward", "ipv6/conf/all/forwarding"];
    let settings = || families.map(|name| setting(&plugin.node, name));
    for name in families {
        let name = format!("net.{}", name.replace('/', "."));
        plugin.node.sysctl(&name, "0").unwrap();
    }
    plugin.succeed("ADD", &ipv4(), &plugin.pod("one"));
    assert_eq!(settings(), ["1", "0"]);
}

#[test]
fn an_ipv6_pod_after_ipv4_pods_reaches_the_others_too() {
    let plugin = plugin_node();
    plugin
        .node
        .sysctl("net.ipv6.conf.all.forwarding", "0")
        .unwrap();
    plugin.succeed("ADD", &network("old", "10.8.0.0/24"), &plugin.pod("old"));
    let (one, _) = plugin.attached("one", &dual_stack());
    let (_two, second) = plugin.attached("two", &dual_stack());
    one.ping(&ip(&second, 0)).unwrap();
    one.ping(&ip(&second, 1)).unwrap();
}

/// Has the neighbour say that it is a router, for so long.
fn advertise(site: &Site, lifetime: u64) {
    let link = RawLink::open(&site.neighbour, UPLINK).unwrap();
    let all_nodes = "ff02::1".parse().unwrap();
    let about = RouterAdvertisement {
        router_lifetime: Duration::from_secs(lifetime),
        ..RouterAdvertisement::default()
    };
    let packet = Ipv6::new("fe80::1".parse().unwrap(), all_nodes)
        .hop_limit(255)
        .icmp(Icmpv6::router_advertisement(&about));
    let frame = Ethernet::new(link.mac(), Mac::of_multicast(all_nodes)).ipv6(&packet);
    link.send(&frame).unwrap();
}

/// Waits until the node's default route is or isn't there.
fn await_default_route(site: &Site, is_there: bool) {
    eventually(Duration::from_secs(5), "the default route", || {
        let routes = site.plugin.node.routes().unwrap();
        let is_default = |route: &String| route.starts_with("default via fe80::1 ");
        (routes.iter().any(is_default) == is_there).then_some(())
    })
    .unwrap();
}

#[test]
fn a_node_with_a_default_route_from_a_router_keeps_it_and_goes_on_listening() {
    let site = Site::new();
    let node = &site.plugin.node;
    node.sysctl("net.ipv6.conf.all.forwarding", "0").unwrap();
    let accept = format!("ipv6/conf/{UPLINK}/accept_ra");
    assert_eq!(setting(node, &accept), "1");
    node.run([
        "ip", "link", "add", "deaf0", "type", "veth", "peer", "name", "deaf1",
    ])
    .unwrap();
    node.sysctl("net.ipv6.conf.deaf0.accept_ra", "0").unwrap();
    advertise(&site, 1800);
    await_default_route(&site, true);

    site.plugin
        .succeed("ADD", &dual_stack(), &site.plugin.pod("pod"));
    assert_eq!(setting(node, "ipv6/conf/all/forwarding"), "1");
    assert_eq!(setting(node, &accept), "2");
    assert_eq!(setting(node, "ipv6/conf/deaf0/accept_ra"), "0");
    await_default_route(&site, true);
    // The router retires, and another word of it makes it one again.
    advertise(&site, 0);
    await_default_route(&site, false);
    advertise(&site, 1800);
    await_default_route(&site, true);
}
