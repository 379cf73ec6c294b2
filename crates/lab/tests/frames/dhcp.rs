//! DHCP with busybox as server.

use std::net::Ipv4Addr;

use lab::frames::{Dhcp, Ethernet, Ipv4, Mac};
use lab::{Netns, Running};

use crate::wire::{TIMEOUT, VICTIM, Wire};

const OFFERED: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 99);

#[test]
fn a_discover_gets_an_offer() {
    let wire = Wire::new();
    let conf = "interface up0\nstart 192.0.2.99\nend 192.0.2.99\nlease_file /run/leases\n\
                pidfile /run/udhcpd.pid\n";
    wire.victim.write("/run/udhcpd.conf", conf).unwrap();
    wire.victim.write("/run/leases", "").unwrap();
    let mut command = wire.victim.command("busybox");
    command.args(["udhcpd", "-f", "-I", "192.0.2.2", "/run/udhcpd.conf"]);
    let _server = Running::spawn(&mut command, b"").unwrap();
    let mut capture = wire.capture();
    let message = Dhcp::discover(wire.link.mac(), 0xfeed);
    let packet = Ipv4::new(Ipv4Addr::UNSPECIFIED, Ipv4Addr::BROADCAST);
    let packet = packet.udp(68, 67, message.bytes());
    let discover = Ethernet::new(wire.link.mac(), Mac::BROADCAST).ipv4(&packet);
    let offer = lab::eventually(TIMEOUT, "the server sends an offer", || {
        wire.send(&discover);
        // The server first probes whether the address is in use.
        let is_offer = |frame: &lab::frames::Frame| frame.ports() == Some((67, 68));
        capture.first(TIMEOUT / 10, is_offer).ok()
    });
    let offer = offer.unwrap();
    assert_eq!(offer.ip_source(), Some(VICTIM.into()));
    let offer = offer.udp_payload().unwrap();
    assert_eq!(Dhcp::xid_of(offer), Some(0xfeed));
    assert_eq!(offer[16..20], OFFERED.octets());
}
