//! IPv4 packets.
//!
//! <https://www.rfc-editor.org/rfc/rfc791>

use std::net::Ipv4Addr;

use super::icmp::Icmp;
use super::segment::{self, Protocol, checksum, length16};

/// The head of a packet, without options and never fragmented.
#[derive(Debug, Clone, Copy)]
pub struct Ipv4 {
    source: Ipv4Addr,
    destination: Ipv4Addr,
    ttl: u8,
}

impl Ipv4 {
    /// From any address to any address.
    pub fn new(source: Ipv4Addr, destination: Ipv4Addr) -> Self {
        Self {
            source,
            destination,
            ttl: 64,
        }
    }

    /// How many routers it may pass; 64 unless told.
    #[must_use]
    pub fn ttl(mut self, ttl: u8) -> Self {
        self.ttl = ttl;
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

    /// A packet with a message of ICMP.
    pub fn icmp(&self, message: Icmp) -> Vec<u8> {
        let mut message = message.into_bytes();
        segment::seal(Protocol::ICMP, &[], &mut message);
        self.packet(Protocol::ICMP, &message)
    }

    /// A packet with whatever else: only its head is made here.
    ///
    /// # Panics
    ///
    /// If it would be longer than a packet can be.
    pub fn packet(&self, protocol: Protocol, payload: &[u8]) -> Vec<u8> {
        const HEADER_BYTES: usize = 20;
        const VERSION_AND_WORDS: u8 = 4 << 4 | 5;
        const DONT_FRAGMENT: u8 = 0x40;
        let mut header = vec![VERSION_AND_WORDS, 0];
        header.extend(length16(HEADER_BYTES + payload.len()));
        header.extend([0, 0, DONT_FRAGMENT, 0, self.ttl, protocol.0, 0, 0]);
        header.extend(self.source.octets());
        header.extend(self.destination.octets());
        let sum = checksum(&[&header]);
        header[10..12].copy_from_slice(&sum);
        header.extend(payload);
        header
    }

    fn sealed(&self, protocol: Protocol, mut segment: Vec<u8>) -> Vec<u8> {
        let mut pseudo = [self.source.octets(), self.destination.octets()].concat();
        pseudo.extend([0, protocol.0]);
        pseudo.extend(length16(segment.len()));
        segment::seal(protocol, &pseudo, &mut segment);
        self.packet(protocol, &segment)
    }
}
