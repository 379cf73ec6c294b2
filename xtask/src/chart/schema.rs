//! `values.schema.json`. What it says of `config` is the daemon's own schema, in words that make
//! better errors; the rest is written by hand.

use std::fs::{self, File};
use std::io::Write;
use std::path::Path;

use anyhow::{Context, Result, bail};
use lab::tools::workspace_dir;
use serde_json::{Map, Value, json};

const FILE: &str = "values.schema.json";
const DAEMONS: &str = "deploy/daemon/headcni-daemon.schema.json";

/// Fails if the daemon's schema has changed since.
pub(super) fn check(chart: &Path) -> Result<()> {
    let (found, wanted) = both(chart)?;
    if found != wanted {
        bail!("{FILE} is not what {DAEMONS} says of config: run \"cargo xtask chart schema\"");
    }
    Ok(())
}

/// Takes the daemon's schema over.
pub(super) fn write(chart: &Path) -> Result<()> {
    let (_, wanted) = both(chart)?;
    let path = chart.join(FILE);
    File::create(&path)
        .and_then(|mut file| writeln!(file, "{wanted:#}"))
        .with_context(|| format!("write {}", path.display()))
}

/// The schema as it is, and as it should be.
fn both(chart: &Path) -> Result<(Value, Value)> {
    let found = read(&chart.join(FILE))?;
    let Value::Object(mut config) = for_values(&read(&workspace_dir().join(DAEMONS))?) else {
        bail!("{DAEMONS} is no object");
    };
    config.remove("$schema");
    config.remove("title");
    let mut wanted = found.clone();
    wanted["properties"]["config"] = Value::Object(config);
    Ok((found, wanted))
}

fn read(path: &Path) -> Result<Value> {
    let text = fs::read_to_string(path).with_context(|| format!("read {}", path.display()))?;
    serde_json::from_str(&text).with_context(|| format!("parse {}", path.display()))
}

/// Of alternatives that all fail, a validator tells each one's reason. So a choice among words becomes
/// an enumeration, and a text or a list of texts one rule with two types.
fn for_values(schema: &Value) -> Value {
    match schema {
        Value::Object(entries) => {
            let mut simple = Map::new();
            for (key, value) in entries {
                match key.as_str() {
                    // Not schemas: these may look like one.
                    "default" | "examples" => simple.insert(key.clone(), value.clone()),
                    "oneOf" if words(value).is_some() => {
                        simple.insert("enum".to_owned(), json!(words(value)))
                    }
                    "anyOf" if *value == text_or_texts() => {
                        simple.insert("items".to_owned(), json!({"type": "string"}));
                        simple.insert("type".to_owned(), json!(["string", "array"]))
                    }
                    _ => simple.insert(key.clone(), for_values(value)),
                };
            }
            Value::Object(simple)
        }
        Value::Array(elements) => elements.iter().map(for_values).collect(),
        other => other.clone(),
    }
}

/// The words of a choice, if it is one among words only.
fn words(choice: &Value) -> Option<Vec<Value>> {
    choice
        .as_array()?
        .iter()
        .map(|one| one.get("const").cloned())
        .collect()
}

fn text_or_texts() -> Value {
    json!([{"type": "string"}, {"items": {"type": "string"}, "type": "array"}])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_choice_among_words_is_an_enumeration() {
        let choice = json!({"oneOf": [{"const": "a"}, {"const": "b"}], "default": {"oneOf": 1}});
        assert_eq!(
            for_values(&choice),
            json!({"enum": ["a", "b"], "default": {"oneOf": 1}})
        );
        let other = json!({"oneOf": [{"const": "a"}, {"type": "null"}]});
        assert_eq!(for_values(&other), other);
    }

    #[test]
    fn a_text_or_a_list_of_texts_is_one_rule() {
        let wanted = json!({"type": ["string", "array"], "items": {"type": "string"}});
        assert_eq!(for_values(&json!({"anyOf": text_or_texts()})), wanted);
    }
}
