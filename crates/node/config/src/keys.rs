//! All keys of the schema: name, type, description, default.
//!
//! Environment variables, the example, `config show` and the checks are derived from this list.

use schemars::Schema;
use schemars::generate::SchemaSettings;
use serde_json::Value;

use super::path::{KeyPath, Step};
use super::schema::Config;
use super::{tree, yaml};

/// The prefix of our environment variables.
pub const PREFIX: &str = "HEADCNID_";

/// A key, or a section of keys.
#[derive(Debug)]
pub(super) struct Key {
    pub(super) name: String,
    pub(super) path: KeyPath,
    pub(super) description: String,
    pub(super) example: Option<Value>,
    pub(super) default: Value,
    pub(super) shape: Shape,
}

#[derive(Debug)]
pub(super) enum Shape {
    Section(Vec<Key>),
    /// A mapping with arbitrary keys.
    Table,
    Leaf(Kind),
}

#[derive(Debug, PartialEq)]
pub(super) enum Kind {
    Flag,
    Number {
        min: u64,
        max: u64,
    },
    /// Values and their descriptions.
    Choice(Vec<(String, String)>),
    Text {
        or_number: bool,
    },
    /// A list of strings, or a single one.
    Texts {
        or_one: bool,
    },
    /// A list of mappings without a schema of ours.
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

/// The root section, with keys in the order of their definition.
pub(super) fn root() -> Key {
    let schema = json_schema();
    // A schema is sorted by name; a serialized value keeps the order.
    let defaults = serde_saphyr::to_string(&Config::default()).expect("defaults serialize");
    let defaults = yaml::parse(&defaults).expect("serialized defaults parse");
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
        description: text("description").unwrap_or_default(),
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
    let accepts = |kind: &str| has_type(schema, kind);
    if accepts("array") {
        return match schema["items"]["type"].as_str() {
            Some("object") => Kind::Objects,
            _ => Kind::Texts { or_one: false },
        };
    }
    if let Some(forms) = schema["anyOf"].as_array()
        && forms.iter().any(|form| has_type(form, "array"))
    {
        return Kind::Texts { or_one: true };
    }
    if accepts("boolean") {
        return Kind::Flag;
    }
    if accepts("integer") && !accepts("string") {
        let limit = |name: &str| schema[name].as_u64();
        return Kind::Number {
            min: limit("minimum").unwrap_or(0),
            max: limit("maximum").unwrap_or(u64::MAX),
        };
    }
    Kind::Text {
        or_number: accepts("integer"),
    }
}

/// Whether a schema accepts values of a JSON type.
fn has_type(schema: &Value, wanted: &str) -> bool {
    match &schema["type"] {
        Value::String(kind) => kind == wanted,
        Value::Array(kinds) => kinds.iter().any(|kind| kind == wanted),
        _ => false,
    }
}

impl Key {
    /// All keys with a value in this section, at any depth.
    pub(super) fn leaves(&self) -> Vec<&Key> {
        match &self.shape {
            Shape::Section(keys) => keys.iter().flat_map(Self::leaves).collect(),
            Shape::Table | Shape::Leaf(_) => vec![self],
        }
    }

    /// All keys and sections in this section, at any depth.
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

    /// The environment variable that sets it.
    pub(super) fn variable(&self) -> Option<String> {
        match self.shape {
            Shape::Leaf(_) => Some(variable(&self.path)),
            Shape::Section(_) | Shape::Table => None,
        }
    }
}

/// The environment variable of a key: `network.podCIDR` is `HEADCNID_NETWORK_POD_CIDR`.
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
    fn a_variable_is_named_after_its_key(#[case] path: &str, #[case] name: &str) {
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
    fn the_schema_has_and_describes_every_serialized_key() {
        let root = root();
        let schema = json_schema();
        for key in root.all() {
            let pointer = key.path.to_string().replace('.', "/properties/");
            let pointer = format!("/properties/{pointer}");
            assert!(schema.pointer(&pointer).is_some(), "{pointer}");
            assert!(
                !key.description.is_empty(),
                "{} is not documented",
                key.path
            );
            if let Shape::Leaf(Kind::Choice(choices)) = &key.shape {
                assert!(
                    choices.len() > 1
                        && choices
                            .iter()
                            .all(|(_, description)| !description.is_empty())
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
    fn every_section_refuses_unknown_keys() {
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
    #[case("network.mtu", Kind::Number { min: 576, max: 65535 })]
    #[case("network.enableIPv6", Kind::Flag)]
    #[case("network.podCIDR.base", Kind::Texts { or_one: true })]
    #[case("network.podCIDR.perNode", Kind::Text { or_number: true })]
    #[case("dns.magicDNS.nameservers", Kind::Texts { or_one: false })]
    #[case("cni.cniPlugins", Kind::Objects)]
    #[case("cni.confDir", Kind::Text { or_number: false })]
    fn the_kind_of_a_key_is_read_from_the_schema(#[case] path: &str, #[case] kind: Kind) {
        let root = root();
        let path = KeyPath::from(path);
        let leaves = root.leaves();
        let key = leaves.iter().find(|key| key.path == path).unwrap();
        assert!(matches!(&key.shape, Shape::Leaf(found) if *found == kind));
    }
}
