//! DHCP messages, the payload of UDP from port 68 to port 67.
//!
//! <https://www.rfc-editor.org/rfc/rfc2131>

use super::mac::Mac;

#[derive(Debug, Clone)]
pub struct Dhcp(Vec<u8>);

impl Dhcp {
    pub fn discover(client: Mac, xid: u32) -> Self {
        const MAGIC: [u8; 4] = [99, 130, 83, 99];
        let mut bytes = vec![1, 1, 6, 0]; // BOOTREQUEST over Ethernet
        bytes.extend(xid.to_be_bytes());
        bytes.extend([0, 0, 0x80, 0]); // the answer by broadcast
        bytes.extend([0; 16]); // addresses
        bytes.extend(client.0);
        bytes.resize(236, 0); // names of server and file
        bytes.extend(MAGIC);
        bytes.extend([53, 1, 1]); // DHCPDISCOVER
        bytes.extend([55, 3, 1, 3, 6]); // wants mask, routers, name servers
        bytes.push(255);
        // Some servers drop what is shorter than BOOTP.
        bytes.resize(300, 0);
        Self(bytes)
    }

    /// The transaction ID of a message.
    pub fn xid_of(payload: &[u8]) -> Option<u32> {
        Some(u32::from_be_bytes(payload.get(4..8)?.try_into().ok()?))
    }

    pub fn bytes(&self) -> &[u8] {
        &self.0
    }
}
