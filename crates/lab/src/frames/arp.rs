//! ARP for IPv4 over Ethernet.
//!
//! <https://www.rfc-editor.org/rfc/rfc826>

use std::net::Ipv4Addr;

use super::mac::Mac;

#[derive(Debug, Clone, Copy)]
#[repr(u8)]
enum Operation {
    Request = 1,
    Reply = 2,
}

/// One message. Who says it and the frame that carries it may disagree.
#[derive(Debug, Clone, Copy)]
pub struct Arp {
    operation: Operation,
    sender: (Mac, Ipv4Addr),
    target: (Mac, Ipv4Addr),
}

impl Arp {
    /// "Who has `wanted`? Tell `sender`." Whoever knows the sender's address already takes its
    /// link-layer address from here.
    pub fn request(sender: (Mac, Ipv4Addr), wanted: Ipv4Addr) -> Self {
        Self {
            operation: Operation::Request,
            sender,
            target: (Mac::UNSPECIFIED, wanted),
        }
    }

    /// "`address` is at `mac`", said to `target`, asked or not.
    pub fn reply(address: Ipv4Addr, mac: Mac, target: (Mac, Ipv4Addr)) -> Self {
        Self {
            operation: Operation::Reply,
            sender: (mac, address),
            target,
        }
    }

    /// "`address` is at `mac`", said to everybody: a request for oneself.
    pub fn gratuitous(address: Ipv4Addr, mac: Mac) -> Self {
        Self::request((mac, address), address)
    }

    pub(super) fn bytes(&self) -> Vec<u8> {
        // Ethernet, IPv4, and how long the addresses of either are.
        let mut bytes = vec![0, 1, 8, 0, 6, 4, 0, self.operation as u8];
        for (mac, address) in [self.sender, self.target] {
            bytes.extend(mac.0);
            bytes.extend(address.octets());
        }
        bytes
    }
}
