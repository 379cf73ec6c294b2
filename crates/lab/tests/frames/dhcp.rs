//! DHCP, with busybox on the other side.

use std::net::Ipv4Addr;

use lab::frames::{Dhcp, Ethernet, Ipv4, Mac};
use lab::{Netns, Running};

use crate::stage::{ATTACKER, LINK, PATIENCE, Stage, VICTIM};

const OFFERED: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 99);

#[test]
fn a_discover_gets_an_offer() {
    let stage = Stage::new();
    let conf = "interface up0\nstart 192.0.2.99\nend 192.0.2.99\nlease_file /run/leases\n\
                pidfile /run/udhcpd.pid\n";
    stage.victim.write("/run/udhcpd.conf", conf).unwrap();
    stage.victim.write("/run/leases", "").unwrap();
    let mut command = stage.victim.command("busybox");
    command.args(["udhcpd", "-f", "-I", "192.0.2.2", "/run/udhcpd.conf"]);
    let _server = Running::spawn(&mut command, b"").unwrap();
    let mut capture = stage.capture();
    let message = Dhcp::discover(stage.link.mac(), 0xfeed);
    let packet = Ipv4::new(Ipv4Addr::UNSPECIFIED, Ipv4Addr::BROADCAST);
    let packet = packet.udp(68, 67, message.bytes());
    let discover = Ethernet::new(stage.link.mac(), Mac::BROADCAST).ipv4(&packet);
    let offer = lab::eventually(PATIENCE, "the server offers", || {
        stage.send(&discover);
        // It first asks whether somebody has the address.
        let is_offer = |frame: &lab::frames::Frame| frame.ports() == Some((67, 68));
        capture.first(PATIENCE / 10, is_offer).ok()
    });
    let offer = offer.unwrap();
    assert_eq!(offer.ip_source(), Some(VICTIM.into()));
    let offer = offer.udp_payload().unwrap();
    assert_eq!(Dhcp::xid_of(offer), Some(0xfeed));
    assert_eq!(offer[16..20], OFFERED.octets());
}

#[test]
fn an_offer_is_taken() {
    let stage = Stage::new();
    let mut capture = stage.capture();
    let mut command = stage.victim.command("busybox");
    command.args(["udhcpc", "-f", "-i", LINK, "-s", "/bin/true"]);
    let _client = Running::spawn(&mut command, b"").unwrap();
    let is_client = |frame: &lab::frames::Frame| frame.ports() == Some((68, 67));
    let discover = capture.first(PATIENCE, is_client).unwrap();
    let xid = Dhcp::xid_of(discover.udp_payload().unwrap()).unwrap();
    let message = Dhcp::offer(stage.victim_mac(), xid, OFFERED, ATTACKER);
    let packet = Ipv4::new(ATTACKER, OFFERED).udp(67, 68, message.bytes());
    stage.send(&stage.ethernet().ipv4(&packet));
    // DHCP option 50, the address that it requests, comes only with what was offered.
    let requested = [&[50, 4], &OFFERED.octets()[..]].concat();
    capture
        .first(PATIENCE, |frame| {
            is_client(frame) && frame.bytes().windows(6).any(|part| part == requested)
        })
        .unwrap();
}
