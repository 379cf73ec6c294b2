//! Messages of ICMP.
//!
//! <https://www.rfc-editor.org/rfc/rfc792>

use std::net::Ipv4Addr;

/// One message; [`Ipv4::icmp`](super::Ipv4::icmp) gives it a checksum.
#[derive(Debug, Clone)]
pub struct Icmp(Vec<u8>);

impl Icmp {
    /// `ICMP_ECHO`: a ping.
    pub fn echo_request(id: u16, sequence: u16, payload: &[u8]) -> Self {
        Self::echo(8, id, sequence, payload)
    }

    /// `ICMP_ECHOREPLY`: the answer to a ping, asked for or not.
    pub fn echo_reply(id: u16, sequence: u16, payload: &[u8]) -> Self {
        Self::echo(0, id, sequence, payload)
    }

    /// `ICMP_REDIRECT` for a host: send what is like `packet` to `gateway` from now on.
    ///
    /// The packet must be one that the victim could have sent: it names the victim's own address
    /// as its source, and the destination whose route shall change.
    pub fn redirect(gateway: Ipv4Addr, packet: &[u8]) -> Self {
        const ICMP_REDIR_HOST: u8 = 1;
        let [a, b, c, d] = gateway.octets();
        let mut bytes = vec![5, ICMP_REDIR_HOST, 0, 0, a, b, c, d];
        // The head and the first eight bytes behind it.
        bytes.extend(packet.iter().take(28));
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
