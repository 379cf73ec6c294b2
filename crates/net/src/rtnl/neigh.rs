//! Neighbour entries.

use std::net::IpAddr;

use crate::netlink::{Batch, Message, attributes, family_of, flag, ip_of, octets, u32_of};
use crate::{Mac, NetError, Socket};

const RTM_NEWNEIGH: u16 = 28;
const RTM_GETNEIGH: u16 = 30;
const NDA_DST: u16 = 1;
const NDA_LLADDR: u16 = 2;
const NUD_PERMANENT: u16 = 0x80;

/// A permanent neighbour entry: the kernel neither resolves nor updates it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Neighbour {
    /// Interface index.
    pub link: u32,
    /// IP address.
    pub address: IpAddr,
    /// Hardware address.
    pub mac: Mac,
}

impl Neighbour {
    /// Adds the entry, or replaces the one for the same address.
    pub fn add_to(&self, batch: &mut Batch) {
        let attempt = format!("set neighbour {}", self.address);
        batch.add(
            RTM_NEWNEIGH,
            flag::CREATE | flag::REPLACE,
            attempt,
            |message| {
                message.fixed(&[family_of(self.address), 0, 0, 0]);
                message.fixed(&self.link.to_ne_bytes());
                message.fixed(&NUD_PERMANENT.to_ne_bytes());
                message.fixed(&[0; 2]);
                message.attribute(NDA_DST, &octets(self.address));
                message.mac(NDA_LLADDR, self.mac);
            },
        );
    }
}

/// All permanent neighbour entries.
pub fn permanent_neighbours(socket: &Socket) -> Result<Vec<Neighbour>, NetError> {
    socket.dump(
        RTM_GETNEIGH,
        "list neighbours",
        |message| message.fixed(&[0; 12]),
        read,
    )
}

fn read(message: &Message<'_>) -> Option<Neighbour> {
    let state = u16::from_ne_bytes(message.payload.get(8..10)?.try_into().ok()?);
    if state & NUD_PERMANENT == 0 {
        return None;
    }
    let (mut address, mut mac) = (None, None);
    for (kind, payload) in attributes(message.payload.get(12..)?) {
        match kind {
            NDA_DST => address = ip_of(payload),
            NDA_LLADDR => mac = Mac::from_bytes(payload),
            _ => {}
        }
    }
    Some(Neighbour {
        link: u32_of(message.payload.get(4..)?)?,
        address: address?,
        mac: mac?,
    })
}
