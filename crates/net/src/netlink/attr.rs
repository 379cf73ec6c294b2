//! Reads attributes of netlink messages, and converts addresses.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

const NLA_TYPE_MASK: u16 = 0x3fff;

pub(crate) const AF_INET: u8 = 2;
pub(crate) const AF_INET6: u8 = 10;

pub(crate) fn family_of(address: IpAddr) -> u8 {
    match address {
        IpAddr::V4(_) => AF_INET,
        IpAddr::V6(_) => AF_INET6,
    }
}

/// An address in network byte order.
pub fn octets(address: IpAddr) -> Vec<u8> {
    match address {
        IpAddr::V4(address) => address.octets().to_vec(),
        IpAddr::V6(address) => address.octets().to_vec(),
    }
}

/// The attributes in `bytes`: kind and payload.
pub(crate) fn attributes(mut bytes: &[u8]) -> impl Iterator<Item = (u16, &[u8])> {
    std::iter::from_fn(move || {
        let header = bytes.get(..4)?;
        let length = usize::from(u16::from_ne_bytes([header[0], header[1]]));
        let kind = u16::from_ne_bytes([header[2], header[3]]) & NLA_TYPE_MASK;
        let payload = bytes.get(4..length)?;
        bytes = bytes.get(length.next_multiple_of(4)..).unwrap_or_default();
        Some((kind, payload))
    })
}

/// The payload of the first attribute of this kind.
pub(crate) fn attribute(bytes: &[u8], kind: u16) -> Option<&[u8]> {
    attributes(bytes).find_map(|(found, payload)| (found == kind).then_some(payload))
}

pub(crate) fn u32_of(payload: &[u8]) -> Option<u32> {
    Some(u32::from_ne_bytes(payload.get(..4)?.try_into().ok()?))
}

/// A string up to its NUL.
pub(crate) fn text_of(payload: &[u8]) -> String {
    let text = payload.split(|byte| *byte == 0).next().unwrap_or_default();
    String::from_utf8_lossy(text).into_owned()
}

/// The address in these bytes, in network byte order; `None` unless they are 4 or 16.
pub fn ip_of(payload: &[u8]) -> Option<IpAddr> {
    match payload.len() {
        4 => Some(Ipv4Addr::from(<[u8; 4]>::try_from(payload).ok()?).into()),
        16 => Some(Ipv6Addr::from(<[u8; 16]>::try_from(payload).ok()?).into()),
        _ => None,
    }
}
