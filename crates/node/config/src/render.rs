//! Renders YAML: the example and the effective configuration.

use std::fmt::Write;

use serde_json::Value;

use super::keys::{self, Key, Kind, Shape};
use super::load::Loaded;
use super::path::KeyPath;
use super::problem::{Location, location};
use super::secrets::{API_KEY, FoundSecret, PRE_AUTH_KEY};

/// The line width of comments.
const WIDTH: usize = 100;

/// Every key with its description, environment variable and default.
pub fn example() -> String {
    let mut text = format!(
        "# The configuration of headcni-daemon: every key with its description and default.\n\
         #\n\
         # The file is {}; --config names another one. An environment\n\
         # variable overrides its key in the file. See docs/configuration.md.\n",
        api::paths::DAEMON_CONFIG
    );
    let root = keys::root();
    for key in keys_of(&root) {
        text.push('\n');
        example_of(&mut text, key, 0);
    }
    text
}

fn keys_of(section: &Key) -> &[Key] {
    match &section.shape {
        Shape::Section(keys) => keys,
        Shape::Table | Shape::Leaf(_) => &[],
    }
}

fn example_of(text: &mut String, key: &Key, depth: usize) {
    let indent = "  ".repeat(depth);
    comment(text, &indent, &key.description.replace('\n', " "));
    if let Shape::Leaf(Kind::Choice(choices)) = &key.shape {
        for (word, description) in choices {
            comment(text, &indent, &format!("  {word}: {description}"));
        }
    }
    let default = flow(&key.default);
    if let Some(example) = key.example.as_ref().map(flow)
        && example != default
    {
        comment(text, &indent, &format!("Example: {example}"));
    }
    if let Some(variable) = key.variable() {
        comment(text, &indent, &format!("Variable: {variable}"));
    }
    match &key.shape {
        Shape::Section(keys) => {
            line(text, &format!("{indent}{}:", key.name));
            for key in keys {
                example_of(text, key, depth + 1);
            }
        }
        Shape::Table | Shape::Leaf(_) => line(text, &format!("{indent}{}: {default}", key.name)),
    }
}

fn line(text: &mut String, line: &str) {
    text.push_str(line);
    text.push('\n');
}

/// Wrapped comment lines. Indented text stays indented.
fn comment(text: &mut String, indent: &str, words: &str) {
    let more = " ".repeat(words.len() - words.trim_start().len());
    let start = format!("{indent}# {more}");
    let mut current = start.clone();
    for word in words.split_whitespace() {
        if current.len() > start.len() && current.len() + 1 + word.len() > WIDTH {
            line(text, &current);
            current.clone_from(&start);
        }
        if current.len() > start.len() {
            current.push(' ');
        }
        current.push_str(word);
    }
    line(text, &current);
}

/// The effective configuration with the source of each key. Of secrets, only the source.
pub fn show(loaded: &Loaded) -> String {
    let mut text =
        "# The effective configuration. A key without a comment has its default.\n".to_owned();
    let config = serde_json::to_value(&loaded.config).unwrap_or_default();
    for key in keys_of(&keys::root()) {
        show_key(&mut text, loaded, key, &config[&key.name], 0);
    }
    text
}

fn show_key(text: &mut String, loaded: &Loaded, key: &Key, value: &Value, depth: usize) {
    let indent = "  ".repeat(depth);
    match &key.shape {
        Shape::Section(keys) => {
            line(text, &format!("{indent}{}:", key.name));
            if key.name == "headscale" {
                let secrets = &loaded.secrets;
                for (what, secret) in [
                    (API_KEY.what, &secrets.api_key),
                    (PRE_AUTH_KEY.what, &secrets.pre_auth_key),
                ] {
                    line(
                        text,
                        &format!("{indent}  # {what}: {}", is_set(secret.as_ref())),
                    );
                }
            }
            for key in keys {
                show_key(text, loaded, key, &value[&key.name], depth + 1);
            }
        }
        Shape::Table => {
            let members = value.as_object();
            let members = members.filter(|members| !members.is_empty());
            let Some(members) = members else {
                return line(text, &format!("{indent}{}: {{}}", key.name));
            };
            line(text, &format!("{indent}{}:", key.name));
            for (name, value) in members {
                let from = from(loaded, &key.path.key(name));
                let name = flow(&name.as_str().into());
                line(text, &format!("{indent}  {name}: {}{from}", flow(value)));
            }
        }
        Shape::Leaf(_) => {
            let from = from(loaded, &key.path);
            line(
                text,
                &format!("{indent}{}: {}{from}", key.name, flow(value)),
            );
        }
    }
}

