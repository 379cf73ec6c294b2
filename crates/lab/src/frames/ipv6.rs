//! IPv6 packets.
//!
//! <https://www.rfc-editor.org/rfc/rfc8200>

use std::net::Ipv6Addr;

use super::icmpv6::Icmpv6;
use super::segment::{self, Protocol, length16};

/// The head of a packet, without extensions.
#[derive(Debug, Clone, Copy)]
pub struct Ipv6 {
    source: Ipv6Addr,
    destination: Ipv6Addr,
    hop_limit: u8,
}

impl Ipv6 {
    /// From any address to any address.
    ///
    /// Its hop limit is 255, without which nobody believes a message of neighbour discovery.
    pub fn new(source: Ipv6Addr, destination: Ipv6Addr) -> Self {
        Self {
            source,
            destination,
            hop_limit: 255,
        }
    }

    /// How many routers it may pass.
    #[must_use]
    pub fn hop_limit(mut self, hop_limit: u8) -> Self {
        self.hop_limit = hop_limit;
        self
    }

    /// A packet with a UDP datagram.
    pub fn udp(&self, source: u16, destination: u16, payload: &[u8]) -> Vec<u8> {
        let datagram = segment::udp(source, destination, payload);
        self.sealed(Protocol::UDP, datagram)
    }

    /// A packet that asks for a TCP connection.
    pub fn tcp_syn(&self, source: u16, destination: u16) -> Vec<u8> {
        self.sealed(Protocol::TCP, segment::tcp_syn(source, destination))
    }

    /// A packet with a message of `ICMPv6`.
    pub fn icmp(&self, message: Icmpv6) -> Vec<u8> {
        self.sealed(Protocol::ICMPV6, message.into_bytes())
    }

    /// A packet with whatever else: only its head is made here.
    ///
    /// # Panics
    ///
    /// If it would be longer than a packet can be.
    pub fn packet(&self, protocol: Protocol, payload: &[u8]) -> Vec<u8> {
        const VERSION: u8 = 6 << 4;
        let mut packet = vec![VERSION, 0, 0, 0];
        packet.extend(length16(payload.len()));
        packet.extend([protocol.0, self.hop_limit]);
        packet.extend(self.source.octets());
        packet.extend(self.destination.octets());
        packet.extend(payload);
        packet
    }

    fn sealed(&self, protocol: Protocol, mut segment: Vec<u8>) -> Vec<u8> {
        let mut pseudo = [self.source.octets(), self.destination.octets()].concat();
        pseudo.extend([0, 0]);
        pseudo.extend(length16(segment.len()));
        pseudo.extend([0, 0, 0, protocol.0]);
        segment::seal(protocol, &pseudo, &mut segment);
        self.packet(protocol, &segment)
    }
}
