//! The outermost header.

use super::arp::Arp;
use super::mac::Mac;

/// What a frame carries.
///
/// <https://www.iana.org/assignments/ieee-802-numbers>
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct EtherType(pub u16);

impl EtherType {
    /// `ETH_P_IP`
    pub const IPV4: Self = Self(0x0800);
    /// `ETH_P_ARP`
    pub const ARP: Self = Self(0x0806);
    /// `ETH_P_IPV6`
    pub const IPV6: Self = Self(0x86dd);
}

/// From whom to whom a frame goes on the link.
#[derive(Debug, Clone, Copy)]
pub struct Ethernet {
    from: Mac,
    to: Mac,
}

impl Ethernet {
    /// From one link to another. Nothing keeps the sender from claiming somebody else's address.
    pub fn new(from: Mac, to: Mac) -> Self {
        Self { from, to }
    }

    /// A frame with an IPv4 packet, made by [`Ipv4`](super::Ipv4).
    pub fn ipv4(&self, packet: &[u8]) -> Vec<u8> {
        self.frame(EtherType::IPV4, packet)
    }

    /// A frame with an IPv6 packet, made by [`Ipv6`](super::Ipv6).
    pub fn ipv6(&self, packet: &[u8]) -> Vec<u8> {
        self.frame(EtherType::IPV6, packet)
    }

    /// A frame with a message of ARP.
    pub fn arp(&self, message: &Arp) -> Vec<u8> {
        self.frame(EtherType::ARP, &message.bytes())
    }

    /// A frame with whatever else.
    pub fn frame(&self, kind: EtherType, payload: &[u8]) -> Vec<u8> {
        [&self.to.0, &self.from.0, &kind.0.to_be_bytes()[..], payload].concat()
    }
}
