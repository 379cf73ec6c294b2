//! ICMPv6 messages, those of neighbour discovery included.
//!
//! <https://www.rfc-editor.org/rfc/rfc4861>

use std::net::Ipv6Addr;
use std::time::Duration;

use etherparse::icmpv6::{NeighborAdvertisementHeader, RouterAdvertisementHeader};
use etherparse::{IcmpEchoHeader, Icmpv6Type};

use super::mac::Mac;

const SOURCE_LINK_LAYER: u8 = 1;
const TARGET_LINK_LAYER: u8 = 2;
const PREFIX: u8 = 3;
const REDIRECTED: u8 = 4;

#[derive(Debug, Clone)]
pub struct Icmpv6 {
    pub(super) kind: Icmpv6Type,
    pub(super) payload: Vec<u8>,
}

/// The fields of a router advertisement that tests set.
#[derive(Debug, Clone, Copy, Default)]
pub struct RouterAdvertisement {
    /// Zero means that it is no default router.
    pub router_lifetime: Duration,
    /// An on-link prefix with its length, for SLAAC.
    pub prefix: Option<(Ipv6Addr, u8)>,
    pub mac: Option<Mac>,
}

impl Icmpv6 {
    pub fn echo_request(id: u16, seq: u16, payload: &[u8]) -> Self {
        Self::new(Icmpv6Type::EchoRequest(IcmpEchoHeader { id, seq }), payload)
    }

    pub fn echo_reply(id: u16, seq: u16, payload: &[u8]) -> Self {
        Self::new(Icmpv6Type::EchoReply(IcmpEchoHeader { id, seq }), payload)
    }

    /// Must come from the router's link-local address and go to `ff02::1`.
    pub fn router_advertisement(fields: &RouterAdvertisement) -> Self {
        let lifetime = fields.router_lifetime.as_secs();
        // Neither hop limit nor flags.
        let [high, low] = u16::try_from(lifetime).unwrap_or(u16::MAX).to_be_bytes();
        let header = RouterAdvertisementHeader::from_bytes([0, 0, high, low]);
        // Reachable time and retransmission timer.
        let mut payload = vec![0; 8];
        if let Some((prefix, length)) = fields.prefix {
            const ON_LINK_AND_AUTONOMOUS: u8 = 0xc0;
            payload.extend([PREFIX, 4, length, ON_LINK_AND_AUTONOMOUS]);
            for seconds in [3600u32, 1800, 0] {
                payload.extend(seconds.to_be_bytes()); // valid, preferred, reserved
            }
            payload.extend(prefix.octets());
        }
        if let Some(mac) = fields.mac {
            payload.extend(link_layer(SOURCE_LINK_LAYER, mac));
        }
        Self::new(Icmpv6Type::RouterAdvertisement(header), &payload)
    }

    pub fn neighbour_solicitation(wanted: Ipv6Addr, mac: Mac) -> Self {
        let option = link_layer(SOURCE_LINK_LAYER, mac);
        let payload = [&wanted.octets()[..], &option].concat();
        Self::new(Icmpv6Type::NeighborSolicitation, &payload)
    }

    /// Solicited, with the override flag.
    pub fn neighbour_advertisement(address: Ipv6Addr, mac: Mac) -> Self {
        let header = NeighborAdvertisementHeader {
            router: false,
            solicited: true,
            r#override: true,
        };
        let option = link_layer(TARGET_LINK_LAYER, mac);
        let payload = [&address.octets()[..], &option].concat();
        Self::new(Icmpv6Type::NeighborAdvertisement(header), &payload)
    }

    /// Redirects the destination of `packet` to `gateway`. It must come from the link-local address of
    /// the victim's router, and the source of `packet` must be the victim.
    pub fn redirect(gateway: Ipv6Addr, mac: Mac, packet: &[u8]) -> Self {
        let mut payload = gateway.octets().to_vec();
        payload.extend(&packet[24..40]); // the destination
        payload.extend(link_layer(TARGET_LINK_LAYER, mac));
        let whole = packet.len() / 8;
        let length = u8::try_from(whole + 1).unwrap_or(u8::MAX);
        payload.extend([REDIRECTED, length, 0, 0, 0, 0, 0, 0]);
        payload.extend(&packet[..whole * 8]);
        Self::new(Icmpv6Type::Redirect, &payload)
    }

    fn new(kind: Icmpv6Type, payload: &[u8]) -> Self {
        Self {
            kind,
            payload: payload.to_vec(),
        }
    }
}

fn link_layer(option: u8, mac: Mac) -> [u8; 8] {
    let mut bytes = [option, 1, 0, 0, 0, 0, 0, 0];
    bytes[2..].copy_from_slice(&mac.0);
    bytes
}
