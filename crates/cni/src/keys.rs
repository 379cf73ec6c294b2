//! Reading keys of a configuration: a wrong type is an error that names key and value.

use std::time::Duration;

use serde_json::{Map, Value};

use crate::Error;

/// An object of the configuration, and the path that leads to it.
#[derive(Clone, Copy, Debug)]
pub struct Keys<'a> {
    map: &'a Map<String, Value>,
    path: &'a str,
}

impl<'a> Keys<'a> {
    /// The keys of `map`, which stands under `path` (empty for the top).
    pub fn new(map: &'a Map<String, Value>, path: &'a str) -> Self {
        Self { map, path }
    }

    /// All of them.
    pub fn map(&self) -> &'a Map<String, Value> {
        self.map
    }

    /// The key with the path that leads to it.
    pub fn name(&self, key: &str) -> String {
        if self.path.is_empty() {
            key.to_owned()
        } else {
            format!("{}.{key}", self.path)
        }
    }

    /// The value, if it is there; `null` is as good as absent.
    ///
    /// A key that differs in case only is taken if there is no better one: plugins in Go read keys so, and
    /// containerd relies on that: its port mappings have a `HostPort`.
    pub fn value(&self, key: &str) -> Option<&'a Value> {
        let alike = || {
            let mut all = self.map.iter();
            all.find(|(name, _)| name.eq_ignore_ascii_case(key))
                .map(|(_, value)| value)
        };
        let found = self.map.get(key).or_else(alike);
        found.filter(|value| !value.is_null())
    }

    /// A text.
    pub fn text(&self, key: &str) -> Result<Option<&'a str>, Error> {
        self.typed(key, "text", Value::as_str)
    }

    /// A truth value.
    pub fn flag(&self, key: &str) -> Result<Option<bool>, Error> {
        self.typed(key, "true or false", Value::as_bool)
    }

    /// An object.
    pub fn object(&self, key: &str) -> Result<Option<&'a Map<String, Value>>, Error> {
        self.typed(key, "an object", Value::as_object)
    }

    /// A list.
    pub fn list(&self, key: &str) -> Result<Option<&'a Vec<Value>>, Error> {
        self.typed(key, "a list", Value::as_array)
    }

    /// A time in seconds, which may have a fraction.
    pub fn seconds(&self, key: &str) -> Result<Option<Duration>, Error> {
        self.typed(key, "a number of seconds above 0, at most 3600", |value| {
            let seconds = value
                .as_f64()
                .filter(|seconds| *seconds > 0.0 && *seconds <= 3600.0)?;
            Some(Duration::from_secs_f64(seconds))
        })
    }

    /// A list of texts; an absent one is empty.
    pub fn texts(&self, key: &str) -> Result<Vec<String>, Error> {
        let list = self.list(key)?.map(Vec::as_slice).unwrap_or_default();
        list.iter()
            .map(|item| item.as_str().map(str::to_owned))
            .collect::<Option<_>>()
            .ok_or_else(|| self.wrong(key, "a list of texts"))
    }

    /// An MTU in bytes: what the kernel takes for a veth.
    pub fn mtu(&self, key: &str) -> Result<Option<u32>, Error> {
        self.typed(key, "a number from 68 to 65535", |value| {
            u32::try_from(value.as_u64()?)
                .ok()
                .filter(|mtu| (68..=65535).contains(mtu))
        })
    }

    /// The error for a value that isn't what it must be.
    pub fn wrong(&self, key: &str, wanted: &str) -> Error {
        let value = self.value(key).map(shown).unwrap_or_default();
        Error::config(format!(
            "{} must be {wanted} and is {value}",
            self.name(key)
        ))
    }

    fn typed<T>(
        &self,
        key: &str,
        wanted: &str,
        read: impl FnOnce(&'a Value) -> Option<T>,
    ) -> Result<Option<T>, Error> {
        match self.value(key) {
            None => Ok(None),
            Some(value) => read(value).map(Some).ok_or_else(|| self.wrong(key, wanted)),
        }
    }
}

/// A value for an error message: short, and never what is inside of an object, which may be a
/// secret.
pub(crate) fn shown(value: &Value) -> String {
    const MAX_CHARS: usize = 120;
    match value {
        Value::Object(map) if !map.is_empty() => "an object".to_owned(),
        Value::Array(list) if list.iter().any(|item| item.is_object() || item.is_array()) => {
            "a list".to_owned()
        }
        value => value.to_string().chars().take(MAX_CHARS).collect(),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_wrong_type_is_named_by_path_and_value() {
        let map = json!({ "mtu": "big", "list": [1], "off": null });
        let keys = Keys::new(map.as_object().unwrap(), "delegate");
        let error = keys.mtu("mtu").unwrap_err();
        assert_eq!(error.code, crate::code::INVALID_CONFIG);
        assert!(
            error.msg.contains("delegate.mtu") && error.msg.contains("big"),
            "{error}"
        );
        assert!(keys.texts("list").is_err());
        assert_eq!(keys.text("off").unwrap(), None);
        assert_eq!(keys.text("absent").unwrap(), None);
    }

    #[test]
    fn case_counts_only_where_nothing_else_differs() {
        let map = json!({ "HostPort": 80, "hostport": 81, "HostIP": "10.0.0.1" });
        let keys = Keys::new(map.as_object().unwrap(), "");
        assert_eq!(keys.value("hostport"), Some(&json!(81)));
        assert!(keys.value("hostPort").is_some());
        assert_eq!(keys.text("hostIP").unwrap(), Some("10.0.0.1"));
        assert!(keys.flag("hostip").unwrap_err().msg.contains("10.0.0.1"));
    }

    #[test]
    fn an_mtu_that_no_link_can_have_is_refused() {
        for (value, valid) in [(67, false), (68, true), (65535, true), (65536, false)] {
            let map = json!({ "mtu": value });
            let keys = Keys::new(map.as_object().unwrap(), "");
            assert_eq!(keys.mtu("mtu").is_ok(), valid, "{value}");
        }
        let map = json!({ "mtu": -1 });
        assert!(Keys::new(map.as_object().unwrap(), "").mtu("mtu").is_err());
    }
}
