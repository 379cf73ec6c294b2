//! The untyped values of a source and their locations.

use serde_json::{Map, Number};

use super::path::{KeyPath, Step};

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Origin {
    /// Line and column count from 1.
    File {
        line: u64,
        column: u64,
    },
    Variable(String),
    Flag(&'static str),
    /// A container of values from several sources.
    Nowhere,
}

/// A value and its origin. Not `Debug`: it may contain secrets.
#[derive(Clone)]
pub(super) struct Node {
    pub(super) origin: Origin,
    pub(super) value: Value,
}

#[derive(Clone)]
pub(super) enum Value {
    Null,
    Flag(bool),
    Number(Number),
    Text(String),
    List(Vec<Node>),
    Map(Vec<Entry>),
}

#[derive(Clone)]
pub(super) struct Entry {
    pub(super) name: String,
    /// The origin of the name.
    pub(super) origin: Origin,
    pub(super) node: Node,
}

/// How to render keys without a value.
#[derive(Clone, Copy, PartialEq)]
enum Nulls {
    Omit,
    Keep,
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

    /// Inserts `leaf` at `path` and creates the mappings on the way.
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

    /// Overrides values with those of another source. Mappings are merged, lists are replaced.
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
            // A key without a value overrides nothing.
            (_, Value::Null) => {}
            (_, value) => {
                *self = Node {
                    origin: other.origin,
                    value,
                }
            }
        }
    }

    /// The value as JSON. Keys without a value are omitted, so they get their defaults, except in
    /// lists, whose schema is not ours.
    pub(super) fn to_json(&self) -> serde_json::Value {
        self.json(Nulls::Omit)
    }

    fn json(&self, nulls: Nulls) -> serde_json::Value {
        match &self.value {
            Value::Null => serde_json::Value::Null,
            Value::Flag(flag) => (*flag).into(),
            Value::Number(number) => number.clone().into(),
            Value::Text(text) => text.as_str().into(),
            Value::List(items) => items.iter().map(|item| item.json(Nulls::Keep)).collect(),
            Value::Map(entries) => {
                let set = entries.iter().filter(|entry| {
                    nulls == Nulls::Keep || !matches!(entry.node.value, Value::Null)
                });
                let members = set.map(|entry| (entry.name.clone(), entry.node.json(nulls)));
                members.collect::<Map<_, _>>().into()
            }
        }
    }

    /// A tree from JSON, all with one origin.
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
    fn the_later_source_overrides_keys_and_lists() {
        let mut all = tree(json!({"a": {"x": 1, "list": [1, 2]}, "b": 2}));
        all.overlay(tree(json!({"a": {"list": [3], "y": 4}, "b": null})));
        assert_eq!(
            all.to_json(),
            json!({"a": {"x": 1, "list": [3], "y": 4}, "b": 2})
        );
    }

    #[test]
    fn keys_without_a_value_are_omitted_except_in_lists() {
        let all = tree(json!({"a": null, "b": {"c": null}, "d": [null, {"e": null}]}));
        assert_eq!(all.to_json(), json!({"b": {}, "d": [null, {"e": null}]}));
    }

    #[test]
    fn inserting_a_leaf_creates_its_sections() {
        let mut all = tree(json!({"a": 1}));
        let path = KeyPath::from("b.c.d");
        all.insert(path.steps(), tree(json!(2)));
        assert_eq!(all.to_json(), json!({"a": 1, "b": {"c": {"d": 2}}}));
    }

    #[test]
    fn the_nearest_node_of_a_missing_key_is_its_section() {
        let all = tree(json!({"a": {"list": [7]}}));
        let path = KeyPath::from("a.list").item(1);
        assert!(all.at(&path).is_none());
        assert_eq!(all.nearest(&path).to_json(), json!([7]));
    }
}
