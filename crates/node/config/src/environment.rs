//! Environment variables and flags as sources of the configuration.
//!
//! `HEADCNID_NETWORK_MTU` sets `network.mtu`: [`Key::variable`] has the rule. Every key has one but
//! those with names of the user's own below them. An empty variable says nothing.

use std::ffi::{OsStr, OsString};

use super::keys::{Key, Kind, PREFIX, Shape};
use super::path::KeyPath;
use super::problem::{Complaint, Place};
use super::secrets::{API_KEY, PRE_AUTH_KEY};
use super::suggest::nearest;
use super::tree::{Node, Origin, Value};

/// A key that a flag sets.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Setting {
    /// The flag, as `--mtu`.
    pub flag: &'static str,
    /// The key, as `network.mtu`.
    pub key: &'static str,
    /// The value, as a variable would have it.
    pub text: String,
}

/// What our variables say, and those that we can't use.
pub(super) fn variables(
    root: &Key,
    environment: &[(OsString, OsString)],
) -> (Node, Vec<Complaint>) {
    let keys = root.leaves();
    let mut tree = nothing();
    let mut complaints = Vec::new();
    for (name, value) in environment {
        let Some(name) = ours(name) else { continue };
        let mut complain = |text: String| {
            complaints.push(Complaint {
                place: Place::Variable(name.clone()),
                key: None,
                text,
            });
        };
        let Some(value) = value.to_str() else {
            complain("is not UTF-8: write it in plain letters".to_owned());
            continue;
        };
        let is_secret = [API_KEY, PRE_AUTH_KEY]
            .iter()
            .any(|slot| slot.variable == name);
        if is_secret || value.is_empty() {
            continue;
        }
        let key = keys
            .iter()
            .find(|key| key.variable().is_some_and(|own| own == name));
        match key.map(|key| (&key.path, &key.shape)) {
            Some((path, Shape::Leaf(kind))) => {
                let origin = Origin::Variable(name);
                tree.insert(path.steps(), node(kind, value, &origin));
            }
            _ => complain(unknown(&keys, &name)),
        }
    }
    (tree, complaints)
}

/// The name, if it is one of ours. Names are shown in errors, so they have to be readable.
fn ours(name: &OsStr) -> Option<String> {
    let is_ours = name.as_encoded_bytes().starts_with(PREFIX.as_bytes());
    is_ours.then(|| name.to_string_lossy().into_owned())
}

fn unknown(keys: &[&Key], name: &str) -> String {
    let known: Vec<String> = keys.iter().filter_map(|key| key.variable()).collect();
    let secrets = [API_KEY.variable, PRE_AUTH_KEY.variable];
    let known = known.iter().map(String::as_str).chain(secrets);
    let meant = nearest(name, known).map(|meant| format!(", did you mean {meant}?"));
    let meant = meant.unwrap_or_else(|| {
        "; take it away, or see headcni-daemon config example for all that there are".to_owned()
    });
    format!("unknown variable{meant}")
}

/// What flags say.
pub(super) fn flags(root: &Key, settings: &[Setting]) -> Node {
    let keys = root.leaves();
    let mut tree = nothing();
    for setting in settings {
        let path = KeyPath::from(setting.key);
        let key = keys.iter().find(|key| key.path == path);
        if let Some(Shape::Leaf(kind)) = key.map(|key| &key.shape) {
            let origin = Origin::Flag(setting.flag);
            tree.insert(path.steps(), node(kind, &setting.text, &origin));
        }
    }
    tree
}

fn nothing() -> Node {
    Node {
        origin: Origin::Nowhere,
        value: Value::Null,
    }
}

/// Text as a value of this kind. What is none stays a text, and is refused as one.
fn node(kind: &Kind, text: &str, origin: &Origin) -> Node {
    let as_text = || Value::Text(text.to_owned());
    let json = || serde_json::from_str(text).ok();
    let value = match kind {
        Kind::Text { .. } | Kind::Choice(_) => as_text(),
        Kind::Flag => text.parse().map_or_else(|_| as_text(), Value::Flag),
        Kind::Number { .. } => {
            let number = text.parse::<u64>();
            number.map_or_else(|_| as_text(), |number| Value::Number(number.into()))
        }
        Kind::Texts { .. } => {
            let items = text
                .split(',')
                .map(str::trim)
                .filter(|item| !item.is_empty());
            let items = items.map(|item| Node {
                origin: origin.clone(),
                value: Value::Text(item.to_owned()),
            });
            Value::List(items.collect())
        }
        Kind::Objects => json().map_or_else(as_text, |json| Node::from_json(json, origin).value),
    };
    Node {
        origin: origin.clone(),
        value,
    }
}
