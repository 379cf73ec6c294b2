//! Messages of `ICMPv6` and of neighbour discovery.
//!
//! <https://www.rfc-editor.org/rfc/rfc4443> and <https://www.rfc-editor.org/rfc/rfc4861>

use std::net::Ipv6Addr;
use std::time::Duration;

use super::mac::Mac;

/// One message; [`Ipv6::icmp`](super::Ipv6::icmp) gives it a checksum.
#[derive(Debug, Clone)]
pub struct Icmpv6(Vec<u8>);

/// Options of neighbour discovery: each begins with its kind and its length in units of 8 bytes.
mod option {
    pub(super) const SOURCE_LINK_LAYER: u8 = 1;
    pub(super) const TARGET_LINK_LAYER: u8 = 2;
    pub(super) const PREFIX: u8 = 3;
    pub(super) const REDIRECTED: u8 = 4;
}

impl Icmpv6 {
    /// `ICMPV6_ECHO_REQUEST`: a ping.
    pub fn echo_request(id: u16, sequence: u16, payload: &[u8]) -> Self {
        Self::echo(128, id, sequence, payload)
    }

    /// `ICMPV6_ECHO_REPLY`: the answer to a ping, asked for or not.
    pub fn echo_reply(id: u16, sequence: u16, payload: &[u8]) -> Self {
        Self::echo(129, id, sequence, payload)
    }

    /// "I am a router." Comes from the router's link-local address, and goes to `ff02::1`.
    pub fn router_advertisement(about: &RouterAdvertisement) -> Self {
        let mut bytes = vec![134, 0, 0, 0];
        let lifetime = about.router_lifetime.as_secs();
        let lifetime = u16::try_from(lifetime).unwrap_or(u16::MAX);
        // Neither hop limit nor flags, nor for how long neighbours count as reachable.
        bytes.extend([0, 0]);
        bytes.extend(lifetime.to_be_bytes());
        bytes.extend([0; 8]);
        if let Some((prefix, length)) = about.prefix {
            const ON_LINK_AND_AUTONOMOUS: u8 = 0xc0;
            bytes.extend([option::PREFIX, 4, length, ON_LINK_AND_AUTONOMOUS]);
            for seconds in [3600u32, 1800, 0] {
                bytes.extend(seconds.to_be_bytes()); // valid, preferred, reserved
            }
            bytes.extend(prefix.octets());
        }
        if let Some(mac) = about.mac {
            bytes.extend([option::SOURCE_LINK_LAYER, 1]);
            bytes.extend(mac.0);
        }
        Self(bytes)
    }

    /// "Who has `wanted`?", with the asker's own link-layer address.
    pub fn neighbour_solicitation(wanted: Ipv6Addr, mac: Mac) -> Self {
        let mut bytes = vec![135, 0, 0, 0, 0, 0, 0, 0];
        bytes.extend(wanted.octets());
        bytes.extend([option::SOURCE_LINK_LAYER, 1]);
        bytes.extend(mac.0);
        Self(bytes)
    }

    /// "`address` is at `mac`", overriding what is known; said as if it had been asked for.
    pub fn neighbour_advertisement(address: Ipv6Addr, mac: Mac) -> Self {
        const SOLICITED_AND_OVERRIDE: u8 = 0x60;
        let mut bytes = vec![136, 0, 0, 0, SOLICITED_AND_OVERRIDE, 0, 0, 0];
        bytes.extend(address.octets());
        bytes.extend([option::TARGET_LINK_LAYER, 1]);
        bytes.extend(mac.0);
        Self(bytes)
    }

    /// "What goes to the destination of `packet`, send it to `gateway`, which is at `mac`."
    ///
    /// The packet is a whole one of IPv6 that the victim could have sent. The message must come
    /// from the link-local address of the victim's router.
    pub fn redirect(gateway: Ipv6Addr, mac: Mac, packet: &[u8]) -> Self {
        let mut bytes = vec![137, 0, 0, 0, 0, 0, 0, 0];
        bytes.extend(gateway.octets());
        bytes.extend(packet.iter().skip(24).take(16)); // its destination
        bytes.extend([option::TARGET_LINK_LAYER, 1]);
        bytes.extend(mac.0);
        let whole = packet.len() / 8;
        bytes.extend([
            option::REDIRECTED,
            u8::try_from(whole + 1).unwrap_or(u8::MAX),
        ]);
        bytes.extend([0; 6]);
        bytes.extend(&packet[..whole * 8]);
        Self(bytes)
    }

    fn echo(kind: u8, id: u16, sequence: u16, payload: &[u8]) -> Self {
        let head = [[kind, 0], [0, 0], id.to_be_bytes(), sequence.to_be_bytes()].concat();
        Self([&head, payload].concat())
    }

    pub(super) fn into_bytes(self) -> Vec<u8> {
        self.0
    }
}

/// What a router says of itself.
#[derive(Debug, Clone, Copy, Default)]
pub struct RouterAdvertisement {
    /// For how long it is a default router; zero means that it is none. Whole seconds.
    pub router_lifetime: Duration,
    /// A prefix, and its length, that is on the link and to make addresses of.
    pub prefix: Option<(Ipv6Addr, u8)>,
    /// The router's link-layer address.
    pub mac: Option<Mac>,
}
