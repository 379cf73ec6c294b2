//! DHCP messages, as payload of UDP: from port 68 to port 67, and back.
//!
//! <https://www.rfc-editor.org/rfc/rfc2131>

use std::net::Ipv4Addr;

use super::mac::Mac;

/// One message, or what is known of it.
#[derive(Debug, Clone)]
pub struct Dhcp(Vec<u8>);

/// Where the transaction's number is.
const XID: std::ops::Range<usize> = 4..8;
/// `255.255.255.0`
const MASK: [u8; 4] = [255, 255, 255, 0];

impl Dhcp {
    /// A client asks for a server.
    pub fn discover(client: Mac, xid: u32) -> Self {
        const BOOTREQUEST: u8 = 1;
        const DHCPDISCOVER: u8 = 1;
        let mut message = Self::head(BOOTREQUEST, client, xid, Ipv4Addr::UNSPECIFIED);
        message.option(53, &[DHCPDISCOVER]);
        message.option(55, &[1, 3, 6]); // wants a mask, routers, name servers
        message.end()
    }

    /// `server` offers `address` to a client, with itself as router of a /24 and as name server.
    ///
    /// The client takes it only with the number of its own request.
    pub fn offer(client: Mac, xid: u32, address: Ipv4Addr, server: Ipv4Addr) -> Self {
        const BOOTREPLY: u8 = 2;
        const DHCPOFFER: u8 = 2;
        let mut message = Self::head(BOOTREPLY, client, xid, address);
        message.option(53, &[DHCPOFFER]);
        message.option(54, &server.octets());
        message.option(51, &3600u32.to_be_bytes()); // seconds
        message.option(1, &MASK);
        for code in [3, 6] {
            message.option(code, &server.octets());
        }
        message.end()
    }

    /// The transaction's number in a message that somebody sent.
    pub fn xid_of(payload: &[u8]) -> Option<u32> {
        Some(u32::from_be_bytes(payload.get(XID)?.try_into().ok()?))
    }

    /// The message, to be sent with [`Ipv4::udp`](super::Ipv4::udp).
    pub fn bytes(&self) -> &[u8] {
        &self.0
    }

    fn head(operation: u8, client: Mac, xid: u32, yours: Ipv4Addr) -> Self {
        const BROADCAST: [u8; 2] = [0x80, 0];
        const MAGIC: [u8; 4] = [99, 130, 83, 99];
        let mut bytes = vec![operation, 1, 6, 0]; // Ethernet, 6 bytes, no relay
        bytes.extend(xid.to_be_bytes());
        bytes.extend([0, 0]);
        bytes.extend(BROADCAST);
        bytes.extend([0; 4]); // the client's address
        bytes.extend(yours.octets());
        bytes.extend([0; 8]); // the next server's and the relay's
        bytes.extend(client.0);
        bytes.resize(236, 0); // names of server and file
        bytes.extend(MAGIC);
        Self(bytes)
    }

    fn option(&mut self, code: u8, value: &[u8]) {
        let length = u8::try_from(value.len()).expect("options here are short");
        self.0.extend([code, length]);
        self.0.extend(value);
    }

    fn end(mut self) -> Self {
        self.0.push(255);
        // Some servers drop what is shorter than BOOTP was.
        self.0.resize(self.0.len().max(300), 0);
        self
    }
}
