//! Parses YAML into a tree with lines and columns. Limits protect against alias bombs.

use std::fmt;

use serde::de::{Deserialize, Deserializer, MapAccess, SeqAccess, Visitor};
use serde_json::Number;
use serde_saphyr::{Error, Spanned, UserMessageFormatter};

use super::tree::{Entry, Node, Origin, Value};

/// Our schema has five levels; the configuration of a plugin may have more.
const MAX_DEPTH: usize = 32;
const MAX_NODES: usize = 200_000;
const MAX_ALIAS_EVENTS: usize = 20_000;

#[derive(Debug)]
pub(super) struct YamlError {
    /// Line and column.
    pub(super) position: Option<(u64, u64)>,
    pub(super) text: String,
}

/// Reads one document.
pub(super) fn parse(text: &str) -> Result<Node, YamlError> {
    let options = serde_saphyr::options! {
        // `off` is not a boolean, and errors must not quote secrets.
        strict_booleans: true,
        with_snippet: false,
        budget: serde_saphyr::budget! {
            max_depth: MAX_DEPTH,
            max_nodes: MAX_NODES,
            max_events: 4 * MAX_NODES,
        },
        alias_limits: serde_saphyr::alias_limits! {
            max_total_replayed_events: MAX_ALIAS_EVENTS,
        },
    };
    serde_saphyr::from_str_with_options(text, options).map_err(|error| describe(&error))
}

fn describe(error: &Error) -> YamlError {
    let mut error = error.without_snippet();
    if let Error::AliasError { error: cause, .. } = error {
        error = cause;
    }
    let position = error
        .location()
        .filter(|location| location.line() > 0)
        .map(|location| (location.line(), location.column()));
    // Replaces messages that quote the input, which may be a secret.
    let text = match error {
        Error::MultipleDocuments { .. } => {
            "a second document starts here, and only one is allowed: remove the \"---\" before it"
                .to_owned()
        }
        Error::DuplicateMappingKey { .. } => "duplicate key: keep one of them".to_owned(),
        Error::Budget { .. }
        | Error::AliasReplayLimitExceeded { .. }
        | Error::AliasExpansionLimitExceeded { .. }
        | Error::AliasReplayStackDepthExceeded { .. }
        | Error::AliasReplayCounterOverflow { .. } => {
            "too large or too deeply nested: simplify it".to_owned()
        }
        Error::UnknownAnchor { .. } => {
            "alias without an anchor: quote the value if it begins with \"*\"".to_owned()
        }
        Error::Message { .. } | Error::Eof { .. } | Error::ExternalMessage { .. } => {
            let message = error.render_with_formatter(&UserMessageFormatter);
            let message = message.lines().next().unwrap_or_default();
            let message = message.split(" at line ").next().unwrap_or_default();
            format!("not valid YAML: {message}; check indentation, quotes and brackets")
        }
        _ => "not valid YAML: check tags, quotes and brackets".to_owned(),
    };
    YamlError { position, text }
}

impl<'de> Deserialize<'de> for Node {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let spanned = Spanned::<Value>::deserialize(deserializer)?;
        Ok(Self {
            origin: origin(spanned.referenced),
            value: spanned.value,
        })
    }
}

fn origin(location: serde_saphyr::Location) -> Origin {
    Origin::File {
        line: location.line(),
        column: location.column(),
    }
}

impl<'de> Deserialize<'de> for Value {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(AnyValue)
    }
}

struct AnyValue;

impl<'de> Visitor<'de> for AnyValue {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a value")
    }

    fn visit_bool<E>(self, flag: bool) -> Result<Value, E> {
        Ok(Value::Flag(flag))
    }

    fn visit_i64<E>(self, number: i64) -> Result<Value, E> {
        Ok(Value::Number(number.into()))
    }

    fn visit_u64<E>(self, number: u64) -> Result<Value, E> {
        Ok(Value::Number(number.into()))
    }

    // No key accepts it; the check refuses it as text.
    fn visit_i128<E>(self, number: i128) -> Result<Value, E> {
        Ok(Value::Text(number.to_string()))
    }

    fn visit_u128<E>(self, number: u128) -> Result<Value, E> {
        Ok(Value::Text(number.to_string()))
    }

    fn visit_f64<E>(self, number: f64) -> Result<Value, E> {
        let number = Number::from_f64(number);
        Ok(number.map_or(Value::Text(".nan".to_owned()), Value::Number))
    }

    fn visit_str<E>(self, text: &str) -> Result<Value, E> {
        Ok(Value::Text(text.to_owned()))
    }

    fn visit_string<E>(self, text: String) -> Result<Value, E> {
        Ok(Value::Text(text))
    }

    fn visit_unit<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_none<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_some<D: Deserializer<'de>>(self, deserializer: D) -> Result<Value, D::Error> {
        Value::deserialize(deserializer)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Value, A::Error> {
        let mut list = Vec::new();
        while let Some(item) = items.next_element()? {
            list.push(item);
        }
        Ok(Value::List(list))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut members: A) -> Result<Value, A::Error> {
        let mut entries = Vec::new();
        while let Some(name) = members.next_key::<Spanned<String>>()? {
            let node = members.next_value()?;
            entries.push(Entry {
                origin: origin(name.referenced),
                name: name.value,
                node,
            });
        }
        Ok(Value::Map(entries))
    }
}

