//! Packets and frames that say they come from somebody else.

use std::net::IpAddr;

use lab::frames::{Ethernet, Ipv4};
use lab::{Capture, Netns};
use rstest::rstest;

use super::attacker::{FORGED, GATEWAY, NODE, PORT, Stage};
use crate::connections::{PATIENCE, udp_socket};
use crate::networks::{dual_stack, plugin_node};

/// As whom an attacker may pose.
#[derive(Clone, Copy, Debug)]
enum Pose {
    Victim,
    Gateway,
    Node,
    /// An address of the pods' network that no pod has.
    Nobody,
    Foreigner,
    Loopback,
    Unspecified,
}

impl Pose {
    fn address(self, stage: &Stage, family: usize) -> IpAddr {
        let texts = match self {
            Self::Victim => return stage.victim.ips[family],
            Self::Gateway => GATEWAY,
            Self::Node => NODE,
            Self::Nobody => ["10.9.0.200", "fd00:9::200"],
            Self::Foreigner => ["198.51.100.77", "2001:db8::77"],
            Self::Loopback => ["127.0.0.1", "::1"],
            Self::Unspecified => ["0.0.0.0", "::"],
        };
        texts[family].parse().unwrap()
    }
}

#[rstest]
#[case::victim(Pose::Victim, &[0, 1])]
#[case::gateway(Pose::Gateway, &[0, 1])]
#[case::node(Pose::Node, &[0, 1])]
#[case::nobody(Pose::Nobody, &[0, 1])]
#[case::foreigner(Pose::Foreigner, &[0, 1])]
// The kernel itself lets no packet from ::1 in, nor forwards one from :: or 0.0.0.0.
#[case::loopback(Pose::Loopback, &[0])]
fn nobody_gets_a_packet_with_a_forged_source(#[case] pose: Pose, #[case] families: &[usize]) {
    let plugin = plugin_node();
    let stage = Stage::new(&plugin, &dual_stack());
    let targets = |family: usize| {
        let gateway: IpAddr = GATEWAY[family].parse().unwrap();
        let all: IpAddr = ["224.0.0.1", "ff02::1"][family].parse().unwrap();
        (
            (stage.victim.ips[family], PORT),
            [(gateway, PORT), (all, PORT)],
        )
    };
    for &family in families {
        let (source, (pod, node)) = (pose.address(&stage, family), targets(family));
        assert!(!stage.reaches_victim(source, pod), "{source} to {pod:?}");
        for to in node {
            assert!(!stage.reaches_node(source, to), "{source} to {to:?}");
        }
    }
    stage.assert_traffic_goes_on();

    stage.disarm();
    for &family in families {
        let (source, (pod, node)) = (pose.address(&stage, family), targets(family));
        assert!(stage.reaches_victim(source, pod), "{source} to {pod:?}");
        for to in node {
            assert!(stage.reaches_node(source, to), "{source} to {to:?}");
        }
    }
}

#[rstest]
#[case("255.255.255.255")]
#[case("224.0.0.1")]
fn a_packet_from_nowhere_reaches_no_listener_of_the_node(#[case] to: &str) {
    let plugin = plugin_node();
    let stage = Stage::new(&plugin, &dual_stack());
    let source = Pose::Unspecified.address(&stage, 0);
    let to = (to.parse().unwrap(), PORT);
    assert!(!stage.reaches_node(source, to));
    stage.disarm();
    assert!(stage.reaches_node(source, to));
}

#[test]
fn a_connection_of_two_pods_survives_a_third_that_poses_as_one_of_them() {
    let plugin = plugin_node();
    let stage = Stage::new(&plugin, &dual_stack());
    let friend = plugin.attached("friend", &dual_stack());
    for family in [0, 1] {
        let own = stage.victim.ips[family];
        let listener = udp_socket(&stage.victim.pod, own, PORT);
        let caller = udp_socket(&friend.0, crate::connections::unspecified(own), 4000);
        let posing = crate::networks::ip(&friend.1, family).parse().unwrap();
        for _ in 0..3 {
            stage.send(&stage.datagram(posing, (own, PORT), b"lie"));
            crate::connections::exchange(&caller, &listener, own).unwrap();
        }
    }
}

#[test]
fn a_forged_link_layer_source_goes_no_further_than_the_attacker_s_link() {
    let plugin = plugin_node();
    let stage = Stage::new(&plugin, &dual_stack());
    let neighbours = || plugin.node.run(["ip", "neighbour"]).unwrap().stdout;
    let before = neighbours();
    let mut capture = Capture::start(&stage.victim.pod, "eth0").unwrap();
    for mac in [FORGED, stage.victim.mac, stage.victim.host_mac] {
        let packet = Ipv4::new(stage.attacker.ipv4(), stage.victim.ipv4()).udp(4000, PORT, b"lie");
        stage.send(&Ethernet::new(mac, stage.attacker.host_mac).ipv4(&packet));
    }
    let truth = (stage.victim.ips[0], PORT);
    stage.send(&stage.datagram(stage.attacker.ips[0], truth, b"truth"));
    let seen = capture.until(PATIENCE, |frame| frame.udp_payload() == Some(b"truth"));
    for frame in seen.unwrap().iter().filter(|frame| frame.ports().is_some()) {
        assert_eq!(frame.from(), Some(stage.victim.host_mac), "{frame:?}");
    }
    assert_eq!(neighbours(), before);
    stage.assert_traffic_goes_on();
}
