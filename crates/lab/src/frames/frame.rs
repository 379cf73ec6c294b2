//! A captured frame.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr};

use etherparse::{EtherType, IpNumber, LaxNetSlice, LaxSlicedPacket, TransportSlice};

use super::mac::Mac;

const ETHERNET_BYTES: usize = 14;

/// Relative to the namespace of the link.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Direction {
    In,
    Out,
}

/// A frame. A field is `None` where the bytes are too short for it.
#[derive(Clone, PartialEq, Eq)]
pub struct Frame {
    bytes: Vec<u8>,
    direction: Direction,
}

impl Frame {
    pub fn new(bytes: impl Into<Vec<u8>>, direction: Direction) -> Self {
        let bytes = bytes.into();
        Self { bytes, direction }
    }

    /// Checksums of what the local kernel sent may be missing: it leaves them to the hardware.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    pub fn direction(&self) -> Direction {
        self.direction
    }

    pub fn to(&self) -> Option<Mac> {
        self.bytes.first_chunk().copied().map(Mac)
    }

    pub fn from(&self) -> Option<Mac> {
        self.bytes.get(6..)?.first_chunk().copied().map(Mac)
    }

    pub fn ether_type(&self) -> Option<EtherType> {
        let number = self.bytes.get(12..)?.first_chunk()?;
        Some(EtherType(u16::from_be_bytes(*number)))
    }

    pub fn payload(&self) -> &[u8] {
        self.bytes.get(ETHERNET_BYTES..).unwrap_or_default()
    }

    pub fn ip_source(&self) -> Option<IpAddr> {
        match self.slices()?.net? {
            LaxNetSlice::Ipv4(ip) => Some(ip.header().source_addr().into()),
            LaxNetSlice::Ipv6(ip) => Some(ip.header().source_addr().into()),
            LaxNetSlice::Arp(_) => None,
        }
    }

    pub fn ip_destination(&self) -> Option<IpAddr> {
        match self.slices()?.net? {
            LaxNetSlice::Ipv4(ip) => Some(ip.header().destination_addr().into()),
            LaxNetSlice::Ipv6(ip) => Some(ip.header().destination_addr().into()),
            LaxNetSlice::Arp(_) => None,
        }
    }

    /// The protocol after IPv6 extension headers.
    pub fn protocol(&self) -> Option<IpNumber> {
        Some(self.slices()?.ip_payload()?.ip_number)
    }

    /// A TCP segment or an ICMP message, maybe with padding.
    pub fn ip_payload(&self) -> Option<&[u8]> {
        Some(self.slices()?.ip_payload()?.payload)
    }

    /// Source and destination port of TCP or UDP.
    pub fn ports(&self) -> Option<(u16, u16)> {
        match self.slices()?.transport? {
            TransportSlice::Udp(udp) => Some((udp.source_port(), udp.destination_port())),
            TransportSlice::Tcp(tcp) => Some((tcp.source_port(), tcp.destination_port())),
            _ => None,
        }
    }

    /// The type of an ICMP or ICMPv6 message.
    pub fn icmp_type(&self) -> Option<u8> {
        match self.slices()?.transport? {
            TransportSlice::Icmpv4(icmp) => Some(icmp.type_u8()),
            TransportSlice::Icmpv6(icmp) => Some(icmp.type_u8()),
            _ => None,
        }
    }

    pub fn udp_payload(&self) -> Option<&[u8]> {
        match self.slices()?.transport? {
            TransportSlice::Udp(udp) => Some(udp.payload()),
            _ => None,
        }
    }

    /// Sender and target of an ARP message.
    pub fn arp(&self) -> Option<((Mac, Ipv4Addr), (Mac, Ipv4Addr))> {
        let LaxNetSlice::Arp(arp) = self.slices()?.net? else {
            return None;
        };
        let pair = |mac: &[u8], ip: &[u8]| {
            let ip: [u8; 4] = ip.try_into().ok()?;
            Some((Mac(mac.try_into().ok()?), ip.into()))
        };
        let sender = pair(arp.sender_hw_addr(), arp.sender_protocol_addr())?;
        let target = pair(arp.target_hw_addr(), arp.target_protocol_addr())?;
        Some((sender, target))
    }

    fn slices(&self) -> Option<LaxSlicedPacket<'_>> {
        LaxSlicedPacket::from_ethernet(&self.bytes).ok()
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
    use super::super::{Ethernet, Ipv4};
    use super::*;

    #[test]
    fn a_truncated_frame_has_no_fields_and_does_not_panic() {
        let (source, destination) = ([192, 0, 2, 1].into(), [192, 0, 2, 2].into());
        let packet = Ipv4::new(source, destination).udp(1000, 53, b"data");
        let whole = Ethernet::new(Mac([2; 6]), Mac([4; 6])).ipv4(&packet);
        let frame = Frame::new(whole.clone(), Direction::In);
        assert_eq!(frame.udp_payload(), Some(&b"data"[..]));
        for length in 0..whole.len() {
            let frame = Frame::new(&whole[..length], Direction::In);
            assert!(!format!("{frame:?}").is_empty());
            assert_ne!(frame.udp_payload(), Some(&b"data"[..]));
        }
    }
}
