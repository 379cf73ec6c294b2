//! Environment variables and flags as sources of the configuration.
//!
//! `HEADCNID_NETWORK_MTU` sets `network.mtu`: see [`Key::variable`]. Every key except maps has a
//! variable. An empty variable is ignored.

use std::ffi::{OsStr, OsString};

use super::keys::{Key, Kind, PREFIX, Shape};
use super::path::KeyPath;
use super::problem::{Diagnostic, Location};
use super::secrets::{API_KEY, PRE_AUTH_KEY};
use super::suggest::nearest;
use super::tree::{Node, Origin, Value};

/// The value of a flag that sets a key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FlagValue {
    /// Such as `--mtu`.
    pub flag: &'static str,
    /// Such as `network.mtu`.
    pub key: &'static str,
    /// In the syntax of the environment variable.
    pub text: String,
}

/// The values of our environment variables, and errors.
pub(super) fn variables(
    root: &Key,
    environment: &[(OsString, OsString)],
) -> (Node, Vec<Diagnostic>) {
    let keys = root.leaves();
    let mut tree = empty();
    let mut diagnostics = Vec::new();
    for (name, value) in environment {
        let Some(name) = ours(name) else { continue };
        let mut refuse = |text: String| {
            diagnostics.push(Diagnostic {
                location: Location::Variable(name.clone()),
                key: None,
                text,
            });
        };
        let Some(value) = value.to_str() else {
            refuse("is not UTF-8: use plain text".to_owned());
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
            _ => refuse(unknown(&keys, &name)),
        }
    }
    (tree, diagnostics)
}

/// The name as text for errors, if it has our prefix.
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
        "; remove it, or list all with headcni-daemon config example".to_owned()
    });
    format!("unknown variable{meant}")
}

/// The values of flags.
pub(super) fn flags(root: &Key, settings: &[FlagValue]) -> Node {
    let keys = root.leaves();
    let mut tree = empty();
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

fn empty() -> Node {
    Node {
        origin: Origin::Nowhere,
        value: Value::Null,
    }
}

/// Parses text as this kind. Text that does not parse stays text, which the check refuses.
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
