//! Hardware addresses.

use std::fmt;
use std::str::FromStr;

/// The hardware address of a link.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mac([u8; 6]);

/// A text that is no hardware address of one link.
#[derive(Debug, thiserror::Error)]
#[error("{0:?} is not the hardware address of a link: six pairs of hex digits, the first one even")]
pub struct NoMac(String);

impl Mac {
    /// An address that nobody else gives out: marked as local, and meant for one link.
    pub const fn local(mut octets: [u8; 6]) -> Self {
        octets[0] = octets[0] & !1 | 2;
        Self(octets)
    }

    /// Its six bytes.
    pub const fn octets(self) -> [u8; 6] {
        self.0
    }

    pub(crate) fn from_bytes(bytes: &[u8]) -> Option<Self> {
        bytes.try_into().ok().map(Self)
    }
}

impl FromStr for Mac {
    type Err = NoMac;

    fn from_str(text: &str) -> Result<Self, NoMac> {
        let mut octets = [0; 6];
        let mut pairs = text.split([':', '-']);
        for octet in &mut octets {
            *octet = pairs
                .next()
                .filter(|pair| pair.len() == 2 && pair.bytes().all(|b| b.is_ascii_hexdigit()))
                .and_then(|pair| u8::from_str_radix(pair, 16).ok())
                .ok_or_else(|| NoMac(text.to_owned()))?;
        }
        let is_of_one_link = octets[0] & 1 == 0 && octets != [0; 6];
        if pairs.next().is_some() || !is_of_one_link {
            return Err(NoMac(text.to_owned()));
        }
        Ok(Self(octets))
    }
}

impl fmt::Display for Mac {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let pairs = self.0.map(|octet| format!("{octet:02x}"));
        f.write_str(&pairs.join(":"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_written_address_is_read_back() {
        let mac = Mac::local([0xff, 1, 2, 3, 4, 0xab]);
        assert_eq!(mac.to_string(), "fe:01:02:03:04:ab");
        assert_eq!(mac.to_string().parse::<Mac>().unwrap(), mac);
        assert_eq!("FE-01-02-03-04-AB".parse::<Mac>().unwrap(), mac);
    }

    #[test]
    fn what_can_t_be_a_link_s_address_is_refused() {
        for text in [
            "",
            "01:02:03:04:05:06",
            "00:00:00:00:00:00",
            "02:02:03:04:05",
            "02:02:03:04:05:06:07",
            "02:02:03:04:05:6",
            "02:02:03:04:05:+6",
        ] {
            assert!(text.parse::<Mac>().is_err(), "{text}");
        }
    }
}
