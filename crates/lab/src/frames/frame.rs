//! A frame that was seen on a link, and what it says.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use super::ethernet::EtherType;
use super::mac::Mac;
use super::segment::Protocol;

const ETHERNET_BYTES: usize = 14;

/// Which way a frame passed a link.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Direction {
    /// From the wire into the namespace, to whomever it was addressed.
    In,
    /// From the namespace onto the wire.
    Out,
}

/// A frame. What its bytes are too short for is `None`.
#[derive(Clone, PartialEq, Eq)]
pub struct Frame {
    bytes: Vec<u8>,
    direction: Direction,
}

impl Frame {
    /// A frame with all of its headers.
    pub fn new(bytes: impl Into<Vec<u8>>, direction: Direction) -> Self {
        let bytes = bytes.into();
        Self { bytes, direction }
    }

    /// All of it. Checksums of what the kernel itself sent may be missing: it leaves them to the
    /// hardware, which a veth has none of.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// Which way it went.
    pub fn direction(&self) -> Direction {
        self.direction
    }

    /// To whom it was addressed on the link.
    pub fn to(&self) -> Option<Mac> {
        self.array(0).map(Mac)
    }

    /// Who sent it, as it says.
    pub fn from(&self) -> Option<Mac> {
        self.array(6).map(Mac)
    }

    /// What it carries.
    pub fn ether_type(&self) -> Option<EtherType> {
        let number = u16::from_be_bytes(self.array(12)?);
        Some(EtherType(number))
    }

    /// What follows the Ethernet header.
    pub fn payload(&self) -> &[u8] {
        self.bytes.get(ETHERNET_BYTES..).unwrap_or_default()
    }

    /// The source of the IP packet in it.
    pub fn ip_source(&self) -> Option<IpAddr> {
        match self.ether_type()? {
            EtherType::IPV4 => self.ipv4_at(12),
            EtherType::IPV6 => self.ipv6_at(8),
            _ => None,
        }
    }

    /// The destination of the IP packet in it.
    pub fn ip_destination(&self) -> Option<IpAddr> {
        match self.ether_type()? {
            EtherType::IPV4 => self.ipv4_at(16),
            EtherType::IPV6 => self.ipv6_at(24),
            _ => None,
        }
    }

    /// The protocol in the IP packet; with IPv6, what the first header says.
    pub fn protocol(&self) -> Option<Protocol> {
        let place = match self.ether_type()? {
            EtherType::IPV4 => 9,
            EtherType::IPV6 => 6,
            _ => return None,
        };
        self.payload().get(place).copied().map(Protocol)
    }

    /// What follows the head of the IP packet: a segment of TCP, a message of ICMP. It may have
    /// padding at its end.
    pub fn ip_payload(&self) -> Option<&[u8]> {
        let head_bytes = match self.ether_type()? {
            EtherType::IPV4 => usize::from(self.payload().first()? & 0xf) * 4,
            EtherType::IPV6 => 40,
            _ => return None,
        };
        self.payload().get(head_bytes..)
    }

    /// Source and destination port, if it is UDP or TCP.
    pub fn ports(&self) -> Option<(u16, u16)> {
        if ![Protocol::UDP, Protocol::TCP].contains(&self.protocol()?) {
            return None;
        }
        match *self.ip_payload()? {
            [a, b, c, d, ..] => Some((u16::from_be_bytes([a, b]), u16::from_be_bytes([c, d]))),
            _ => None,
        }
    }

    /// The type of the message, if it is ICMP or `ICMPv6`.
    pub fn icmp_type(&self) -> Option<u8> {
        let is_icmp = [Protocol::ICMP, Protocol::ICMPV6].contains(&self.protocol()?);
        self.ip_payload()?.first().copied().filter(|_| is_icmp)
    }

    /// What is in the UDP datagram.
    pub fn udp_payload(&self) -> Option<&[u8]> {
        let is_udp = self.protocol()? == Protocol::UDP;
        self.ip_payload()?.get(8..).filter(|_| is_udp)
    }

    /// Sender and target of the ARP message in it: who says where who is.
    pub fn arp(&self) -> Option<((Mac, Ipv4Addr), (Mac, Ipv4Addr))> {
        if self.ether_type()? != EtherType::ARP {
            return None;
        }
        let pair = |place: usize| -> Option<(Mac, Ipv4Addr)> {
            let mac = Mac(self.array(ETHERNET_BYTES + place)?);
            let address: [u8; 4] = self.array(ETHERNET_BYTES + place + 6)?;
            Some((mac, address.into()))
        };
        Some((pair(8)?, pair(18)?))
    }

