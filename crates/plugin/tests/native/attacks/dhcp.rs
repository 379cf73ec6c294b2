//! A pod is neither a client nor a server of DHCP.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use lab::frames::{Dhcp, Ipv4};
use rstest::rstest;

use super::attacker::{GATEWAY, Stage};
use crate::connections::udp_socket;
use crate::networks::{dual_stack, plugin_node};

#[rstest]
fn no_datagram_of_dhcp_leaves_a_pod_s_link(#[values(67, 68, 546, 547)] port: u16) {
    let plugin = plugin_node();
    let stage = Stage::new(&plugin, &dual_stack());
    let family = usize::from(port > 500);
    let own = stage.attacker.ips[family];
    let victim = (stage.victim.ips[family], port);
    let many: [IpAddr; 2] = [Ipv4Addr::BROADCAST.into(), relays().into()];
    let node = [GATEWAY[family].parse().unwrap(), many[family]].map(|to| (to, port));
    assert!(!stage.reaches_victim(own, victim));
    assert!(!node.iter().any(|to| stage.reaches_node(own, *to)));
    stage.disarm();
    assert!(stage.reaches_victim(own, victim));
    assert!(stage.reaches_node(own, node[0]));
}

/// All nodes: the node itself is in no group of `DHCPv6`.
fn relays() -> Ipv6Addr {
    Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 0, 1)
}

/// What a server of DHCP on the node gets when a pod looks for one.
fn is_asked(stage: &Stage) -> bool {
    let server = udp_socket(&stage.plugin.node, Ipv4Addr::UNSPECIFIED.into(), 67);
    let message = Dhcp::discover(stage.attacker.mac, 0xfeed);
    let packet = Ipv4::new(Ipv4Addr::UNSPECIFIED, Ipv4Addr::BROADCAST);
    let packet = packet.udp(68, 67, message.bytes());
    stage.send(&stage.broadcast().ipv4(&packet));
    stage.settle();
    server.set_nonblocking(true).unwrap();
    let mut buffer = [0; 1000];
    match server.recv(&mut buffer) {
        Ok(length) => Dhcp::xid_of(&buffer[..length]) == Some(0xfeed),
        Err(_) => false,
    }
}

#[test]
fn a_pod_that_asks_for_an_address_is_not_heard() {
    let plugin = plugin_node();
    let stage = Stage::new(&plugin, &dual_stack());
    assert!(!is_asked(&stage));
    stage.disarm();
    assert!(is_asked(&stage));
}
