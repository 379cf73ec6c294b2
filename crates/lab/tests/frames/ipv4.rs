//! ARP, and what runs over IPv4.

use std::net::{IpAddr, Ipv4Addr, TcpListener, UdpSocket};

use lab::frames::{Arp, Ethernet, Icmp, Ipv4, Mac};
use lab::{Netns, eventually};

use crate::stage::{ATTACKER, FORGED, LINK, PATIENCE, Stage, VICTIM};

/// An address of the wire that nobody has.
const ABSENT: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 77);

#[test]
fn an_echo_request_is_answered() {
    let stage = Stage::new();
    let mut capture = stage.capture();
    let packet = Ipv4::new(ATTACKER, VICTIM).icmp(Icmp::echo_request(0x1234, 5, b"hello"));
    stage.send(&stage.ethernet().ipv4(&packet));
    let answer = capture.first(PATIENCE, |frame| frame.icmp_type() == Some(0));
    let answer = answer.unwrap();
    assert_eq!(answer.ip_source(), Some(VICTIM.into()));
    assert!(
        answer
            .ip_payload()
            .unwrap()
            .ends_with(b"\x12\x34\x00\x05hello")
    );
}

#[test]
fn a_forged_source_is_answered_where_it_says() {
    let stage = Stage::new();
    let mut capture = stage.capture();
    let packet = Ipv4::new(ABSENT, VICTIM).icmp(Icmp::echo_request(1, 1, b""));
    stage.send(&stage.ethernet().ipv4(&packet));
    // The victim looks for the one whom it believes to have asked.
    let question = capture.first(PATIENCE, |frame| frame.arp().is_some());
    let (sender, wanted) = question.unwrap().arp().unwrap();
    assert_eq!(sender, (stage.victim_mac(), VICTIM));
    assert_eq!(wanted.1, ABSENT);
}

#[test]
fn a_router_counts_the_hops() {
    let stage = Stage::new();
    stage.victim.sysctl("net.ipv4.ip_forward", "1").unwrap();
    let mut capture = stage.capture();
    let far = Ipv4Addr::new(198, 51, 100, 1);
    let packet = Ipv4::new(ATTACKER, far).ttl(1).udp(1000, 1000, b"");
    stage
        .victim
        .run(["ip", "route", "add", "198.51.100.0/24", "dev", LINK])
        .unwrap();
    stage.send(&stage.ethernet().ipv4(&packet));
    // ICMP_TIME_EXCEEDED
    capture
        .first(PATIENCE, |frame| frame.icmp_type() == Some(11))
        .unwrap();
}

#[test]
fn a_datagram_arrives_unless_its_checksum_is_wrong() {
    let stage = Stage::new();
    let socket = stage.victim.enter(|| UdpSocket::bind((VICTIM, 5000)));
    let socket = socket.unwrap().unwrap();
    socket.set_read_timeout(Some(PATIENCE)).unwrap();
    for (word, spoilt) in [(b"bad", true), (b"yes", false)] {
        let mut frame = stage
            .ethernet()
            .ipv4(&Ipv4::new(ATTACKER, VICTIM).udp(4000, 5000, word));
        if spoilt {
            *frame.last_mut().unwrap() ^= 1;
        }
        stage.send(&frame);
    }
    let mut buffer = [0; 100];
    let (length, from) = socket.recv_from(&mut buffer).unwrap();
    assert_eq!(&buffer[..length], b"yes");
    assert_eq!((from.ip(), from.port()), (IpAddr::V4(ATTACKER), 4000));
}

#[test]
fn a_syn_is_answered_by_a_listener() {
    const SYN_AND_ACK: u8 = 0x12;
    let stage = Stage::new();
    let listener = stage.victim.enter(|| TcpListener::bind((VICTIM, 80)));
    let _listener = listener.unwrap().unwrap();
    let mut capture = stage.capture();
    let packet = Ipv4::new(ATTACKER, VICTIM).tcp_syn(4000, 80);
    stage.send(&stage.ethernet().ipv4(&packet));
    let answer = capture.first(PATIENCE, |frame| frame.ports() == Some((80, 4000)));
    assert_eq!(answer.unwrap().ip_payload().unwrap()[13], SYN_AND_ACK);
}

#[test]
fn an_arp_request_is_answered() {
    let stage = Stage::new();
    let mut capture = stage.capture();
    let message = Arp::request((stage.link.mac(), ATTACKER), VICTIM);
    stage.send(&Ethernet::new(stage.link.mac(), Mac::BROADCAST).arp(&message));
    let is_answer = |sender| {
        move |frame: &lab::frames::Frame| frame.arp().is_some_and(|(from, _)| from == sender)
    };
    let answer = capture.first(PATIENCE, is_answer((stage.victim_mac(), VICTIM)));
    assert_eq!(answer.unwrap().to(), Some(stage.link.mac()));
}

/// Sends a message until the victim believes it.
fn poison(message: impl Fn(&Stage) -> Vec<u8>) {
    let stage = Stage::new();
    stage.victim.ping(&ATTACKER.to_string()).unwrap();
    let known = stage.neighbour("192.0.2.1");
    assert!(known.contains(&stage.link.mac().to_string()), "{known}");
    // An entry is fixed for a second after each change.
    eventually(PATIENCE, "the victim is fooled", || {
        stage.send(&message(&stage));
        let known = stage.neighbour("192.0.2.1");
        known.contains(&FORGED.to_string()).then_some(())
    })
    .unwrap();
}

#[test]
fn an_arp_reply_moves_a_neighbour() {
    poison(|stage| {
        let message = Arp::reply(ATTACKER, FORGED, (stage.victim_mac(), VICTIM));
        stage.ethernet().arp(&message)
    });
}

#[test]
fn a_gratuitous_arp_moves_a_neighbour() {
    poison(|stage| {
        let message = Arp::gratuitous(ATTACKER, FORGED);
        Ethernet::new(stage.link.mac(), Mac::BROADCAST).arp(&message)
    });
}

#[test]
fn a_redirect_moves_a_route() {
    let stage = Stage::new();
    for (name, value) in [("accept_redirects", "1"), ("secure_redirects", "0")] {
        for link in ["all", LINK] {
            let name = format!("net.ipv4.conf.{link}.{name}");
            stage.victim.sysctl(&name, value).unwrap();
        }
    }
    let setup: [&[&str]; 2] = [
        &["route", "add", "198.51.100.0/24", "via", "192.0.2.1"],
        // The kernel believes only in gateways that answer.
        &[
            "neighbour",
            "add",
            "192.0.2.77",
            "lladdr",
            "02:00:00:ba:d0:01",
            "dev",
            LINK,
        ],
    ];
    for line in setup {
        stage.victim.ip(line).unwrap();
    }
    assert!(stage.route("198.51.100.9").contains("via 192.0.2.1"));
    let far = Ipv4Addr::new(198, 51, 100, 9);
    // The kernel asks the sender's protocol whether it is true; only that of echo replies takes
    // it on trust.
    let sent = Ipv4::new(VICTIM, far).icmp(Icmp::echo_reply(1, 1, b""));
    let packet = Ipv4::new(ATTACKER, VICTIM).icmp(Icmp::redirect(ABSENT, &sent));
    stage.send(&stage.ethernet().ipv4(&packet));
    eventually(PATIENCE, "the route moves", || {
        let route = stage.route("198.51.100.9");
        route.contains("via 192.0.2.77").then_some(())
    })
    .unwrap();
}
