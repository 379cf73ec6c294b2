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
/// Usable at once: nobody else can have it, so nobody is asked.
const IFA_F_NODAD: u32 = 0x02;
/// It is being asked whether somebody else has it, or somebody has.
const IFA_F_TENTATIVE: u32 = 0x40;
/// No route to the subnet comes with it.
const IFA_F_NOPREFIXROUTE: u32 = 0x200;

/// An address of a link.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Address {
    /// The link's number.
    pub link: u32,
    /// The address, with the length of its subnet's prefix.
    pub net: IpNet,
}

impl Address {
    /// Adds giving the link this address: usable at once, and without a route to its subnet.
    pub fn add_to(&self, batch: &mut Batch) {
        let attempt = format!("add the address {}", self.net);
        batch.add(RTM_NEWADDR, flag::CREATE | flag::EXCL, attempt, |message| {
            self.write(message);
            message.u32(IFA_FLAGS, IFA_F_NODAD | IFA_F_NOPREFIXROUTE);
        });
    }

    /// Adds taking this address from the link; refused with `EADDRNOTAVAIL` if it has none such.
    pub fn remove_in(&self, batch: &mut Batch) {
        let attempt = format!("remove the address {}", self.net);
        batch.add(RTM_DELADDR, 0, attempt, |message| self.write(message));
    }

    /// `struct ifaddrmsg`, and which address.
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

/// All addresses of all links that can be sent from: IPv6 has others until it is known that nobody
/// else has them.
pub fn settled_addresses(socket: &Socket) -> Result<Vec<Address>, NetError> {
    list(socket, |message| {
        let flags = attribute(message.payload.get(8..)?, IFA_FLAGS).and_then(u32_of);
        let is_settled = flags.unwrap_or_default() & IFA_F_TENTATIVE == 0;
        read(message).filter(|_| is_settled)
    })
}

fn list(
    socket: &Socket,
    read: impl FnMut(&Message<'_>) -> Option<Address>,
) -> Result<Vec<Address>, NetError> {
    let write = |message: &mut Writer<'_>| message.fixed(&[0; 8]);
    socket.dump(RTM_GETADDR, "list the addresses", write, read)
}

fn read(message: &Message<'_>) -> Option<Address> {
    let prefix_len = *message.payload.get(1)?;
    let mut found: Option<IpAddr> = None;
    for (kind, payload) in attributes(message.payload.get(8..)?) {
        match kind {
            // Of a pair of addresses, this one is the link's own.
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
