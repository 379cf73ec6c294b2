//! Hardware addresses.

use std::fmt;
use std::str::FromStr;

/// The unicast hardware address of a link.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mac([u8; 6]);

/// The text is not a unicast hardware address.
#[derive(Debug, thiserror::Error)]
#[error("{0:?} is not a unicast hardware address: six pairs of hex digits, the first one even")]
pub struct ParseMacError(String);

impl Mac {
    /// A locally administered unicast address made of these octets.
    pub const fn local(mut octets: [u8; 6]) -> Self {
        octets[0] = octets[0] & !1 | 2;
        Self(octets)
    }

    /// The six octets.
    pub const fn octets(self) -> [u8; 6] {
        self.0
    }

    pub(crate) fn from_bytes(bytes: &[u8]) -> Option<Self> {
        bytes.try_into().ok().map(Self)
    }
}

impl FromStr for Mac {
    type Err = ParseMacError;

    fn from_str(text: &str) -> Result<Self, ParseMacError> {
        let mut octets = [0; 6];
        let mut pairs = text.split([':', '-']);
        for octet in &mut octets {
            *octet = pairs
                .next()
                .filter(|pair| pair.len() == 2 && pair.bytes().all(|b| b.is_ascii_hexdigit()))
                .and_then(|pair| u8::from_str_radix(pair, 16).ok())
                .ok_or_else(|| ParseMacError(text.to_owned()))?;
        }
        let is_unicast = octets[0] & 1 == 0 && octets != [0; 6];
        if pairs.next().is_some() || !is_unicast {
            return Err(ParseMacError(text.to_owned()));
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
    use rstest::rstest;

    use super::*;

    #[test]
    fn display_and_parse_round_trip() {
        let mac = Mac::local([0xff, 1, 2, 3, 4, 0xab]);
        assert_eq!(mac.to_string(), "fe:01:02:03:04:ab");
        assert_eq!(mac.to_string().parse::<Mac>().unwrap(), mac);
        assert_eq!("FE-01-02-03-04-AB".parse::<Mac>().unwrap(), mac);
    }

    #[rstest]
    #[case::empty("")]
    #[case::multicast("01:02:03:04:05:06")]
    #[case::zero("00:00:00:00:00:00")]
    #[case::short("02:02:03:04:05")]
    #[case::long("02:02:03:04:05:06:07")]
    #[case::one_digit("02:02:03:04:05:6")]
    #[case::sign("02:02:03:04:05:+6")]
    fn other_text_is_rejected(#[case] text: &str) {
        assert!(text.parse::<Mac>().is_err());
    }
}
