//! Link-layer addresses.

use std::fmt;
use std::net::Ipv6Addr;
use std::str::FromStr;

use anyhow::{Context, Result, bail};

/// The address of a link, as in `02:00:00:00:00:01`.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Mac(pub [u8; 6]);

impl Mac {
    /// To everybody on the link.
    pub const BROADCAST: Self = Self([0xff; 6]);

    /// Not known yet, as in the target of an ARP request.
    pub const UNSPECIFIED: Self = Self([0; 6]);

    /// Where packets to a multicast address of IPv6 go.
    pub fn of_multicast(address: Ipv6Addr) -> Self {
        // https://www.rfc-editor.org/rfc/rfc2464#section-7
        let [.., a, b, c, d] = address.octets();
        Self([0x33, 0x33, a, b, c, d])
    }
}

impl fmt::Display for Mac {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let parts = self.0.map(|byte| format!("{byte:02x}"));
        f.write_str(&parts.join(":"))
    }
}

impl fmt::Debug for Mac {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl FromStr for Mac {
    type Err = anyhow::Error;

    fn from_str(text: &str) -> Result<Self> {
        let mut bytes = [0; 6];
        let mut parts = text.split(':');
        for byte in &mut bytes {
            let part = parts.next().with_context(|| format!("{text:?} is short"))?;
            *byte = u8::from_str_radix(part, 16).with_context(|| format!("read MAC {text:?}"))?;
        }
        if parts.next().is_some() {
            bail!("{text:?} is longer than a MAC");
        }
        Ok(Self(bytes))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mac_reads_what_it_writes() {
        let mac = Mac([2, 0, 0xab, 0, 0, 0x1f]);
        assert_eq!(mac.to_string(), "02:00:ab:00:00:1f");
        assert_eq!(mac.to_string().parse::<Mac>().unwrap(), mac);
        for bad in ["", "02:00:00:00:00", "02:00:00:00:00:00:00", "xx:0:0:0:0:0"] {
            assert!(bad.parse::<Mac>().is_err(), "{bad}");
        }
    }

    #[test]
    fn all_nodes_have_their_own_mac() {
        let all_nodes = "ff02::1".parse().unwrap();
        assert_eq!(
            Mac::of_multicast(all_nodes).to_string(),
            "33:33:00:00:00:01"
        );
    }
}
