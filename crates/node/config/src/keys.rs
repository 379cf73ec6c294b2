//! All keys, as the schema has them: what they are called, what they take, what they mean.
//!
//! Variables, the example, `config show` and the checks are made of this list, so that none of them
//! can forget a key.

use schemars::Schema;
use schemars::generate::SchemaSettings;
use serde_json::Value;

use super::path::{KeyPath, Step};
use super::schema::Config;
use super::{tree, yaml};

/// What the names of our variables begin with.
pub const PREFIX: &str = "HEADCNID_";

/// A key, or a section of keys.
#[derive(Debug)]
pub(super) struct Key {
    pub(super) name: String,
    pub(super) path: KeyPath,
    /// What it means, for people.
    pub(super) meaning: String,
    /// A value that somebody could give it.
    pub(super) example: Option<Value>,
    pub(super) default: Value,
    pub(super) shape: Shape,
}

/// What stands behind a key.
#[derive(Debug)]
pub(super) enum Shape {
    /// More keys.
    Section(Vec<Key>),
    /// A mapping whose keys are the user's.
    Table,
    /// A value.
    Leaf(Kind),
}

/// What a value must be.
#[derive(Debug, PartialEq)]
pub(super) enum Kind {
    Flag,
    /// A whole number in these limits.
    Number {
        least: u64,
        most: u64,
    },
    /// One of these words, each with its meaning.
    Choice(Vec<(String, String)>),
    /// A text, or a number that is taken for one.
    Text {
        or_number: bool,
    },
    /// A list of texts, or a single one.
    Texts {
        or_one: bool,
    },
    /// A list of mappings that are others' to define.
    Objects,
}

/// The JSON schema of the configuration.
pub fn json_schema() -> Schema {
    let settings =
        SchemaSettings::draft2020_12().with(|settings| settings.inline_subschemas = true);
    let mut schema = settings.into_generator().into_root_schema_for::<Config>();
    schema.insert("title".to_owned(), "headcni-daemon".into());
    schema
}

/// The section that has all others, with keys in the order in which they are defined.
pub(super) fn root() -> Key {
    let schema = json_schema();
    // Schemas are sorted by name; what is serialized is in order.
    let defaults = serde_saphyr::to_string(&Config::default()).expect("defaults can be written");
    let defaults = yaml::parse(&defaults).expect("what was written can be read");
    key("", KeyPath::default(), schema.as_value(), &defaults)
}

fn key(name: &str, path: KeyPath, schema: &Value, default: &tree::Node) -> Key {
    let text = |name: &str| schema[name].as_str().map(str::to_owned);
    let shape = match (&schema["properties"], &default.value) {
        (Value::Object(properties), tree::Value::Map(entries)) => {
            let keys = entries.iter().map(|entry| {
                let schema = &properties[&entry.name];
                key(&entry.name, path.key(&entry.name), schema, &entry.node)
            });
            Shape::Section(keys.collect())
        }
        _ if schema["additionalProperties"].is_object() => Shape::Table,
        _ => Shape::Leaf(kind(schema)),
    };
    Key {
        name: name.to_owned(),
        meaning: text("description").unwrap_or_default(),
        example: schema["examples"].get(0).cloned(),
        default: schema["default"].clone(),
        path,
        shape,
    }
}

fn kind(schema: &Value) -> Kind {
    if let Some(choices) = schema["oneOf"].as_array() {
        let text =
            |choice: &Value, name: &str| choice[name].as_str().unwrap_or_default().to_owned();
        let choices = choices
            .iter()
            .map(|choice| (text(choice, "const"), text(choice, "description")));
        return Kind::Choice(choices.collect());
    }
    let is = |wanted: &str| takes(schema, wanted);
    if is("array") {
        return match schema["items"]["type"].as_str() {
            Some("object") => Kind::Objects,
            _ => Kind::Texts { or_one: false },
        };
    }
    if let Some(forms) = schema["anyOf"].as_array()
        && forms.iter().any(|form| takes(form, "array"))
    {
        return Kind::Texts { or_one: true };
    }
    if is("boolean") {
        return Kind::Flag;
    }
    if is("integer") && !is("string") {
        let limit = |name: &str| schema[name].as_u64();
        return Kind::Number {
            least: limit("minimum").unwrap_or(0),
            most: limit("maximum").unwrap_or(u64::MAX),
        };
    }
    Kind::Text {
        or_number: is("integer"),
    }
}

/// Whether a schema takes values of a type.
fn takes(schema: &Value, wanted: &str) -> bool {
    match &schema["type"] {
        Value::String(kind) => kind == wanted,
        Value::Array(kinds) => kinds.iter().any(|kind| kind == wanted),
        _ => false,
    }
}

impl Key {
    /// All keys in this section that have a value, at any depth, in order.
    pub(super) fn leaves(&self) -> Vec<&Key> {
        match &self.shape {
            Shape::Section(keys) => keys.iter().flat_map(Self::leaves).collect(),
            Shape::Table | Shape::Leaf(_) => vec![self],
        }
    }

