//! Ethernet frames for tests that attack, built and parsed by `etherparse`.
//!
//! Lengths, checksums and hop limits are right, so a frame that is dropped was dropped for the one thing
//! that is wrong with it, such as its source. Build a frame from the inside out and send it with
//! [`RawLink`](crate::RawLink):
//!
//! ```no_run
//! use lab::frames::{Ethernet, Icmp, Ipv4};
//! use lab::{Capture, Netns, RawLink};
//! use std::time::Duration;
//!
//! # let node = lab::Node::new("n1")?;
//! # let pod = node.pod("p1")?;
//! let link = RawLink::open(&pod, "eth0")?;
//! let mut capture = Capture::start(&node, "cni0")?;
//! let (forged, gateway) = ([10, 0, 0, 99].into(), [10, 0, 0, 1].into());
//! let packet = Ipv4::new(forged, gateway).icmp(Icmp::echo_request(1, 1, b"hello"));
//! link.send(&Ethernet::new(link.mac(), "02:00:00:00:00:01".parse()?).ipv4(&packet))?;
//! capture.first(Duration::from_secs(5), |frame| frame.ip_source() == Some(forged.into()))?;
//! # anyhow::Ok(())
//! ```

mod dhcp;
mod frame;
mod mac;
mod ndp;

use std::net::{Ipv4Addr, Ipv6Addr};

use etherparse::icmpv4::{RedirectCode, RedirectHeader};
use etherparse::{
    ArpHardwareId, ArpOperation, ArpPacket, IcmpEchoHeader, Icmpv4Type, IpHeaders, Ipv4Header,
    Ipv6Header, PacketBuilder,
};

pub use dhcp::Dhcp;
pub use etherparse::{EtherType, IpNumber};
pub use frame::{Direction, Frame};
pub use mac::Mac;
pub use ndp::{Icmpv6, RouterAdvertisement};

const FITS: &str = "a packet of a test is smaller than 64 KiB";

/// Source and destination of a frame.
#[derive(Debug, Clone, Copy)]
pub struct Ethernet {
    from: Mac,
    to: Mac,
}

impl Ethernet {
    pub fn new(from: Mac, to: Mac) -> Self {
        Self { from, to }
    }

    pub fn ipv4(&self, packet: &[u8]) -> Vec<u8> {
        self.frame(EtherType::IPV4, packet)
    }

    pub fn ipv6(&self, packet: &[u8]) -> Vec<u8> {
        self.frame(EtherType::IPV6, packet)
    }

    pub fn arp(&self, message: &Arp) -> Vec<u8> {
        self.frame(EtherType::ARP, &message.0.to_bytes())
    }

    pub fn frame(&self, kind: EtherType, payload: &[u8]) -> Vec<u8> {
        [&self.to.0, &self.from.0, &kind.0.to_be_bytes()[..], payload].concat()
    }
}

/// An ARP message. Its sender may differ from that of the frame.
#[derive(Debug, Clone)]
pub struct Arp(ArpPacket);

impl Arp {
    pub fn request(sender: (Mac, Ipv4Addr), wanted: Ipv4Addr) -> Self {
        Self::new(ArpOperation::REQUEST, sender, (Mac::UNSPECIFIED, wanted))
    }

    pub fn reply(address: Ipv4Addr, mac: Mac, target: (Mac, Ipv4Addr)) -> Self {
        Self::new(ArpOperation::REPLY, (mac, address), target)
    }

    /// A request for the sender's own address, which neighbours learn from.
    pub fn gratuitous(address: Ipv4Addr, mac: Mac) -> Self {
        Self::request((mac, address), address)
    }

    fn new(operation: ArpOperation, sender: (Mac, Ipv4Addr), target: (Mac, Ipv4Addr)) -> Self {
        let packet = ArpPacket::new(
            ArpHardwareId::ETHERNET,
            EtherType::IPV4,
            operation,
            &sender.0.0,
            &sender.1.octets(),
            &target.0.0,
            &target.1.octets(),
        );
        Self(packet.expect("addresses of equal length"))
    }
}

/// An ICMP message.
#[derive(Debug, Clone)]
pub struct Icmp {
    kind: Icmpv4Type,
    payload: Vec<u8>,
}

impl Icmp {
    pub fn echo_request(id: u16, seq: u16, payload: &[u8]) -> Self {
        Self {
            kind: Icmpv4Type::EchoRequest(IcmpEchoHeader { id, seq }),
            payload: payload.to_vec(),
        }
    }

    pub fn echo_reply(id: u16, seq: u16, payload: &[u8]) -> Self {
        Self {
            kind: Icmpv4Type::EchoReply(IcmpEchoHeader { id, seq }),
            payload: payload.to_vec(),
        }
    }