fn is_set(secret: Option<&FoundSecret>) -> String {
    secret.map_or("not set".to_owned(), |secret| {
        format!("set (from {})", secret.source)
    })
}

/// The source of a key as a comment; empty for a default.
fn from(loaded: &Loaded, path: &KeyPath) -> String {
    let file = loaded
        .file
        .clone()
        .map_or(Location::Default, Location::WholeFile);
    let node = loaded.merged.at(path);
    let node = node.filter(|node| !matches!(node.value, super::tree::Value::Null));
    match node.map(|node| location(&node.origin, &file)) {
        None => String::new(),
        Some(Location::File { path, line, .. }) => {
            format!("  # {}:{line}", Location::WholeFile(path))
        }
        Some(place) => format!("  # {place}"),
    }
}

/// A value in YAML flow style.
pub(super) fn flow(value: &Value) -> String {
    match value {
        Value::String(text) if is_plain(text) => text.clone(),
        Value::String(text) => quoted(text),
        Value::Null | Value::Bool(_) | Value::Number(_) => value.to_string(),
        Value::Array(items) => {
            let items: Vec<String> = items.iter().map(flow).collect();
            format!("[{}]", items.join(", "))
        }
        Value::Object(members) => {
            let member = |(name, value): (&String, &Value)| {
                format!("{}: {}", flow(&name.as_str().into()), flow(value))
            };
            let members: Vec<String> = members.iter().map(member).collect();
            format!("{{{}}}", members.join(", "))
        }
    }
}

/// Whether a string needs no quotes in YAML 1.1 and 1.2.
fn is_plain(text: &str) -> bool {
    const WORDS: [&str; 11] = [
        "true", "false", "yes", "no", "on", "off", "y", "n", "null", "nan", "inf",
    ];
    text.starts_with(|c: char| c.is_ascii_alphabetic() || c == '/')
        && text
            .chars()
            .all(|c| c.is_ascii_alphanumeric() || matches!(c, '/' | '.' | '-' | '_'))
        && !WORDS.contains(&text.to_ascii_lowercase().as_str())
}

fn quoted(text: &str) -> String {
    let mut quoted = "\"".to_owned();
    for c in text.chars() {
        match c {
            '"' | '\\' => quoted.extend(['\\', c]),
            // YAML treats these as line breaks or not printable.
            c if c.is_control() || matches!(c, '\u{2028}' | '\u{2029}' | '\u{feff}') => {
                let _ = write!(quoted, "\\u{:04x}", u32::from(c));
            }
            c => quoted.push(c),
        }
    }
    quoted.push('"');
    quoted
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use rstest::rstest;
    use serde_json::json;

    use super::super::yaml;
    use super::*;

    #[rstest]
    #[case(json!("native"), "native")]
    #[case(json!("off"), "\"off\"")]
    #[case(json!("No"), "\"No\"")]
    #[case(json!("/a/b.c"), "/a/b.c")]
    #[case(json!("10.0.0.0/8"), "\"10.0.0.0/8\"")]
    #[case(json!("a: b # c"), "\"a: b # c\"")]
    #[case(json!(["a", 1, null]), "[a, 1, null]")]
    #[case(json!({"k": {"1": true}}), "{k: {\"1\": true}}")]
    fn values_are_quoted_where_yaml_requires_it(#[case] value: Value, #[case] text: &str) {
        assert_eq!(flow(&value), text);
    }

    proptest! {
        #[test]
        fn any_string_survives_a_round_trip(text: String, name: String) {
            let value = json!({"list": [text], "map": {name: 1}});
            let written = flow(&value);
            let read = yaml::parse(&written);
            prop_assert!(read.is_ok(), "{}", written);
            prop_assert_eq!(read.unwrap().to_json(), value);
        }
    }

    #[test]
    fn comments_wrap_between_words() {
        let mut text = String::new();
        comment(&mut text, "  ", &format!("  {}", "word ".repeat(30)));
        assert!(
            text.lines()
                .all(|line| line.len() <= WIDTH && line.starts_with("  #   word"))
        );
        assert_eq!(text.lines().count(), 2);
    }
}
