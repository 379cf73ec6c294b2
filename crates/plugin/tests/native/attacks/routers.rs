//! Router advertisements: a pod is no router, not even where only IPv4 is used (CVE-2020-10749).

use lab::scenario::PluginNode;
use std::net::Ipv6Addr;
use std::time::Duration;

use lab::frames::{Ethernet, Icmpv6, IpNumber, Ipv6, Mac, RouterAdvertisement};
use lab::{Netns, eventually};
use rstest::rstest;
use serde_json::Value;

use super::attacker::{FORGED, Stage};
use crate::connections::PATIENCE;
use crate::networks::{dual_stack, ipv4, plugin_node};

const ALL_NODES: Ipv6Addr = Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 0, 1);
const ROUTER: Ipv6Addr = Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0, 0, 0xbad);

/// Sends an advertisement as it should be, and one behind a header that some guards don't look
/// behind: <https://www.rfc-editor.org/rfc/rfc7113>
fn advertise(stage: &Stage) {
    const IPPROTO_DSTOPTS: IpNumber = IpNumber(60);
    const HEAD_BYTES: usize = 40;
    // The next header, this one's length less 8, and an option that only pads.
    let options = [IpNumber::IPV6_ICMP.0, 0, 1, 4, 0, 0, 0, 0];
    let about = RouterAdvertisement {
        router_lifetime: Duration::from_mins(10),
        prefix: Some(("2001:db8:bad::".parse().unwrap(), 64)),
        mac: Some(FORGED),
    };
    let head = Ipv6::new(ROUTER, ALL_NODES);
    let plain = head.icmp(Icmpv6::router_advertisement(&about));
    let hidden = [&options, &plain[HEAD_BYTES..]].concat();
    let wire = Ethernet::new(stage.attacker.mac, Mac::of_multicast(ALL_NODES));
    stage.send(&wire.ipv6(&plain));
    stage.send(&wire.ipv6(&head.packet(IPPROTO_DSTOPTS, &hidden)));
    stage.settle();
}

/// What the node has of IPv6, as far as it could come from an advertisement.
fn traces(plugin: &PluginNode) -> Vec<String> {
    let routes = plugin.node.routes().unwrap();
    let addresses = plugin.node.addresses().unwrap();
    let addresses = addresses.into_iter().map(|address| address.cidr);
    let is_trace = |text: &String| text.contains("fe80::bad") || text.contains("2001:db8:bad:");
    routes
        .into_iter()
        .chain(addresses)
        .filter(is_trace)
        .collect()
}

#[track_caller]
fn assert_unharmed(stage: &Stage, with: &str) {
    advertise(stage);
    assert_eq!(traces(stage.plugin), [""; 0], "with {with}");
}

/// Lets the attacker's link do what it may not.
fn open_link(stage: &Stage) {
    let link = &stage.attacker.host_link;
    for (name, value) in [("disable_ipv6", "0"), ("accept_ra", "2")] {
        let name = format!("net.ipv6.conf.{link}.{name}");
        stage.plugin.node.sysctl(&name, value).unwrap();
    }
}

fn delete_rules(stage: &Stage) {
    let line = ["nft", "delete", "table", "inet", "headcni"];
    stage.plugin.node.run(line).unwrap();
}

/// A node whose owner believes in routers, forwarding or not.
fn trusting() -> PluginNode {
    let plugin = plugin_node();
    for conf in ["all", "default"] {
        let name = format!("net.ipv6.conf.{conf}.accept_ra");
        plugin.node.sysctl(&name, "2").unwrap();
    }
    plugin
}

#[rstest]
#[case::ipv4_only(ipv4())]
#[case::dual_stack(dual_stack())]
fn the_node_takes_no_route_or_address_from_a_pod(
    #[case] conf: Value,
    #[values(false, true)] are_rules_first: bool,
) {
    let plugin = trusting();
    let stage = Stage::new(&plugin, &conf);
    assert_unharmed(&stage, "all that there is");
    // Either of the two defences is enough.
    if are_rules_first {
        delete_rules(&stage);
        assert_unharmed(&stage, "the link's settings alone");
        open_link(&stage);
    } else {
        open_link(&stage);
        assert_unharmed(&stage, "the rules alone");
        delete_rules(&stage);
    }
    eventually(PATIENCE, "the node is fooled", || {
        advertise(&stage);
        (traces(&plugin).len() > 2).then_some(())
    })
    .unwrap();
}
