//! Mesh-only destinations are never reached in clear, and the MSS is clamped to the path.

use std::net::{SocketAddr, TcpStream};

use lab::frames::{Direction, Frame, IpNumber};
use lab::{Capture, Netns, Pod};
use ruleset::Contents;

use crate::harness::{Testbed, ip, reaches, serve};

/// Addresses of a pod on another node, which the default route reaches by the LAN.
const REMOTE: [&str; 2] = ["10.244.9.9", "fd00:2::9"];

fn with_routes() -> Testbed {
    let testbed = Testbed::new();
    for line in [
        "route add default via 192.0.2.2",
        "-6 route add default via 2001:db8::2",
    ] {
        ip(&testbed.node, line).unwrap();
    }
    for address in REMOTE {
        ip(
            &testbed.neighbour,
            &format!("address add {address} dev lo nodad"),
        )
        .unwrap();
    }
    testbed
}

fn contents(mesh_ifaces: &[&str]) -> Contents {
    Contents {
        mesh_only: vec![
            "10.244.0.0/16".parse().unwrap(),
            "fd00::/16".parse().unwrap(),
        ],
        mesh_ifaces: mesh_ifaces.iter().map(|name| (*name).to_owned()).collect(),
        ..Contents::default()
    }
}

/// Pods and node reach each other in any case.
#[track_caller]
fn assert_node_works(testbed: &Testbed, pods: &[Pod; 2]) {
    for (own, other, gateway) in [
        ("10.244.1.10", "10.244.1.11", crate::harness::GATEWAY),
        ("fd00:1::a", "fd00:1::b", crate::harness::GATEWAY6),
    ] {
        assert!(reaches(&pods[0], other), "pod to pod {other}");
        assert!(reaches(&pods[0], gateway), "pod to gateway {gateway}");
        assert!(reaches(&testbed.node, own), "node to pod {own}");
        assert!(reaches(&testbed.node, gateway), "node to {gateway} on lo");
        assert!(reaches(&testbed.neighbour, own), "LAN to pod {own}");
    }
}

#[test]
fn mesh_only_destinations_are_reached_only_by_mesh_ifaces() {
    let testbed = with_routes();
    let pods = [testbed.pod("a", 10), testbed.pod("b", 11)];
    for remote in REMOTE {
        assert!(
            reaches(&pods[0], remote) && reaches(&testbed.node, remote),
            "{remote}"
        );
    }
    ruleset::set_contents(&testbed.socket, &contents(&[])).unwrap();
    for remote in REMOTE {
        assert!(!reaches(&pods[0], remote), "{remote} from a pod");
        assert!(!reaches(&testbed.node, remote), "{remote} from the node");
    }
    assert_node_works(&testbed, &pods);
    assert!(reaches(&pods[0], "192.0.2.2"), "other destinations");
    let chain = ["nft", "list", "chain", "inet", "headcni", "to_pods"];
    let counted = testbed.node.run(chain).unwrap().stdout;
    assert!(counted.contains("counter packets 4 "), "{counted}");

    ruleset::set_contents(&testbed.socket, &contents(&["lan0"])).unwrap();
    for remote in REMOTE {
        assert!(
            reaches(&pods[0], remote) && reaches(&testbed.node, remote),
            "{remote}"
        );
    }
    assert_node_works(&testbed, &pods);
}

/// The MSS of the next SYN to this address.
fn syn_mss(capture: &mut Capture, to: &str) -> u16 {
    let to: SocketAddr = to.parse().unwrap();
    let is_syn = |frame: &Frame| {
        frame.direction() == Direction::In
            && frame.ip_destination() == Some(to.ip())
            && mss(frame).is_some()
    };
    let frame = capture.first(lab::DEADLINE, is_syn).unwrap();
    mss(&frame).unwrap()
}

/// The MSS of a SYN. Linux puts it in the first option.
fn mss(frame: &Frame) -> Option<u16> {
    const SYN: u8 = 0x02;
    let header = frame.ip_payload()?.get(..24)?;
    let is_syn = frame.protocol() == Some(IpNumber::TCP) && header[13] & 0x3f == SYN;
    let is_size = header[20..22] == [2, 4];
    (is_syn && is_size).then(|| u16::from_be_bytes([header[22], header[23]]))
}

#[test]
fn the_mss_of_pods_is_clamped_to_the_path_mtu() {
    let testbed = Testbed::new();
    let pod = testbed.pod("a", 10);
    // The MTU of the pod is larger.
    ip(&testbed.node, "link set lan0 mtu 1300").unwrap();
    serve(&testbed.neighbour, "neighbour", 7777);
    let mut capture = Capture::start(&testbed.neighbour, "lan0").unwrap();
    let connect = |to: &str| {
        pod.enter(|| TcpStream::connect_timeout(&to.parse().unwrap(), lab::DEADLINE))
            .unwrap()
            .unwrap()
    };
    for (to, headers) in [("192.0.2.2:7777", 40), ("[2001:db8::2]:7777", 60)] {
        connect(to);
        assert_eq!(syn_mss(&mut capture, to), 1300 - headers, "{to}");
    }
}