    fn ipv4_at(&self, place: usize) -> Option<IpAddr> {
        let octets = self.array::<4>(ETHERNET_BYTES + place)?;
        Some(Ipv4Addr::from(octets).into())
    }

    fn ipv6_at(&self, place: usize) -> Option<IpAddr> {
        let octets = self.array::<16>(ETHERNET_BYTES + place)?;
        Some(Ipv6Addr::from(octets).into())
    }

    fn array<const N: usize>(&self, place: usize) -> Option<[u8; N]> {
        self.bytes.get(place..place + N)?.try_into().ok()
    }
}

impl fmt::Debug for Frame {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut parts = f.debug_struct("Frame");
        parts.field("direction", &self.direction);
        parts.field("bytes", &self.bytes.len());
        if let (Some(from), Some(to), Some(kind)) = (self.from(), self.to(), self.ether_type()) {
            parts.field("link", &format_args!("{from} -> {to} {:04x}", kind.0));
        }
        if let Some(arp) = self.arp() {
            parts.field("arp", &arp);
        }
        if let (Some(source), Some(destination), Some(protocol)) =
            (self.ip_source(), self.ip_destination(), self.protocol())
        {
            let line = format_args!("{source} -> {destination} protocol {}", protocol.0);
            parts.field("ip", &line);
        }
        if let Some((source, destination)) = self.ports() {
            parts.field("ports", &format_args!("{source} -> {destination}"));
        }
        if let Some(kind) = self.icmp_type() {
            parts.field("icmp", &kind);
        }
        parts.finish()
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Arp, Ethernet, Icmpv6, Ipv4, Ipv6};
    use super::*;

    const LINK: (Mac, Mac) = (Mac([2, 0, 0, 0, 0, 1]), Mac([2, 0, 0, 0, 0, 2]));

    fn seen(bytes: Vec<u8>) -> Frame {
        Frame::new(bytes, Direction::In)
    }

    #[test]
    fn a_datagram_is_read_as_it_was_made() {
        let (source, destination) = ([192, 0, 2, 1].into(), [192, 0, 2, 2].into());
        let packet = Ipv4::new(source, destination).udp(1000, 53, b"word");
        let frame = seen(Ethernet::new(LINK.0, LINK.1).ipv4(&packet));
        assert_eq!((frame.from(), frame.to()), (Some(LINK.0), Some(LINK.1)));
        assert_eq!(frame.ip_source(), Some(source.into()));
        assert_eq!(frame.ip_destination(), Some(destination.into()));
        assert_eq!(frame.ports(), Some((1000, 53)));
        assert_eq!(frame.udp_payload(), Some(&b"word"[..]));
        assert_eq!(frame.icmp_type(), None);
        let tcp = Ipv4::new(source, destination).tcp_syn(1000, 80);
        let tcp = seen(Ethernet::new(LINK.0, LINK.1).ipv4(&tcp));
        assert_eq!((tcp.ports(), tcp.udp_payload()), (Some((1000, 80)), None));
    }

    #[test]
    fn a_ping_of_ipv6_is_read_as_it_was_made() {
        let (source, destination) = ("fd00::1".parse().unwrap(), "fd00::2".parse().unwrap());
        let packet = Ipv6::new(source, destination).icmp(Icmpv6::echo_request(7, 1, b""));
        let frame = seen(Ethernet::new(LINK.0, LINK.1).ipv6(&packet));
        assert_eq!(frame.ip_source(), Some(source.into()));
        assert_eq!(frame.ip_destination(), Some(destination.into()));
        assert_eq!((frame.icmp_type(), frame.ports()), (Some(128), None));
    }

    #[test]
    fn an_arp_message_says_who_is_where() {
        let (one, two) = ([192, 0, 2, 1].into(), [192, 0, 2, 2].into());
        let message = Arp::reply(one, LINK.0, (LINK.1, two));
        let frame = seen(Ethernet::new(LINK.0, LINK.1).arp(&message));
        assert_eq!(frame.arp(), Some(((LINK.0, one), (LINK.1, two))));
        assert_eq!(frame.ip_source(), None);
    }

    #[test]
    fn a_torn_frame_says_nothing_and_does_no_harm() {
        let (source, destination) = ([192, 0, 2, 1].into(), [192, 0, 2, 2].into());
        let packet = Ipv4::new(source, destination).udp(1000, 53, b"word");
        let whole = Ethernet::new(LINK.0, LINK.1).ipv4(&packet);
        for length in 0..whole.len() {
            let frame = seen(whole[..length].to_vec());
            assert!(!format!("{frame:?}").is_empty());
            assert_ne!(frame.udp_payload(), Some(&b"word"[..]));
        }
    }
}
