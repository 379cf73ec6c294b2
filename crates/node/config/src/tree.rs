//! What a source says before it has types: values, and where each of them stands.

use serde_json::{Map, Number};

use super::path::{KeyPath, Step};

/// Where a value stands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Origin {
    /// In the file, counted from 1.
    File { line: u64, column: u64 },
    /// In this environment variable.
    Variable(String),
    /// Behind this flag.
    Flag(&'static str),
    /// In no source: it holds what sources say.
    Nowhere,
}

/// A value and where it stands.
///
/// Not `Debug`: it may hold what should not be shown.
#[derive(Clone)]
pub(super) struct Node {
    pub(super) origin: Origin,
    pub(super) value: Value,
}

/// A value as YAML and JSON know it.
#[derive(Clone)]
pub(super) enum Value {
    Null,
    Flag(bool),
    Number(Number),
    Text(String),
    List(Vec<Node>),
    Map(Vec<Entry>),
}

/// A member of a mapping.
#[derive(Clone)]
pub(super) struct Entry {
    pub(super) name: String,
    /// Where the name stands.
    pub(super) origin: Origin,
    pub(super) node: Node,
}

/// What becomes of keys without a value.
#[derive(Clone, Copy, PartialEq)]
enum Nulls {
    LeftOut,
    Kept,
}

impl Node {
    /// The node at exactly this path.
    pub(super) fn at(&self, path: &KeyPath) -> Option<&Node> {
        path.steps().iter().try_fold(self, Self::child)
    }

    /// The node at this path, or the innermost around it.
    pub(super) fn nearest(&self, path: &KeyPath) -> &Node {
        let mut node = self;
        for step in path.steps() {
            match node.child(step) {
                Some(child) => node = child,
                None => break,
            }
        }
        node
    }

    fn child(&self, step: &Step) -> Option<&Node> {
        match (&self.value, step) {
            (Value::Map(entries), Step::Key(name)) => {
                let entry = entries.iter().find(|entry| entry.name == *name)?;
                Some(&entry.node)
            }
            (Value::List(items), Step::Item(index)) => items.get(*index),
            _ => None,
        }
    }

    /// Puts `leaf` where `path` says, making the mappings on the way.
    pub(super) fn insert(&mut self, path: &[Step], leaf: Node) {
        let [Step::Key(name), rest @ ..] = path else {
            *self = leaf;
            return;
        };
        if !matches!(self.value, Value::Map(_)) {
            self.value = Value::Map(Vec::new());
        }
        let Value::Map(entries) = &mut self.value else {
            return;
        };
        let index = entries.iter().position(|entry| entry.name == *name);
        let index = index.unwrap_or_else(|| {
            entries.push(Entry {
                name: name.clone(),
                origin: leaf.origin.clone(),
                node: Node {
                    origin: leaf.origin.clone(),
                    value: Value::Null,
                },
            });
            entries.len() - 1
        });
        entries[index].node.insert(rest, leaf);
    }

    /// Lays another source's values over this one's: mappings are merged, all else is replaced.
    pub(super) fn overlay(&mut self, other: Node) {
        match (&mut self.value, other.value) {
            (Value::Map(own), Value::Map(others)) => {
                for entry in others {
                    match own.iter_mut().find(|known| known.name == entry.name) {
                        Some(known) => known.node.overlay(entry.node),
                        None => own.push(entry),
                    }
                }
            }
            // A key without a value says nothing.
            (_, Value::Null) => {}
            (_, value) => {
                *self = Node {
                    origin: other.origin,
                    value,
                }
            }
        }
    }

    /// The value as JSON, without keys that have no value: those have their defaults. What is in a
    /// list is others' to define, and stays whole.
    pub(super) fn to_json(&self) -> serde_json::Value {
        self.json(Nulls::LeftOut)
    }

    fn json(&self, nulls: Nulls) -> serde_json::Value {
        match &self.value {
            Value::Null => serde_json::Value::Null,
            Value::Flag(flag) => (*flag).into(),
            Value::Number(number) => number.clone().into(),
            Value::Text(text) => text.as_str().into(),
            Value::List(items) => items.iter().map(|item| item.json(Nulls::Kept)).collect(),
            Value::Map(entries) => {
                let said = entries.iter().filter(|entry| {
                    nulls == Nulls::Kept || !matches!(entry.node.value, Value::Null)
                });
                let members = said.map(|entry| (entry.name.clone(), entry.node.json(nulls)));
                members.collect::<Map<_, _>>().into()
            }
        }
    }

    /// JSON as a tree that stands all in one place.
    pub(super) fn from_json(value: serde_json::Value, origin: &Origin) -> Self {
        let value = match value {
            serde_json::Value::Null => Value::Null,
            serde_json::Value::Bool(flag) => Value::Flag(flag),
            serde_json::Value::Number(number) => Value::Number(number),
            serde_json::Value::String(text) => Value::Text(text),
            serde_json::Value::Array(items) => {
                let items = items.into_iter().map(|item| Self::from_json(item, origin));
                Value::List(items.collect())
            }
            serde_json::Value::Object(members) => {
                let entries = members.into_iter().map(|(name, value)| Entry {
                    name,
                    origin: origin.clone(),
                    node: Self::from_json(value, origin),
                });
                Value::Map(entries.collect())
            }
        };
        Self {
            origin: origin.clone(),
            value,
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn tree(value: serde_json::Value) -> Node {
        Node::from_json(value, &Origin::Flag("--test"))
    }

    #[test]
    fn the_later_source_wins_key_by_key_and_lists_are_replaced() {
        let mut all = tree(json!({"a": {"x": 1, "list": [1, 2]}, "b": 2}));
        all.overlay(tree(json!({"a": {"list": [3], "y": 4}, "b": null})));
        assert_eq!(
            all.to_json(),
            json!({"a": {"x": 1, "list": [3], "y": 4}, "b": 2})
        );
    }

    #[test]
    fn keys_without_a_value_are_left_out_but_not_in_lists() {
        let all = tree(json!({"a": null, "b": {"c": null}, "d": [null, {"e": null}]}));
        assert_eq!(all.to_json(), json!({"b": {}, "d": [null, {"e": null}]}));
    }

    #[test]
    fn a_leaf_is_inserted_with_all_that_is_around_it() {
        let mut all = tree(json!({"a": 1}));
        let path = KeyPath::from("b.c.d");
        all.insert(path.steps(), tree(json!(2)));
        assert_eq!(all.to_json(), json!({"a": 1, "b": {"c": {"d": 2}}}));
    }

    #[test]
    fn what_is_not_there_is_looked_for_around_it() {
        let all = tree(json!({"a": {"list": [7]}}));
        let path = KeyPath::from("a.list").item(1);
        assert!(all.at(&path).is_none());
        assert_eq!(all.nearest(&path).to_json(), json!([7]));
    }
}
