//! Addresses of links.

use std::net::IpAddr;

use ipnet::IpNet;

use crate::netlink::{
    Batch, Message, Writer, attribute, attributes, family_of, flag, ip_of, octets, u32_of,
};
use crate::{NetError, Socket};

const RTM_NEWADDR: u16 = 20;
const RTM_DELADDR: u16 = 21;
const RTM_GETADDR: u16 = 22;
const IFA_ADDRESS: u16 = 1;
const IFA_LOCAL: u16 = 2;
const IFA_FLAGS: u16 = 8;
/// Skip duplicate address detection.
const IFA_F_NODAD: u32 = 0x02;
/// Duplicate address detection is under way, or has failed.
const IFA_F_TENTATIVE: u32 = 0x40;
/// Add no route to the subnet.
const IFA_F_NOPREFIXROUTE: u32 = 0x200;

/// An address of a link.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Address {
    /// Interface index.
    pub link: u32,
    /// The address with its prefix length.
    pub net: IpNet,
}

impl Address {
    /// Adds the address to the link, without duplicate address detection and without a subnet route.
    pub fn add_to(&self, batch: &mut Batch) {
        let attempt = format!("add address {}", self.net);
        batch.add(RTM_NEWADDR, flag::CREATE | flag::EXCL, attempt, |message| {
            self.write(message);
            message.u32(IFA_FLAGS, IFA_F_NODAD | IFA_F_NOPREFIXROUTE);
        });
    }

    /// Removes the address from the link; `EADDRNOTAVAIL` if the link does not have it.
    pub fn remove_in(&self, batch: &mut Batch) {
        let attempt = format!("remove address {}", self.net);
        batch.add(RTM_DELADDR, 0, attempt, |message| self.write(message));
    }

    /// `struct ifaddrmsg` and attributes.
    fn write(&self, message: &mut Writer<'_>) {
        let address = self.net.addr();
        message.fixed(&[family_of(address), self.net.prefix_len(), 0, 0]);
        message.fixed(&self.link.to_ne_bytes());
        message.attribute(IFA_LOCAL, &octets(address));
        message.attribute(IFA_ADDRESS, &octets(address));
    }
}

/// All addresses of all links.
pub fn addresses(socket: &Socket) -> Result<Vec<Address>, NetError> {
    list(socket, read)
}

/// All addresses of all links that can be used: not the tentative ones.
pub fn usable_addresses(socket: &Socket) -> Result<Vec<Address>, NetError> {
    list(socket, |message| {
        let flags = attribute(message.payload.get(8..)?, IFA_FLAGS).and_then(u32_of);
        let is_usable = flags.unwrap_or_default() & IFA_F_TENTATIVE == 0;
        read(message).filter(|_| is_usable)
    })
}

fn list(
    socket: &Socket,
    read: impl FnMut(&Message<'_>) -> Option<Address>,
) -> Result<Vec<Address>, NetError> {
    let write = |message: &mut Writer<'_>| message.fixed(&[0; 8]);
    socket.dump(RTM_GETADDR, "list addresses", write, read)
}

fn read(message: &Message<'_>) -> Option<Address> {
    let prefix_len = *message.payload.get(1)?;
    let mut found: Option<IpAddr> = None;
    for (kind, payload) in attributes(message.payload.get(8..)?) {
        match kind {
            // On a point-to-point link IFA_ADDRESS is the peer's.
            IFA_LOCAL => found = ip_of(payload),
            IFA_ADDRESS => found = found.or_else(|| ip_of(payload)),
            _ => {}
        }
    }
    Some(Address {
        link: u32_of(message.payload.get(4..)?)?,
        net: IpNet::new(found?, prefix_len).ok()?,
    })
}
