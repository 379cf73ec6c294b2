//! Lenient access to JSON: a field that is null, missing or of another type is empty, and invalid
//! elements of a list are skipped. One odd peer must not hide the others. Why not a crate:
//! `docs/adr/0035-lenient-json-without-serde-with.md`.

use std::str::FromStr;

use ipnet::IpNet;
use jiff::Timestamp;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value};

/// A JSON object; any other value has no fields.
#[derive(Clone, Copy, Debug)]
pub(super) struct LenientObject<'a>(Option<&'a Map<String, Value>>);

impl<'a> LenientObject<'a> {
    pub(super) fn of(value: &'a Value) -> Self {
        Self(value.as_object())
    }

    pub(super) fn value(self, name: &str) -> Option<&'a Value> {
        self.0?.get(name).filter(|value| !value.is_null())
    }

    /// Whether the field is present and not null.
    pub(super) fn has(self, name: &str) -> bool {
        self.value(name).is_some()
    }

    /// A nested object.
    pub(super) fn object(self, name: &str) -> Self {
        Self(self.value(name).and_then(Value::as_object))
    }

    pub(super) fn text(self, name: &str) -> String {
        self.borrowed(name).unwrap_or_default().to_owned()
    }

    pub(super) fn non_empty_text(self, name: &str) -> Option<String> {
        let text = self.borrowed(name)?;
        (!text.is_empty()).then(|| text.to_owned())
    }

    pub(super) fn flag(self, name: &str) -> bool {
        self.value(name).and_then(Value::as_bool) == Some(true)
    }

    pub(super) fn number(self, name: &str) -> u64 {
        self.value(name).and_then(Value::as_u64).unwrap_or_default()
    }

    /// A parsed string.
    pub(super) fn parsed<T: FromStr>(self, name: &str) -> Option<T> {
        self.borrowed(name)?.parse().ok()
    }

    /// A time other than Go's zero time.
    pub(super) fn time(self, name: &str) -> Option<Timestamp> {
        let time: Timestamp = self.parsed(name)?;
        (time > Timestamp::UNIX_EPOCH).then_some(time)
    }

    /// A field of any type.
    pub(super) fn typed<T: DeserializeOwned>(self, name: &str) -> Option<T> {
        T::deserialize(self.value(name)?).ok()
    }

    pub(super) fn list(self, name: &str) -> &'a [Value] {
        let list = self.value(name).and_then(Value::as_array);
        list.map(Vec::as_slice).unwrap_or_default()
    }

    /// A list of parsed strings.
    pub(super) fn parsed_list<T: FromStr>(self, name: &str) -> Vec<T> {
        let texts = self.list(name).iter().filter_map(Value::as_str);
        texts.filter_map(|text| text.parse().ok()).collect()
    }

    /// A list of prefixes, with host bits cleared.
    pub(super) fn prefixes(self, name: &str) -> Vec<IpNet> {
        self.parsed_list::<IpNet>(name)
            .iter()
            .map(IpNet::trunc)
            .collect()
    }

    fn borrowed(self, name: &str) -> Option<&'a str> {
        self.value(name)?.as_str()
    }
}

#[cfg(test)]
mod tests {
    use std::net::IpAddr;

    use serde_json::json;

    use super::*;

    #[test]
    fn invalid_fields_are_empty() {
        let value = json!({
            "null": null, "number": 7, "list": ["10.0.0.1", 5, null, "x", "fd00::1"],
            "zero": "0001-01-01T00:00:00Z", "time": "2026-11-15T19:40:23.5+01:00",
        });
        let fields = LenientObject::of(&value);
        assert_eq!(fields.text("null"), "");
        assert_eq!(fields.text("number"), "");
        assert_eq!(fields.number("list"), 0);
        assert!(!fields.has("null") && !fields.has("missing") && fields.has("zero"));
        assert_eq!(fields.parsed_list::<IpAddr>("list").len(), 2);
        assert_eq!(fields.parsed_list::<IpAddr>("number").len(), 0);
        assert_eq!(fields.time("zero"), None);
        assert_eq!(
            fields.time("time").unwrap().to_string(),
            "2026-11-15T18:40:23.5Z"
        );
        assert_eq!(LenientObject::of(&json!([1])).text("x"), "");
        assert_eq!(fields.object("list").text("x"), "");
    }

    #[test]
    fn prefixes_have_no_host_bits() {
        let value = json!({ "nets": ["10.0.0.1/24", "fd00::1/64", "10.0.0.0/33"] });
        let prefixes = LenientObject::of(&value).prefixes("nets");
        assert_eq!(
            prefixes,
            ["10.0.0.0/24", "fd00::/64"].map(|net| net.parse().unwrap())
        );
    }
}
