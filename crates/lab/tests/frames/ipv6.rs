//! Neighbour discovery, and what runs over IPv6.

use std::net::{Ipv6Addr, TcpListener, UdpSocket};
use std::time::Duration;

use lab::frames::{Ethernet, Icmpv6, Ipv6, Mac, RouterAdvertisement};
use lab::{Netns, eventually};

use crate::stage::{ATTACKER6, FORGED, LINK, PATIENCE, Stage, VICTIM6};

const ALL_NODES: Ipv6Addr = Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 0, 1);
/// The link-local address of a router that there is not.
const ROUTER: Ipv6Addr = Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0, 0, 0xbad);
/// The same for the gateway of redirects.
const GATEWAY: Ipv6Addr = Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0, 0, 0xcad);

/// Sends a ping and waits for the answer: then all that was sent before has been dealt with.
fn ping(stage: &Stage) {
    let mut capture = stage.capture();
    let packet = Ipv6::new(ATTACKER6, VICTIM6).icmp(Icmpv6::echo_request(1, 1, b"mark"));
    stage.send(&stage.ethernet().ipv6(&packet));
    let answer = capture.first(PATIENCE, |frame| frame.icmp_type() == Some(129));
    assert_eq!(answer.unwrap().ip_source(), Some(VICTIM6.into()));
}

#[test]
fn an_echo_request_is_answered() {
    ping(&Stage::new());
}

#[test]
fn a_datagram_arrives() {
    let stage = Stage::new();
    let socket = stage.victim.enter(|| UdpSocket::bind((VICTIM6, 5000)));
    let socket = socket.unwrap().unwrap();
    socket.set_read_timeout(Some(PATIENCE)).unwrap();
    let packet = Ipv6::new(ATTACKER6, VICTIM6)
        .hop_limit(3)
        .udp(4000, 5000, b"word");
    stage.send(&stage.ethernet().ipv6(&packet));
    let mut buffer = [0; 100];
    let (length, _) = socket.recv_from(&mut buffer).unwrap();
    assert_eq!(&buffer[..length], b"word");
}

#[test]
fn a_syn_is_answered_by_a_listener() {
    const SYN_AND_ACK: u8 = 0x12;
    let stage = Stage::new();
    let listener = stage.victim.enter(|| TcpListener::bind((VICTIM6, 80)));
    let _listener = listener.unwrap().unwrap();
    let mut capture = stage.capture();
    let packet = Ipv6::new(ATTACKER6, VICTIM6).tcp_syn(4000, 80);
    stage.send(&stage.ethernet().ipv6(&packet));
    let answer = capture.first(PATIENCE, |frame| frame.ports() == Some((80, 4000)));
    assert_eq!(answer.unwrap().ip_payload().unwrap()[13], SYN_AND_ACK);
}

fn advertise(stage: &Stage) {
    let about = RouterAdvertisement {
        router_lifetime: Duration::from_mins(10),
        prefix: Some(("2001:db8:bad::".parse().unwrap(), 64)),
        mac: Some(FORGED),
    };
    let message = Icmpv6::router_advertisement(&about);
    let packet = Ipv6::new(ROUTER, ALL_NODES).icmp(message);
    let wire = Ethernet::new(stage.link.mac(), Mac::of_multicast(ALL_NODES));
    stage.send(&wire.ipv6(&packet));
}

/// Whether the victim has a default route and an address from the advertisement.
fn is_fooled(stage: &Stage) -> (bool, bool) {
    let routes = stage.victim.routes().unwrap();
    let addresses = stage.victim.addresses().unwrap();
    (
        routes
            .iter()
            .any(|route| route.starts_with("default via fe80::bad dev up0 proto ra")),
        addresses
            .iter()
            .any(|address| address.cidr.starts_with("2001:db8:bad:")),
    )
}

#[test]
fn a_router_advertisement_makes_a_route_and_an_address() {
    let stage = Stage::new();
    stage
        .victim
        .sysctl("net.ipv6.conf.up0.accept_ra", "1")
        .unwrap();
    eventually(PATIENCE, "the victim is fooled", || {
        advertise(&stage);
        (is_fooled(&stage) == (true, true)).then_some(())
    })
    .unwrap();
    let known = stage.neighbour("fe80::bad");
    assert!(known.contains(&FORGED.to_string()), "{known}");
}

#[test]
fn a_router_advertisement_does_nothing_to_who_takes_none() {
    let stage = Stage::new();
    stage
        .victim
        .sysctl("net.ipv6.conf.up0.accept_ra", "0")
        .unwrap();
    advertise(&stage);
    ping(&stage);
    assert_eq!(is_fooled(&stage), (false, false));
}

#[test]
fn a_solicitation_is_answered() {
    let stage = Stage::new();
    let mut capture = stage.capture();
    let message = Icmpv6::neighbour_solicitation(VICTIM6, stage.link.mac());
    let packet = Ipv6::new(ATTACKER6, VICTIM6).icmp(message);
    stage.send(&stage.ethernet().ipv6(&packet));
    let answer = capture.first(PATIENCE, |frame| {
        frame.icmp_type() == Some(136) && frame.ip_source() == Some(VICTIM6.into())
    });
    assert_eq!(answer.unwrap().to(), Some(stage.link.mac()));
}

#[test]
fn a_neighbour_advertisement_moves_a_neighbour() {
    let stage = Stage::new();
    stage.victim.ping(&ATTACKER6.to_string()).unwrap();
    let known = stage.neighbour("2001:db8::1");
    assert!(known.contains(&stage.link.mac().to_string()), "{known}");
    let message = Icmpv6::neighbour_advertisement(ATTACKER6, FORGED);
    let packet = Ipv6::new(ATTACKER6, VICTIM6).icmp(message);
    stage.send(&stage.ethernet().ipv6(&packet));
    eventually(PATIENCE, "the victim is fooled", || {
        let known = stage.neighbour("2001:db8::1");
        known.contains(&FORGED.to_string()).then_some(())
    })
    .unwrap();
}

#[test]
fn a_redirect_moves_a_route() {
    let stage = Stage::new();
    let accept = "net.ipv6.conf.up0.accept_redirects";
    stage.victim.sysctl(accept, "1").unwrap();
    let route = ["route", "add", "2001:db8:9::/64", "via", "fe80::bad", "dev"];
    stage.victim.ip(route.iter().chain(&[LINK])).unwrap();
    let far: Ipv6Addr = "2001:db8:9::9".parse().unwrap();
    assert!(stage.route("2001:db8:9::9").contains("via fe80::bad"));
    let sent = Ipv6::new(VICTIM6, far).icmp(Icmpv6::echo_request(1, 1, b"whatever"));
    let message = Icmpv6::redirect(GATEWAY, FORGED, &sent);
    let packet = Ipv6::new(ROUTER, VICTIM6).icmp(message);
    stage.send(&stage.ethernet().ipv6(&packet));
    eventually(PATIENCE, "the route moves", || {
        let route = stage.route("2001:db8:9::9");
        route.contains("via fe80::cad").then_some(())
    })
    .unwrap();
}
