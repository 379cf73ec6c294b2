//! Types of values with their own syntax.
//!
//! Errors name the syntax and never quote the input: it may be a secret in the invalid place.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use ipnet::IpNet;
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// CIDRs: one, a list, or a comma-separated string.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Networks(pub Vec<IpNet>);

impl FromStr for Networks {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let parts = text
            .split(',')
            .map(str::trim)
            .filter(|part| !part.is_empty());
        let networks = parts.map(network).collect::<Result<Vec<_>, _>>()?;
        Ok(Self(networks))
    }
}

fn network(text: &str) -> Result<IpNet, String> {
    let net: IpNet = text
        .parse()
        .map_err(|_| "not a CIDR such as 10.244.0.0/16 or fd00:10:244::/56".to_owned())?;
    if net.addr() != net.network() {
        return Err(format!(
            "{text} has host bits: did you mean {}?",
            net.trunc()
        ));
    }
    Ok(net)
}

impl fmt::Display for Networks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let texts: Vec<String> = self.0.iter().map(IpNet::to_string).collect();
        f.write_str(&texts.join(","))
    }
}

impl Serialize for Networks {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self.0.as_slice() {
            [one] => one.serialize(serializer),
            all => all.serialize(serializer),
        }
    }
}

impl<'de> Deserialize<'de> for Networks {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        #[derive(Deserialize)]
        #[serde(
            untagged,
            expecting = "a CIDR such as \"10.244.0.0/16\", or a list of CIDRs"
        )]
        enum Form {
            Text(String),
            List(Vec<String>),
        }
        let texts = match Form::deserialize(deserializer)? {
            Form::Text(text) => vec![text],
            Form::List(texts) => texts,
        };
        let mut all = Vec::new();
        for text in texts {
            let Self(networks) = text.parse().map_err(serde::de::Error::custom)?;
            all.extend(networks);
        }
        Ok(Self(all))
    }
}

impl JsonSchema for Networks {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "Networks".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({
            "description": "a CIDR such as 10.244.0.0/16, a comma-separated list, or a YAML list",
            "anyOf": [
                { "type": "string" },
                { "type": "array", "items": { "type": "string" } }
            ]
        })
    }
}

/// The prefix lengths of a node's pod CIDRs: `/24`, or `/24,/64` for IPv4 and IPv6.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PerNode {
    pub ipv4: u8,
    pub ipv6: u8,
}

impl Default for PerNode {
    fn default() -> Self {
        Self { ipv4: 24, ipv6: 64 }
    }
}

impl FromStr for PerNode {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let mut lengths = Self::default();
        let mut parts = text
            .split(',')
            .map(|part| part.trim().trim_start_matches('/'));
        let invalid = || "not a prefix length such as /24, or /24,/64 for IPv4 and IPv6".to_owned();
        let first: u8 = parts
            .next()
            .unwrap_or_default()
            .parse()
            .map_err(|_| invalid())?;
        match parts.next() {
            Some(second) => {
                lengths.ipv4 = first;
                lengths.ipv6 = second.parse().map_err(|_| invalid())?;
            }
            // Too long for IPv4.
            None if first > 32 => lengths.ipv6 = first,
            None => lengths.ipv4 = first,
        }
        let is_valid = (1..=30).contains(&lengths.ipv4)
            && (1..=126).contains(&lengths.ipv6)
            && parts.next().is_none();
        if is_valid {
            Ok(lengths)
        } else {
            Err(invalid())
        }
    }
}

impl fmt::Display for PerNode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "/{},/{}", self.ipv4, self.ipv6)
    }
}

impl Serialize for PerNode {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for PerNode {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        #[derive(Deserialize)]
        #[serde(
            untagged,
            expecting = "a prefix length such as /24, or /24,/64 for IPv4 and IPv6"
        )]
        enum Form {
            Number(u8),
            Text(String),
        }
        let parsed = match Form::deserialize(deserializer)? {
            Form::Number(length) => length.to_string().parse(),
            Form::Text(text) => text.parse(),
        };
        parsed.map_err(serde::de::Error::custom)
    }
}

impl JsonSchema for PerNode {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "PerNode".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({
            "type": ["string", "integer"],
            "pattern": "^/?[0-9]+(,\\s*/?[0-9]+)?$",
            "description": "/24, or /24,/64 for IPv4 and IPv6"
        })
    }
}

/// A duration: `30s`, `2m`, `1h30m`, `500ms`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Span(pub Duration);

