//! `values.schema.json`: under `config` the daemon's schema, simplified for better error messages; the
//! rest is written by hand.

use std::fs::{self, File};
use std::io::Write;
use std::path::Path;

use anyhow::{Context, Result, bail};
use lab::tools::workspace_dir;
use serde_json::{Map, Value, json};

const FILE: &str = "values.schema.json";
const DAEMON_SCHEMA: &str = "deploy/daemon/headcni-daemon.schema.json";

/// Fails if the daemon's schema has changed.
pub(super) fn check(chart: &Path) -> Result<()> {
    let (actual, expected) = actual_and_expected(chart)?;
    if actual != expected {
        bail!("{FILE} differs from {DAEMON_SCHEMA}: run \"cargo xtask chart schema\"");
    }
    Ok(())
}

/// Copies the daemon's schema into the chart's.
pub(super) fn write(chart: &Path) -> Result<()> {
    let (_, expected) = actual_and_expected(chart)?;
    let path = chart.join(FILE);
    File::create(&path)
        .and_then(|mut file| writeln!(file, "{expected:#}"))
        .with_context(|| format!("write {}", path.display()))
}

/// The schema as it is and as it should be.
fn actual_and_expected(chart: &Path) -> Result<(Value, Value)> {
    let actual = read(&chart.join(FILE))?;
    let Value::Object(mut config) = simplify(&read(&workspace_dir().join(DAEMON_SCHEMA))?) else {
        bail!("{DAEMON_SCHEMA} is not an object");
    };
    config.remove("$schema");
    config.remove("title");
    let mut expected = actual.clone();
    expected["properties"]["config"] = Value::Object(config);
    Ok((actual, expected))
}

fn read(path: &Path) -> Result<Value> {
    let text = fs::read_to_string(path).with_context(|| format!("read {}", path.display()))?;
    serde_json::from_str(&text).with_context(|| format!("parse {}", path.display()))
}

/// A validator reports every alternative that fails. So a `oneOf` of constants becomes an `enum`, and a
/// string or a list of strings one rule with two types.
fn simplify(schema: &Value) -> Value {
    match schema {
        Value::Object(entries) => {
            let mut simple = Map::new();
            for (key, value) in entries {
                match key.as_str() {
                    // Not schemas, even if they look like one.
                    "default" | "examples" => simple.insert(key.clone(), value.clone()),
                    "oneOf" if constants(value).is_some() => {
                        simple.insert("enum".to_owned(), json!(constants(value)))
                    }
                    "anyOf" if *value == string_or_strings() => {
                        simple.insert("items".to_owned(), json!({"type": "string"}));
                        simple.insert("type".to_owned(), json!(["string", "array"]))
                    }
                    _ => simple.insert(key.clone(), simplify(value)),
                };
            }
            Value::Object(simple)
        }
        Value::Array(elements) => elements.iter().map(simplify).collect(),
        other => other.clone(),
    }
}

/// The constants of a `oneOf` that has nothing else.
fn constants(choice: &Value) -> Option<Vec<Value>> {
    choice
        .as_array()?
        .iter()
        .map(|one| one.get("const").cloned())
        .collect()
}

fn string_or_strings() -> Value {
    json!([{"type": "string"}, {"items": {"type": "string"}, "type": "array"}])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_of_constants_becomes_an_enum() {
        let choice = json!({"oneOf": [{"const": "a"}, {"const": "b"}], "default": {"oneOf": 1}});
        assert_eq!(
            simplify(&choice),
            json!({"enum": ["a", "b"], "default": {"oneOf": 1}})
        );
        let other = json!({"oneOf": [{"const": "a"}, {"type": "null"}]});
        assert_eq!(simplify(&other), other);
    }

    #[test]
    fn a_string_or_a_list_of_strings_becomes_one_rule() {
        let expected = json!({"type": ["string", "array"], "items": {"type": "string"}});
        assert_eq!(simplify(&json!({"anyOf": string_or_strings()})), expected);
    }
}
