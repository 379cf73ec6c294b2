//! What a pod says to everybody is heard by its node alone.

use std::net::IpAddr;

use lab::{Capture, Node, RawLink};
use rstest::rstest;

use super::attacker::{PORT, Stage};
use crate::connections::PATIENCE;
use crate::networks::{dual_stack, plugin_node};

#[rstest]
#[case::everybody("255.255.255.255", PORT)]
#[case::subnet("10.9.0.255", PORT)]
#[case::all_systems("224.0.0.1", PORT)]
#[case::names("224.0.0.251", 5353)]
#[case::services("239.255.255.250", 1900)]
#[case::all_nodes6("ff02::1", PORT)]
#[case::names6("ff02::fb", 5353)]
#[case::site6("ff05::c", 1900)]
#[case::global6("ff0e::1234", PORT)]
fn what_is_said_to_many_reaches_no_other_pod(#[case] to: &str, #[case] port: u16) {
    let plugin = plugin_node();
    let stage = Stage::new(&plugin, &dual_stack());
    let to: IpAddr = to.parse().unwrap();
    let own = stage.attacker.ips[usize::from(to.is_ipv6())];
    assert!(!stage.reaches_victim(own, (to, port)));
    // Where two share a wire, it does.
    let (one, two) = (Node::new("one").unwrap(), Node::new("two").unwrap());
    one.wire("up0", "192.0.2.1/24", &two, "192.0.2.2/24")
        .unwrap();
    let mut capture = Capture::start(&two, "up0").unwrap();
    let link = RawLink::open(&one, "up0").unwrap();
    link.send(&stage.datagram(own, (to, port), b"lie")).unwrap();
    let seen = capture.first(PATIENCE, |frame| frame.udp_payload() == Some(b"lie"));
    assert_eq!(seen.unwrap().ip_destination(), Some(to));
}