    /// All keys and sections in this one, at any depth, in order.
    pub(super) fn all(&self) -> Vec<&Key> {
        let Shape::Section(keys) = &self.shape else {
            return Vec::new();
        };
        let with_inner = |key| {
            std::iter::once(key)
                .chain(Key::all(key))
                .collect::<Vec<_>>()
        };
        keys.iter().flat_map(with_inner).collect()
    }

    /// The variable that sets it, if one does.
    pub(super) fn variable(&self) -> Option<String> {
        match self.shape {
            Shape::Leaf(_) => Some(variable(&self.path)),
            Shape::Section(_) | Shape::Table => None,
        }
    }
}

/// The rule that makes a variable's name of a key's path: dots and the beginnings of words in names
/// become underscores, and letters capitals.
fn variable(path: &KeyPath) -> String {
    let mut variable = PREFIX.to_owned();
    for (index, step) in path.steps().iter().enumerate() {
        let Step::Key(name) = step else { continue };
        if index > 0 {
            variable.push('_');
        }
        let mut last = 'A';
        for letter in name.chars() {
            if letter.is_ascii_uppercase() && !last.is_ascii_uppercase() {
                variable.push('_');
            }
            variable.push(letter.to_ascii_uppercase());
            last = letter;
        }
    }
    variable
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use rstest::rstest;

    use super::*;

    #[rstest]
    #[case("network.mtu", "HEADCNID_NETWORK_MTU")]
    #[case("network.podCIDR.base", "HEADCNID_NETWORK_POD_CIDR_BASE")]
    #[case("network.serviceCIDR", "HEADCNID_NETWORK_SERVICE_CIDR")]
    #[case("network.enableIPv6", "HEADCNID_NETWORK_ENABLE_IPV6")]
    #[case("dns.magicDNS.searchDomains", "HEADCNID_DNS_MAGIC_DNS_SEARCH_DOMAINS")]
    #[case("cni.bridge.ipMasq", "HEADCNID_CNI_BRIDGE_IP_MASQ")]
    fn a_variable_is_called_after_its_key(#[case] path: &str, #[case] name: &str) {
        assert_eq!(variable(&path.into()), name);
    }

    #[test]
    fn no_two_keys_share_a_variable() {
        let root = root();
        let names: Vec<String> = root
            .leaves()
            .iter()
            .filter_map(|key| key.variable())
            .collect();
        let different: BTreeSet<&String> = names.iter().collect();
        assert_eq!(different.len(), names.len());
        assert!(names.len() > 30, "{names:?}");
    }

    #[test]
    fn the_schema_lists_the_keys_that_are_serialized_and_says_what_each_is_for() {
        let root = root();
        let schema = json_schema();
        for key in root.all() {
            let pointer = key.path.to_string().replace('.', "/properties/");
            let pointer = format!("/properties/{pointer}");
            assert!(schema.pointer(&pointer).is_some(), "{pointer}");
            assert!(!key.meaning.is_empty(), "{} is not documented", key.path);
            if let Shape::Leaf(Kind::Choice(choices)) = &key.shape {
                assert!(
                    choices.len() > 1 && choices.iter().all(|(_, meaning)| !meaning.is_empty())
                );
            }
        }
        assert_eq!(root.all().len(), count_properties(schema.as_value()));
    }

    fn count_properties(schema: &Value) -> usize {
        let Some(properties) = schema["properties"].as_object() else {
            return 0;
        };
        properties.len() + properties.values().map(count_properties).sum::<usize>()
    }

    #[test]
    fn no_section_takes_keys_that_it_does_not_know() {
        fn check(schema: &Value, name: &str) {
            if let Some(properties) = schema["properties"].as_object() {
                assert_eq!(schema["additionalProperties"], false, "{name}");
                for (name, schema) in properties {
                    check(schema, name);
                }
            }
        }
        check(json_schema().as_value(), "the whole");
    }

    #[rstest]
    #[case("network.mtu", Kind::Number { least: 576, most: 65535 })]
    #[case("network.enableIPv6", Kind::Flag)]
    #[case("network.podCIDR.base", Kind::Texts { or_one: true })]
    #[case("network.podCIDR.perNode", Kind::Text { or_number: true })]
    #[case("dns.magicDNS.nameservers", Kind::Texts { or_one: false })]
    #[case("cni.cniPlugins", Kind::Objects)]
    #[case("cni.confDir", Kind::Text { or_number: false })]
    fn what_a_key_takes_is_read_from_the_schema(#[case] path: &str, #[case] kind: Kind) {
        let root = root();
        let path = KeyPath::from(path);
        let leaves = root.leaves();
        let key = leaves.iter().find(|key| key.path == path).unwrap();
        assert!(matches!(&key.shape, Shape::Leaf(found) if *found == kind));
    }
}