impl FromStr for Span {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let invalid = || "not a duration such as 30s, 2m or 1h30m".to_owned();
        let (mut total, mut rest) = (Duration::ZERO, text);
        while !rest.is_empty() {
            let digits = rest.bytes().take_while(u8::is_ascii_digit).count();
            let number: u64 = rest[..digits].parse().map_err(|_| invalid())?;
            rest = &rest[digits..];
            let letters = rest.bytes().take_while(u8::is_ascii_alphabetic).count();
            let unit = match &rest[..letters] {
                "ms" => Duration::from_millis(1),
                "s" => Duration::from_secs(1),
                "m" => Duration::from_mins(1),
                "h" => Duration::from_hours(1),
                _ => return Err(invalid()),
            };
            let number = u32::try_from(number).map_err(|_| invalid())?;
            let span = unit.checked_mul(number).ok_or_else(invalid)?;
            total = total.checked_add(span).ok_or_else(invalid)?;
            rest = &rest[letters..];
        }
        if total.is_zero() {
            Err(invalid())
        } else {
            Ok(Self(total))
        }
    }
}

impl fmt::Display for Span {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let millis = self.0.as_millis();
        let units = [(3_600_000, "h"), (60_000, "m"), (1000, "s"), (1, "ms")];
        let mut rest = millis;
        for (length, unit) in units {
            if rest >= length {
                write!(f, "{}{unit}", rest / length)?;
                rest %= length;
            }
        }
        Ok(())
    }
}

impl Serialize for Span {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Span {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        text.parse().map_err(serde::de::Error::custom)
    }
}

impl JsonSchema for Span {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "Span".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({
            "type": "string",
            "pattern": "^([0-9]+(ms|s|m|h))+$",
            "description": "a duration such as 30s, 2m or 1h30m"
        })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use rstest::rstest;

    use super::*;

    #[rstest]
    #[case("", &[])]
    #[case("10.244.1.0/24", &["10.244.1.0/24"])]
    #[case(" 10.244.1.0/24 , fd00::/64,", &["10.244.1.0/24", "fd00::/64"])]
    fn cidrs_are_separated_by_commas(#[case] text: &str, #[case] networks: &[&str]) {
        let Networks(parsed) = text.parse().unwrap();
        let texts: Vec<String> = parsed.iter().map(IpNet::to_string).collect();
        assert_eq!(texts, networks);
    }

    #[rstest]
    #[case("/24", 24, 64)]
    #[case("26", 26, 64)]
    #[case("/80", 24, 80)]
    #[case("/25, /72", 25, 72)]
    fn a_prefix_length_is_ipv4_unless_it_is_too_long(
        #[case] text: &str,
        #[case] ipv4: u8,
        #[case] ipv6: u8,
    ) {
        assert_eq!(text.parse(), Ok(PerNode { ipv4, ipv6 }));
    }

    #[rstest]
    #[case("/31")]
    #[case("/0")]
    #[case("/24,/127")]
    #[case("/24,/64,/1")]
    #[case("/24,")]
    #[case("-1")]
    #[case("")]
    fn an_unusable_prefix_length_is_refused(#[case] text: &str) {
        assert!(text.parse::<PerNode>().is_err());
    }

    #[rstest]
    #[case("30s", 30_000)]
    #[case("1h30m", 5_400_000)]
    #[case("500ms", 500)]
    fn a_duration_is_the_sum_of_its_parts(#[case] text: &str, #[case] millis: u64) {
        assert_eq!(text.parse(), Ok(Span(Duration::from_millis(millis))));
    }

    #[rstest]
    #[case("")]
    #[case("30")]
    #[case("s")]
    #[case("0s")]
    #[case("1d")]
    #[case("-1s")]
    #[case("1 s")]
    #[case("99999999999999999999s")]
    #[case("4294967296h")]
    #[case("1\u{b5}s")]
    fn an_invalid_duration_is_refused(#[case] text: &str) {
        assert!(text.parse::<Span>().is_err());
    }

    proptest! {
        #[test]
        fn values_survive_a_round_trip(
            millis in 1_u64..u64::from(u32::MAX),
            ipv4 in 1_u8..=30,
            ipv6 in 1_u8..=126,
            bits: u32,
            length in 0_u8..=32,
        ) {
            let span = Span(Duration::from_millis(millis));
            prop_assert_eq!(span.to_string().parse(), Ok(span));
            let lengths = PerNode { ipv4, ipv6 };
            prop_assert_eq!(lengths.to_string().parse(), Ok(lengths));
            let net = ipnet::Ipv4Net::new_assert(bits.into(), length).trunc();
            let networks = Networks(vec![net.into()]);
            prop_assert_eq!(networks.to_string().parse(), Ok(networks));
        }
    }
}
