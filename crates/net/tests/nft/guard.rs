//! What must not leave in clear doesn't, and connections know how large a packet may be.

use std::net::{SocketAddr, TcpStream};

use lab::frames::{Direction, Frame, IpNumber};
use lab::{Capture, Netns, Pod};
use net::ruleset::{self, Contents};

use crate::scene::{Place, ip, reaches, serve};

/// A pod of another node, by which packets would leave to the LAN.
const AWAY: [&str; 2] = ["10.244.9.9", "fd00:2::9"];

fn with_routes() -> Place {
    let place = Place::new();
    for line in [
        "route add default via 192.0.2.2",
        "-6 route add default via 2001:db8::2",
    ] {
        ip(&place.node, line).unwrap();
    }
    for address in AWAY {
        ip(
            &place.neighbour,
            &format!("address add {address} dev lo nodad"),
        )
        .unwrap();
    }
    place
}

fn guarded(inside: &[&str]) -> Contents {
    Contents {
        guarded: vec![
            "10.244.0.0/16".parse().unwrap(),
            "fd00::/16".parse().unwrap(),
        ],
        inside: inside.iter().map(|name| (*name).to_owned()).collect(),
        ..Contents::default()
    }
}

/// Pods and node reach each other, whatever is guarded.
#[track_caller]
fn assert_inside_works(place: &Place, pods: &[Pod; 2]) {
    for (own, other, gateway) in [
        ("10.244.1.10", "10.244.1.11", crate::scene::GATEWAY),
        ("fd00:1::a", "fd00:1::b", crate::scene::GATEWAY6),
    ] {
        assert!(reaches(&pods[0], other), "pod to pod {other}");
        assert!(reaches(&pods[0], gateway), "pod to gateway {gateway}");
        assert!(reaches(&place.node, own), "node to pod {own}");
        assert!(reaches(&place.node, gateway), "node to {gateway} on lo");
        assert!(reaches(&place.neighbour, own), "LAN to pod {own}");
    }
}

#[test]
fn a_cluster_destination_leaves_by_nothing_but_what_is_inside() {
    let place = with_routes();
    let pods = [place.pod("a", 10), place.pod("b", 11)];
    for away in AWAY {
        assert!(
            reaches(&pods[0], away) && reaches(&place.node, away),
            "{away}"
        );
    }
    ruleset::set_contents(&place.socket, &guarded(&[])).unwrap();
    for away in AWAY {
        assert!(!reaches(&pods[0], away), "{away} from a pod");
        assert!(!reaches(&place.node, away), "{away} from the node");
    }
    assert_inside_works(&place, &pods);
    assert!(reaches(&pods[0], "192.0.2.2"), "what isn't guarded");
    let chain = ["nft", "list", "chain", "inet", "headcni", "to_pods"];
    let counted = place.node.run(chain).unwrap().stdout;
    assert!(counted.contains("counter packets 4 "), "{counted}");

    ruleset::set_contents(&place.socket, &guarded(&["lan0"])).unwrap();
    for away in AWAY {
        assert!(
            reaches(&pods[0], away) && reaches(&place.node, away),
            "{away}"
        );
    }
    assert_inside_works(&place, &pods);
}

/// The segment size that a SYN to this address announces. One to another may come again.
fn announced(capture: &mut Capture, to: &str) -> u16 {
    let to: SocketAddr = to.parse().unwrap();
    let is_syn = |frame: &Frame| {
        frame.direction() == Direction::In
            && frame.ip_destination() == Some(to.ip())
            && segment_size(frame).is_some()
    };
    let frame = capture.first(lab::DEADLINE, is_syn).unwrap();
    segment_size(&frame).unwrap()
}

/// The first option of a TCP header that opens a connection: Linux says the segment size there.
fn segment_size(frame: &Frame) -> Option<u16> {
    const SYN: u8 = 0x02;
    let header = frame.ip_payload()?.get(..24)?;
    let is_syn = frame.protocol() == Some(IpNumber::TCP) && header[13] & 0x3f == SYN;
    let is_size = header[20..22] == [2, 4];
    (is_syn && is_size).then(|| u16::from_be_bytes([header[22], header[23]]))
}

#[test]
fn connections_of_pods_announce_what_the_way_carries() {
    let place = Place::new();
    let pod = place.pod("a", 10);
    // The pod thinks that more goes than does.
    ip(&place.node, "link set lan0 mtu 1300").unwrap();
    serve(&place.neighbour, "neighbour", 7777);
    let mut capture = Capture::start(&place.neighbour, "lan0").unwrap();
    let connect = |to: &str| {
        pod.enter(|| TcpStream::connect_timeout(&to.parse().unwrap(), lab::DEADLINE))
            .unwrap()
            .unwrap()
    };
    for (to, headers) in [("192.0.2.2:7777", 40), ("[2001:db8::2]:7777", 60)] {
        connect(to);
        assert_eq!(announced(&mut capture, to), 1300 - headers, "{to}");
    }
}
