//! Checks a source against the schema and reports all errors at once.
//!
//! Each value is deserialized alone, in an otherwise empty configuration, so that one error does not
//! hide another.

use serde::Deserialize;
use serde_json::{Map, Value as Json, json};

use super::keys::{Key, Kind, Shape};
use super::path::{KeyPath, Step};
use super::problem::{Diagnostic, Location, location};
use super::render::flow;
use super::schema::Config;
use super::suggest::{nearest, unknown_key};
use super::tree::{Entry, Node, Origin, Value};

/// Everything in a source that the schema does not allow.
pub(super) fn check(root: &Key, tree: &Node, file: &Location) -> Vec<Diagnostic> {
    let mut check = Check {
        root,
        file,
        diagnostics: Vec::new(),
    };
    check.node(root, tree);
    check.diagnostics
}

struct Check<'a> {
    root: &'a Key,
    file: &'a Location,
    diagnostics: Vec<Diagnostic>,
}

impl Check<'_> {
    fn refuse(&mut self, origin: &Origin, path: &KeyPath, text: impl Into<String>) {
        let is_whole = path.steps().is_empty();
        self.diagnostics.push(Diagnostic {
            location: location(origin, self.file),
            key: (!is_whole).then(|| path.clone()),
            text: text.into(),
        });
    }

    fn node(&mut self, key: &Key, node: &Node) {
        match (&key.shape, &node.value) {
            // A key without a value keeps its default: all keys of a section may be commented out.
            (_, Value::Null) => {}
            (Shape::Section(keys), Value::Map(entries)) => {
                for entry in entries {
                    match keys.iter().find(|key| key.name == entry.name) {
                        Some(key) => self.node(key, &entry.node),
                        None => self.unknown(key, entry),
                    }
                }
            }
            (Shape::Table, Value::Map(entries)) => {
                for entry in entries {
                    let path = key.path.key(&entry.name);
                    if matches!(entry.node.value, Value::Null) {
                        self.refuse(&entry.origin, &path, "has no value: add one, or remove it");
                    } else {
                        self.texts(&path, key, &entry.node);
                    }
                }
            }
            (Shape::Section(_) | Shape::Table, _) => {
                let what = "must be a mapping of keys, one per line, indented by two spaces";
                let what = if key.path.steps().is_empty() {
                    "must be a mapping of keys such as \"network:\"; see headcni-daemon config example"
                } else {
                    what
                };
                self.refuse(&node.origin, &key.path, what);
            }
            (Shape::Leaf(kind), _) => self.leaf(key, kind, node),
        }
    }

    fn unknown(&mut self, section: &Key, entry: &Entry) {
        let text = unknown_key(self.root, section, &entry.name);
        self.refuse(&entry.origin, &section.path.key(&entry.name), text);
    }

    fn leaf(&mut self, key: &Key, kind: &Kind, node: &Node) {
        match wrong_kind(kind, &node.value) {
            Some(text) => self.refuse(&node.origin, &key.path, text),
            None if matches!(kind, Kind::Texts { .. }) => self.texts(&key.path, key, node),
            None => self.typed(&key.path, key, node),
        }
    }

    fn texts(&mut self, path: &KeyPath, key: &Key, node: &Node) {
        let items = match &node.value {
            Value::List(items) => items.as_slice(),
            _ => &[],
        };
        match items
            .iter()
            .find(|item| !matches!(item.value, Value::Text(_)))
        {
            Some(item) => self.refuse(&item.origin, path, "must be strings: quote them"),
            None => self.typed(path, key, node),
        }
    }

    /// Deserializes a value; a list item by item, to locate the error.
    fn typed(&mut self, path: &KeyPath, key: &Key, node: &Node) {
        let parts: Vec<(&Node, Json)> = match &node.value {
            Value::List(items) if !matches!(key.shape, Shape::Leaf(Kind::Objects)) => {
                let alone = |item: &Node| Json::Array(vec![item.to_json()]);
                items.iter().map(|item| (item, alone(item))).collect()
            }
            _ => vec![(node, node.to_json())],
        };
        for (part, json) in parts {
            if let Err(error) = Config::deserialize(alone(path, json)) {
                let mut text = error.to_string();
                if let Some(example) = &key.example {
                    text = format!("{text}; for example {}", flow(example));
                }
                self.refuse(&part.origin, path, text);
            }
        }
    }
}

/// A configuration with only this key.
fn alone(path: &KeyPath, json: Json) -> Json {
    path.steps()
        .iter()
        .rev()
        .fold(json, |inner, step| match step {
            Step::Key(name) => Json::Object(Map::from_iter([(name.clone(), inner)])),
            Step::Item(_) => json!([inner]),
        })
}

/// The message for a value whose kind the key does not accept.
fn wrong_kind(kind: &Kind, value: &Value) -> Option<String> {
    let text = match (kind, value) {
        (Kind::Flag, Value::Flag(_))
        | (Kind::Text { .. } | Kind::Texts { or_one: true }, Value::Text(_))
        | (Kind::Text { or_number: true }, Value::Number(_))
        | (Kind::Texts { .. }, Value::List(_)) => return None,
        (Kind::Flag, _) => "must be true or false".to_owned(),
        (Kind::Number { min, max }, Value::Number(number)) => {
            let number = number
                .as_u64()
                .filter(|number| (min..=max).contains(&number));
            if number.is_some() {
                return None;
            }
            format!("must be a whole number from {min} to {max}")
        }
        (Kind::Number { min, max }, _) => {
            format!("must be a whole number from {min} to {max}, without quotes or a unit")
        }
        (Kind::Choice(choices), value) => {
            let words: Vec<&str> = choices.iter().map(|(word, _)| word.as_str()).collect();
            let meant = match value {
                Value::Text(word) if words.contains(&word.as_str()) => return None,
                Value::Text(word) => nearest(word, words.iter().copied()),
                // YAML 1.1, and so Helm, reads `off` as false.
                Value::Flag(false) => words.iter().copied().find(|word| *word == "off"),
                _ => None,
            };
            let meant = meant.map(|word| format!(", did you mean \"{word}\"?"));
            format!(
                "must be one of {}{}",
                words.join(", "),
                meant.unwrap_or_default()
            )
        }
        (Kind::Text { .. }, Value::Number(_) | Value::Flag(_)) => {
            "must be a string: quote it".to_owned()
        }
        (Kind::Text { .. }, _) => "must be a single string".to_owned(),
        (Kind::Texts { or_one }, _) => {
            let one = if *or_one { "a string or " } else { "" };
            format!("must be {one}a list like [\"one\", \"two\"]")
        }
        (Kind::Objects, Value::List(items)) => {
            if items.iter().all(|item| matches!(item.value, Value::Map(_))) {
                return None;
            }
            "must be a list of mappings, each like {type: tuning}".to_owned()
        }
        (Kind::Objects, _) => "must be a list of mappings, each like {type: tuning}".to_owned(),
    };
    Some(text)
}
