//! Link-layer addresses.

use std::fmt;
use std::net::Ipv6Addr;
use std::str::FromStr;

use anyhow::{Context, Result, bail};

#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Mac(pub [u8; 6]);

impl Mac {
    pub const BROADCAST: Self = Self([0xff; 6]);

    pub const UNSPECIFIED: Self = Self([0; 6]);

    /// The group address of an IPv6 multicast address.
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
            let part = parts
                .next()
                .with_context(|| format!("{text:?} is too short for a MAC"))?;
            *byte = u8::from_str_radix(part, 16).with_context(|| format!("parse MAC {text:?}"))?;
        }
        if parts.next().is_some() {
            bail!("{text:?} is too long for a MAC");
        }
        Ok(Self(bytes))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mac_parses_what_it_displays() {
        let mac = Mac([2, 0, 0xab, 0, 0, 0x1f]);
        assert_eq!(mac.to_string(), "02:00:ab:00:00:1f");
        assert_eq!(mac.to_string().parse::<Mac>().unwrap(), mac);
        for bad in ["", "02:00:00:00:00", "02:00:00:00:00:00:00", "xx:0:0:0:0:0"] {
            assert!(bad.parse::<Mac>().is_err(), "{bad}");
        }
    }

    #[test]
    fn the_group_address_of_all_nodes() {
        let all_nodes = "ff02::1".parse().unwrap();
        assert_eq!(
            Mac::of_multicast(all_nodes).to_string(),
            "33:33:00:00:00:01"
        );
    }
}
