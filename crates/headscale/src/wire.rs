//! How Headscale writes values in JSON: 64-bit numbers as strings, empty values as null.

use std::str::FromStr;

use jiff::Timestamp;
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, PercentEncode, utf8_percent_encode};
use serde::{Deserialize, Deserializer, de};

/// A `uint64` as a string, which is gRPC's JSON mapping, or as a number.
pub(crate) fn uint64<'de, D: Deserializer<'de>>(input: D) -> Result<u64, D::Error> {
    #[derive(Deserialize)]
    #[serde(untagged)]
    enum Number {
        Text(String),
        Plain(u64),
    }
    match Number::deserialize(input)? {
        Number::Text(text) => text
            .parse()
            .map_err(|_| de::Error::custom("invalid number")),
        Number::Plain(number) => Ok(number),
    }
}

pub(crate) fn or_default<'de, D, T>(input: D) -> Result<T, D::Error>
where
    D: Deserializer<'de>,
    T: Deserialize<'de> + Default,
{
    Ok(Option::deserialize(input)?.unwrap_or_default())
}

/// Elements that don't parse are skipped: they come from other nodes.
pub(crate) fn parsed_list<'de, D, T>(input: D) -> Result<Vec<T>, D::Error>
where
    D: Deserializer<'de>,
    T: FromStr,
{
    let texts: Vec<String> = or_default(input)?;
    Ok(texts.iter().filter_map(|text| text.parse().ok()).collect())
}

/// Some versions write "never" as the year 1, Go's zero time.
pub(crate) fn time<'de, D: Deserializer<'de>>(input: D) -> Result<Option<Timestamp>, D::Error> {
    let text: Option<String> = Option::deserialize(input)?;
    let Some(text) = text.filter(|text| !text.is_empty()) else {
        return Ok(None);
    };
    let time: Timestamp = text
        .parse()
        .map_err(|_| de::Error::custom("invalid timestamp"))?;
    Ok(Some(time).filter(|time| *time > Timestamp::UNIX_EPOCH))
}

/// Percent-encodes a value for a path segment or a query.
pub(crate) fn escape(value: &str) -> PercentEncode<'_> {
    const RESERVED: &AsciiSet = &NON_ALPHANUMERIC
        .remove(b'-')
        .remove(b'.')
        .remove(b'_')
        .remove(b'~');
    utf8_percent_encode(value, RESERVED)
}

/// The body of a response that only confirms.
#[derive(Deserialize)]
pub(crate) struct Empty {}

#[cfg(test)]
mod tests {
    use ipnet::IpNet;

    use super::*;

    #[derive(Deserialize)]
    struct Row {
        #[serde(deserialize_with = "uint64")]
        id: u64,
        #[serde(default, deserialize_with = "parsed_list")]
        routes: Vec<IpNet>,
        #[serde(default, deserialize_with = "time")]
        expiry: Option<Timestamp>,
        #[serde(default, deserialize_with = "or_default")]
        online: bool,
    }

    fn row(text: &str) -> Row {
        serde_json::from_str(text).unwrap()
    }

    #[test]
    fn numbers_are_strings_or_numbers() {
        assert_eq!(row(r#"{"id":"18446744073709551615"}"#).id, u64::MAX);
        assert_eq!(row(r#"{"id":7}"#).id, 7);
        assert!(serde_json::from_str::<Row>(r#"{"id":"-1"}"#).is_err());
    }

    #[test]
    fn null_and_missing_fields_are_empty() {
        for text in [
            r#"{"id":1}"#,
            r#"{"id":1,"routes":null,"expiry":null,"online":null}"#,
        ] {
            let row = row(text);
            assert!(row.routes.is_empty() && row.expiry.is_none() && !row.online);
        }
    }

    #[test]
    fn the_year_1_is_never() {
        let never = row(r#"{"id":1,"expiry":"0001-01-01T00:00:00Z"}"#);
        assert_eq!(never.expiry, None);
        let row = row(r#"{"id":1,"expiry":"2026-11-16T06:00:00.123456789Z"}"#);
        assert_eq!(row.expiry.unwrap().as_second(), 1_794_808_800);
    }

    #[test]
    fn an_invalid_route_is_skipped() {
        let row = row(r#"{"id":1,"routes":["nonsense","10.0.0.0/8","fd00::/8"]}"#);
        assert_eq!(row.routes.len(), 2);
    }

    #[test]
    fn names_are_escaped_in_paths() {
        let escaped = escape("a/../b?c&d é").to_string();
        assert_eq!(escaped, "a%2F..%2Fb%3Fc%26d%20%C3%A9");
    }
}
