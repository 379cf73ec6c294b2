//! Whether what a source says fits the schema: all that does not, at once.
//!
//! A value is tried alone, in an otherwise empty configuration, by the same types that take the whole
//! one later. So one that can't be understood hides no other.

use serde::Deserialize;
use serde_json::{Map, Value as Json, json};

use super::keys::{Key, Kind, Shape};
use super::path::{KeyPath, Step};
use super::problem::{Complaint, Place, place};
use super::render::flow;
use super::schema::Config;
use super::suggest::{nearest, unknown_key};
use super::tree::{Entry, Node, Origin, Value};

/// Everything in a source's tree that the schema does not allow.
pub(super) fn check(root: &Key, tree: &Node, file: &Place) -> Vec<Complaint> {
    let mut check = Check {
        root,
        file,
        complaints: Vec::new(),
    };
    check.node(root, tree);
    check.complaints
}

struct Check<'a> {
    root: &'a Key,
    file: &'a Place,
    complaints: Vec<Complaint>,
}

impl Check<'_> {
    fn complain(&mut self, origin: &Origin, path: &KeyPath, text: impl Into<String>) {
        let is_whole = path.steps().is_empty();
        self.complaints.push(Complaint {
            place: place(origin, self.file),
            key: (!is_whole).then(|| path.clone()),
            text: text.into(),
        });
    }

    fn node(&mut self, key: &Key, node: &Node) {
        match (&key.shape, &node.value) {
            // A key without a value has its default: so sections may have all their keys commented
            // out.
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
                        self.complain(
                            &entry.origin,
                            &path,
                            "has no value: write one, or take it away",
                        );
                    } else {
                        self.texts(&path, key, &entry.node);
                    }
                }
            }
            (Shape::Section(_) | Shape::Table, _) => {
                let what = "must have keys of its own, each on a line, indented by two blanks";
                let what = if key.path.steps().is_empty() {
                    "a configuration has keys, as in \"network:\"; see headcni-daemon config example"
                } else {
                    what
                };
                self.complain(&node.origin, &key.path, what);
            }
            (Shape::Leaf(kind), _) => self.leaf(key, kind, node),
        }
    }

    fn unknown(&mut self, section: &Key, entry: &Entry) {
        let text = unknown_key(self.root, section, &entry.name);
        self.complain(&entry.origin, &section.path.key(&entry.name), text);
    }

    fn leaf(&mut self, key: &Key, kind: &Kind, node: &Node) {
        match wrong_kind(kind, &node.value) {
            Some(text) => self.complain(&node.origin, &key.path, text),
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
            Some(item) => self.complain(&item.origin, path, "must be texts: put them in quotes"),
            None => self.typed(path, key, node),
        }
    }

    /// Tries a value by the types that it will have; a list member by member, to know which one.
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
                    text = format!("{text}; write it like {}", flow(example));
                }
                self.complain(&part.origin, path, text);
            }
        }
    }
}

/// A configuration that says nothing but this.
fn alone(path: &KeyPath, json: Json) -> Json {
    path.steps()
        .iter()
        .rev()
        .fold(json, |inner, step| match step {
            Step::Key(name) => Json::Object(Map::from_iter([(name.clone(), inner)])),
            Step::Item(_) => json!([inner]),
        })
}

/// What to say about a value that is of another kind than its key takes.
fn wrong_kind(kind: &Kind, value: &Value) -> Option<String> {
    let text = match (kind, value) {
        (Kind::Flag, Value::Flag(_))
        | (Kind::Text { .. } | Kind::Texts { or_one: true }, Value::Text(_))
        | (Kind::Text { or_number: true }, Value::Number(_))
        | (Kind::Texts { .. }, Value::List(_)) => return None,
        (Kind::Flag, _) => "must be true or false".to_owned(),
        (Kind::Number { least, most }, Value::Number(number)) => {
            let number = number
                .as_u64()
                .filter(|number| (least..=most).contains(&number));
            if number.is_some() {
                return None;
            }
            format!("must be a whole number from {least} to {most}")
        }
        (Kind::Number { least, most }, _) => {
            format!("must be a whole number from {least} to {most}, without quotes and unit")
        }
        (Kind::Choice(choices), value) => {
            let words: Vec<&str> = choices.iter().map(|(word, _)| word.as_str()).collect();
            let meant = match value {
                Value::Text(word) if words.contains(&word.as_str()) => return None,
                Value::Text(word) => nearest(word, words.iter().copied()),
                // What YAML of version 1.1 makes of it, Helm's too.
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
            "must be a text: put it in quotes".to_owned()
        }
        (Kind::Text { .. }, _) => "must be a single text".to_owned(),
        (Kind::Texts { or_one }, _) => {
            let one = if *or_one { "a text or " } else { "" };
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