    /// Redirects the destination of `packet` to `gateway`. The source of `packet` must be the victim.
    pub fn redirect(gateway: Ipv4Addr, packet: &[u8]) -> Self {
        Self {
            kind: Icmpv4Type::Redirect(RedirectHeader {
                code: RedirectCode::RedirectForHost,
                gateway_internet_address: gateway.octets(),
            }),
            // The IP header and 8 bytes: https://www.rfc-editor.org/rfc/rfc792
            payload: packet.iter().take(28).copied().collect(),
        }
    }
}

/// An IPv4 header without options.
#[derive(Debug, Clone, Copy)]
pub struct Ipv4 {
    source: Ipv4Addr,
    destination: Ipv4Addr,
    ttl: u8,
}

impl Ipv4 {
    /// With a TTL of 64.
    pub fn new(source: Ipv4Addr, destination: Ipv4Addr) -> Self {
        Self {
            source,
            destination,
            ttl: 64,
        }
    }

    #[must_use]
    pub fn ttl(mut self, ttl: u8) -> Self {
        self.ttl = ttl;
        self
    }

    pub fn udp(&self, source: u16, destination: u16, payload: &[u8]) -> Vec<u8> {
        let mut packet = Vec::new();
        let builder = PacketBuilder::ip(self.headers(IpNumber::UDP));
        let built = builder.udp(source, destination).write(&mut packet, payload);
        built.expect(FITS);
        packet
    }

    pub fn tcp_syn(&self, source: u16, destination: u16) -> Vec<u8> {
        let mut packet = Vec::new();
        let builder = PacketBuilder::ip(self.headers(IpNumber::TCP));
        let builder = builder.tcp(source, destination, 1, u16::MAX).syn();
        builder.write(&mut packet, &[]).expect(FITS);
        packet
    }

    pub fn icmp(&self, message: Icmp) -> Vec<u8> {
        let mut packet = Vec::new();
        let builder = PacketBuilder::ip(self.headers(IpNumber::ICMP)).icmpv4(message.kind);
        builder.write(&mut packet, &message.payload).expect(FITS);
        packet
    }

    pub fn packet(&self, protocol: IpNumber, payload: &[u8]) -> Vec<u8> {
        let mut packet = Vec::new();
        let builder = PacketBuilder::ip(self.headers(protocol));
        let built = builder.write(&mut packet, protocol, payload);
        built.expect(FITS);
        packet
    }

    fn headers(self, protocol: IpNumber) -> IpHeaders {
        let (source, destination) = (self.source.octets(), self.destination.octets());
        let header = Ipv4Header::new(0, self.ttl, protocol, source, destination);
        IpHeaders::Ipv4(header.expect(FITS), etherparse::Ipv4Extensions::default())
    }
}

/// An IPv6 header.
#[derive(Debug, Clone, Copy)]
pub struct Ipv6 {
    source: Ipv6Addr,
    destination: Ipv6Addr,
    hop_limit: u8,
}

impl Ipv6 {
    /// With a hop limit of 255, which neighbour discovery demands.
    pub fn new(source: Ipv6Addr, destination: Ipv6Addr) -> Self {
        Self {
            source,
            destination,
            hop_limit: 255,
        }
    }

    #[must_use]
    pub fn hop_limit(mut self, hop_limit: u8) -> Self {
        self.hop_limit = hop_limit;
        self
    }

    pub fn udp(&self, source: u16, destination: u16, payload: &[u8]) -> Vec<u8> {
        let mut packet = Vec::new();
        let builder = PacketBuilder::ip(self.headers(IpNumber::UDP));
        let built = builder.udp(source, destination).write(&mut packet, payload);
        built.expect(FITS);
        packet
    }

    pub fn tcp_syn(&self, source: u16, destination: u16) -> Vec<u8> {
        let mut packet = Vec::new();
        let builder = PacketBuilder::ip(self.headers(IpNumber::TCP));
        let builder = builder.tcp(source, destination, 1, u16::MAX).syn();
        builder.write(&mut packet, &[]).expect(FITS);
        packet
    }

    #[expect(clippy::needless_pass_by_value, reason = "call sites build the message")]
    pub fn icmp(&self, message: Icmpv6) -> Vec<u8> {
        let mut packet = Vec::new();
        let builder = PacketBuilder::ip(self.headers(IpNumber::IPV6_ICMP)).icmpv6(message.kind);
        builder.write(&mut packet, &message.payload).expect(FITS);
        packet
    }

    /// The payload may begin with extension headers.
    pub fn packet(&self, next_header: IpNumber, payload: &[u8]) -> Vec<u8> {
        let mut header = self.header(next_header);
        header.payload_length = payload.len().try_into().expect(FITS);
        [&header.to_bytes()[..], payload].concat()
    }

    fn headers(self, next_header: IpNumber) -> IpHeaders {
        IpHeaders::Ipv6(self.header(next_header), etherparse::Ipv6Extensions::default())
    }

    fn header(self, next_header: IpNumber) -> Ipv6Header {
        Ipv6Header {
            next_header,
            hop_limit: self.hop_limit,
            source: self.source.octets(),
            destination: self.destination.octets(),
            ..Ipv6Header::default()
        }
    }
}