#[cfg(test)]
mod tests {
    use rstest::rstest;
    use serde_json::json;

    use super::*;
    use crate::path::KeyPath;

    fn position(node: &Node) -> (u64, u64) {
        match node.origin {
            Origin::File { line, column } => (line, column),
            _ => panic!("not of a file"),
        }
    }

    #[test]
    fn values_and_keys_have_locations() {
        let tree = parse("a:\n  b: 1\n  list:\n    - x\n    - {k: v}\n").unwrap();
        let at = |path: &KeyPath| position(tree.at(path).unwrap());
        assert_eq!(at(&"a.b".into()), (2, 6));
        assert_eq!(at(&KeyPath::from("a.list").item(0)), (4, 7));
        assert_eq!(at(&KeyPath::from("a.list").item(1).key("k")), (5, 11));
        let Value::Map(entries) = &tree.value else {
            panic!("no mapping")
        };
        assert_eq!(
            entries[0].origin,
            Origin::File { line: 1, column: 1 },
            "the location of the key"
        );
    }

    #[rstest]
    #[case("", json!(null))]
    #[case("# nothing\n", json!(null))]
    #[case("---\n", json!(null))]
    #[case("---\na: 1\n...\n", json!({"a": 1}))]
    #[case("a: off\nb: \"1\"\nc: 1\nd: true\ne: 10.0.0.0/8\n", json!({"a": "off", "b": "1", "c": 1, "d": true, "e": "10.0.0.0/8"}))]
    #[case("a: &x {k: 1}\nb: *x\n", json!({"a": {"k": 1}, "b": {"k": 1}}))]
    #[case("b: &x {k: 1}\na: {<<: *x, l: 2}\n", json!({"b": {"k": 1}, "a": {"k": 1, "l": 2}}))]
    #[case("1: x\n", json!({"1": "x"}))]
    #[case("\u{feff}a: 1\r\nb: 2\r\n", json!({"a": 1, "b": 2}))]
    fn yaml_is_parsed(#[case] text: &str, #[case] expected: serde_json::Value) {
        assert_eq!(parse(text).unwrap().to_json(), expected);
    }

    #[rstest]
    #[case("a: 1\n---\nb: 2\n", 3, "second document")]
    #[case("a: 1\na: 2\n", 2, "duplicate key")]
    #[case("a: [1\nb: 2\n", 2, "brackets")]
    #[case("a: b: c\n", 1, "not valid YAML")]
    #[case("a: \"x\n", 2, "quotes")]
    #[case("a:\n\t- x\n", 2, "not valid YAML")]
    #[case("a: *nowhere\n", 1, "without an anchor")]
    fn invalid_yaml_is_refused_with_its_line(
        #[case] text: &str,
        #[case] line: u64,
        #[case] words: &str,
    ) {
        let Err(error) = parse(text) else {
            panic!("taken")
        };
        assert!(error.text.contains(words), "{error:?}");
        assert_eq!(
            error.position.map(|(line, _)| line),
            Some(line),
            "{error:?}"
        );
    }

    #[test]
    fn depth_and_aliases_are_limited() {
        let deep = format!("{}{}", "[".repeat(5000), "]".repeat(5000));
        assert!(parse(&deep).is_err());
        let mut bomb = "a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n".to_owned();
        for level in 1..10 {
            let last = format!("*a{}, ", level - 1).repeat(10);
            bomb.extend([format!("a{level}: &a{level} [{last}]\n")]);
        }
        let Err(error) = parse(&bomb) else {
            panic!("taken")
        };
        assert!(error.text.contains("too large"), "{error:?}");
    }
}
