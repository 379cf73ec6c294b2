//! Neighbours: which hardware address an address has.

use std::net::IpAddr;

use crate::netlink::{Batch, Message, attributes, family_of, flag, ip_of, octets, u32_of};
use crate::{Mac, NetError, Socket};

const RTM_NEWNEIGH: u16 = 28;
const RTM_GETNEIGH: u16 = 30;
const NDA_DST: u16 = 1;
const NDA_LLADDR: u16 = 2;
const NUD_PERMANENT: u16 = 0x80;

/// A neighbour that is known for good: nobody is asked, and nobody who says otherwise is believed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Neighbour {
    /// The number of the link that leads to it.
    pub link: u32,
    /// Its address.
    pub address: IpAddr,
    /// The hardware address behind it.
    pub mac: Mac,
}

impl Neighbour {
    /// Adds making it known, in place of whatever was known before.
    pub fn add_to(&self, batch: &mut Batch) {
        let attempt = format!("make the neighbour {} known", self.address);
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

/// All neighbours that are known for good.
pub fn permanent_neighbours(socket: &Socket) -> Result<Vec<Neighbour>, NetError> {
    socket.dump(
        RTM_GETNEIGH,
        "list the neighbours",
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
