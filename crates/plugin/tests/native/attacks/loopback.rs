//! The node's loopback addresses are its own, even where others let them leave it (CVE-2020-8558).

use std::net::{IpAddr, Ipv4Addr, TcpListener};

use lab::frames::Ipv4;
use lab::{Capture, Netns};
use rstest::rstest;
use serde_json::json;

use super::attacker::{PORT, Stage};
use crate::connections::PATIENCE;
use crate::networks::{dual_stack, plugin_node, with};

const LOOPBACK: Ipv4Addr = Ipv4Addr::LOCALHOST;
/// `kube-proxy` sets it to serve node ports on 127.0.0.1.
const ROUTE_LOCALNET: &str = "net.ipv4.conf.all.route_localnet";

/// Whether the attacker gets an answer from a TCP server at `to`.
fn is_answered(stage: &Stage, to: Ipv4Addr, port: u16) -> bool {
    const MARK: u16 = 4242;
    let mut capture = Capture::start(&stage.attacker.pod, "eth0").unwrap();
    let syn = |to: Ipv4Addr, from_port: u16, port: u16| {
        let packet = Ipv4::new(stage.attacker.ipv4(), to).tcp_syn(from_port, port);
        stage.send(&stage.ethernet().ipv4(&packet));
    };
    syn(to, 4000, port);
    // A closed port of the node refuses, which is an answer, too.
    syn(super::attacker::GATEWAY[0].parse().unwrap(), MARK, 1);
    let seen = capture.until(PATIENCE, |frame| frame.ports() == Some((1, MARK)));
    let seen = seen.unwrap();
    seen.iter().any(|frame| frame.ports() == Some((port, 4000)))
}

#[rstest]
#[case::set_before(true)]
#[case::set_after(false)]
fn what_listens_on_the_node_s_loopback_gets_nothing_from_a_pod(#[case] is_set_before: bool) {
    let plugin = plugin_node();
    if is_set_before {
        plugin.node.sysctl(ROUTE_LOCALNET, "1").unwrap();
    }
    let stage = Stage::new(&plugin, &dual_stack());
    plugin.node.sysctl(ROUTE_LOCALNET, "1").unwrap();
    let server = plugin.node.enter(|| TcpListener::bind((LOOPBACK, 80)));
    let _server = server.unwrap().unwrap();
    let to = (IpAddr::from(LOOPBACK), PORT);
    assert!(!stage.reaches_node(stage.attacker.ips[0], to));
    assert!(!is_answered(&stage, LOOPBACK, 80));
    stage.disarm();
    assert!(stage.reaches_node(stage.attacker.ips[0], to));
    assert!(is_answered(&stage, LOOPBACK, 80));
}

#[test]
fn a_port_that_is_published_on_loopback_opens_no_other_one() {
    let plugin = plugin_node();
    let ports = json!({ "portMappings": [
        { "hostPort": 8080, "containerPort": 80, "protocol": "tcp", "hostIP": "127.0.0.1" } ] });
    let publishing = with(dual_stack(), "runtimeConfig", ports);
    let stage = Stage::with_attacker(&plugin, &publishing, &dual_stack());
    let server = plugin.node.enter(|| TcpListener::bind((LOOPBACK, 81)));
    let _server = server.unwrap().unwrap();
    for port in [81, 8080] {
        assert!(!is_answered(&stage, LOOPBACK, port), "port {port}");
    }
    stage.disarm();
    assert!(is_answered(&stage, LOOPBACK, 81));
}
