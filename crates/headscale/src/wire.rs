//! How Headscale writes values in JSON: numbers as strings, nothing as null, and times that mean
//! never.

use std::fmt::Write as _;
use std::str::FromStr;

use jiff::Timestamp;
use serde::{Deserialize, Deserializer, de};

/// A number of 64 bits, which gRPC's JSON has as a string.
#[derive(Deserialize)]
#[serde(untagged)]
enum Number {
    Text(String),
    Plain(u64),
}

pub(super) fn number<'de, D: Deserializer<'de>>(input: D) -> Result<u64, D::Error> {
    match Number::deserialize(input)? {
        Number::Text(text) => text.parse().map_err(|_| de::Error::custom("no number")),
        Number::Plain(number) => Ok(number),
    }
}

/// Null is the same as nothing.
pub(super) fn or_default<'de, D, T>(input: D) -> Result<T, D::Error>
where
    D: Deserializer<'de>,
    T: Deserialize<'de> + Default,
{
    Ok(Option::deserialize(input)?.unwrap_or_default())
}

/// What can be read of a list. What a stranger has put there must not spoil the rest.
pub(super) fn readable<'de, D, T>(input: D) -> Result<Vec<T>, D::Error>
where
    D: Deserializer<'de>,
    T: FromStr,
{
    let texts: Vec<String> = or_default(input)?;
    Ok(texts.iter().filter_map(|text| text.parse().ok()).collect())
}

/// A time, if there is one: some versions have the year 1 for "never".
pub(super) fn time<'de, D: Deserializer<'de>>(input: D) -> Result<Option<Timestamp>, D::Error> {
    let text: Option<String> = Option::deserialize(input)?;
    let Some(text) = text.filter(|text| !text.is_empty()) else {
        return Ok(None);
    };
    let time: Timestamp = text.parse().map_err(|_| de::Error::custom("no time"))?;
    Ok(Some(time).filter(|time| *time > Timestamp::UNIX_EPOCH))
}

/// A text as part of a path or a query.
pub(super) fn escaped(text: &str) -> String {
    let mut escaped = String::new();
    for byte in text.bytes() {
        if byte.is_ascii_alphanumeric() || b"-._~".contains(&byte) {
            escaped.push(char::from(byte));
        } else {
            // Writing into a string does not fail.
            let _ = write!(escaped, "%{byte:02X}");
        }
    }
    escaped
}

/// An answer that says nothing but "done".
#[derive(Deserialize)]
pub(super) struct Done {}

#[cfg(test)]
mod tests {
    use ipnet::IpNet;

    use super::*;

    #[derive(Deserialize)]
    struct Row {
        #[serde(deserialize_with = "number")]
        id: u64,
        #[serde(default, deserialize_with = "readable")]
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
    fn numbers_come_in_two_forms() {
        assert_eq!(row(r#"{"id":"18446744073709551615"}"#).id, u64::MAX);
        assert_eq!(row(r#"{"id":7}"#).id, 7);
        assert!(serde_json::from_str::<Row>(r#"{"id":"-1"}"#).is_err());
    }

    #[test]
    fn null_and_absent_are_nothing() {
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
        assert_eq!(
            row(r#"{"id":1,"expiry":"0001-01-01T00:00:00Z"}"#).expiry,
            None
        );
        let row = row(r#"{"id":1,"expiry":"2026-11-16T06:00:00.123456789Z"}"#);
        assert_eq!(row.expiry.unwrap().as_second(), 1_794_808_800);
    }

    #[test]
    fn one_bad_route_spoils_nothing() {
        let row = row(r#"{"id":1,"routes":["nonsense","10.0.0.0/8","fd00::/8"]}"#);
        assert_eq!(row.routes.len(), 2);
    }

    #[test]
    fn nothing_of_a_name_gets_into_a_path_unescaped() {
        assert_eq!(escaped("a/../b?c&d é"), "a%2F..%2Fb%3Fc%26d%20%C3%A9");
    }
}
