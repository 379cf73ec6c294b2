//! Finds the keys in YAML. Documents are walked, not built: other values are dropped at once, and
//! limits end alias bombs.

use std::fmt;

use serde::de::{
    Deserialize, DeserializeSeed, Deserializer, EnumAccess, Error, IgnoredAny, MapAccess,
    SeqAccess, VariantAccess, Visitor,
};
use serde_saphyr::Options;
use serde_saphyr::options::NonFiniteFloatPolicy;

use super::flags::Flags;
use super::{Findings, Key, MAX_VALUES, SyntaxError, Value, lines};

pub(super) fn documents(text: &str) -> Result<Findings, SyntaxError> {
    let documents: Vec<Document> = parse(text)?;
    let mut all = Findings::default();
    for finding in documents.into_iter().flat_map(|document| document.0.0) {
        all.add(finding.key, finding.value);
    }
    Ok(all)
}

/// Scans a string value that contains documents.
fn text_inside(text: &str) -> Findings {
    match parse::<Inside>(text) {
        Ok(documents) => Findings(documents.into_iter().flat_map(|found| found.0.0).collect()),
        Err(_) => lines::findings(text),
    }
}

fn parse<'a, T: Deserialize<'a>>(text: &'a str) -> Result<Vec<T>, SyntaxError> {
    serde_saphyr::from_multiple_with_options(text, limits()).map_err(|error| {
        let place = error.location();
        SyntaxError {
            line: place.map_or(1, |place| place.line()),
            column: place.map_or(1, |place| place.column()),
        }
    })
}

fn limits() -> Options {
    serde_saphyr::options! {
        budget: serde_saphyr::budget! {
            max_documents: 64,
            max_depth: 64,
            max_nodes: 50_000,
            max_events: 100_000,
            max_anchors: 100,
            max_aliases: 100,
            max_recorded_anchor_events: 10_000,
            max_recorded_anchor_bytes: 1 << 20,
        },
        alias_limits: serde_saphyr::alias_limits! {
            max_total_replayed_events: 10_000,
            max_replay_stack_depth: 16,
        },
        emit_comments: false,
        ignore_binary_tag_for_string: true,
        non_finite_float_policy: NonFiniteFloatPolicy::AsString,
        with_snippet: false,
    }
}

/// A document of a file.
struct Document(Findings);

impl<'de> Deserialize<'de> for Document {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        walk(deserializer, Place::Document).map(Self)
    }
}

/// A document inside a string value.
struct Inside(Findings);

impl<'de> Deserialize<'de> for Inside {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        walk(deserializer, Place::Elsewhere).map(Self)
    }
}

fn walk<'de, D: Deserializer<'de>>(deserializer: D, place: Place) -> Result<Findings, D::Error> {
    let mut findings = Findings::default();
    let walk = Walk {
        place,
        flags: &mut Flags::default(),
        findings: &mut findings,
    };
    walk.deserialize(deserializer)?;
    Ok(findings)
}

/// The position of a node in a document.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Place {
    Document,
    /// `data` of a `ConfigMap`.
    Data,
    /// A value in `data`: a string contains documents, such as kubeadm's `ClusterConfiguration`.
    DataValue,
    /// Arguments: kubeadm's `extraArgs` (a map, or a list of names with values), k3s's
    /// `kubelet-arg` (a list of `name=value`).
    Arguments,
    Elsewhere,
}

/// Scans a node recursively.
struct Walk<'a> {
    place: Place,
    /// The command line that the node is part of.
    flags: &'a mut Flags,
    findings: &'a mut Findings,
}

impl<'de> DeserializeSeed<'de> for Walk<'_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_any(self)
    }
}

/// Visitor methods that ignore numbers, booleans and bytes.
macro_rules! ignore_scalars {
    ($value:expr) => {
        fn visit_bool<E>(self, _: bool) -> Result<Self::Value, E> {
            Ok($value)
        }

        fn visit_i64<E>(self, _: i64) -> Result<Self::Value, E> {
            Ok($value)
        }

        fn visit_i128<E>(self, _: i128) -> Result<Self::Value, E> {
            Ok($value)
        }

        fn visit_u64<E>(self, _: u64) -> Result<Self::Value, E> {
            Ok($value)
        }

        fn visit_u128<E>(self, _: u128) -> Result<Self::Value, E> {
            Ok($value)
        }

        fn visit_f64<E>(self, _: f64) -> Result<Self::Value, E> {
            Ok($value)
        }

        fn visit_bytes<E>(self, _: &[u8]) -> Result<Self::Value, E> {
            Ok($value)
        }
    };
}

impl<'de> Visitor<'de> for Walk<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("anything")
    }

    ignore_scalars!(());

    fn visit_unit<E>(self) -> Result<(), E> {
        Ok(())
    }

    fn visit_none<E>(self) -> Result<(), E> {
        Ok(())
    }

    fn visit_some<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        self.deserialize(deserializer)
    }

    fn visit_newtype_struct<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        self.deserialize(deserializer)
    }

    fn visit_enum<A: EnumAccess<'de>>(self, data: A) -> Result<(), A::Error> {
        let (_, content) = data.variant::<IgnoredAny>()?;
        content.newtype_variant_seed(self)
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<(), E> {
        match self.place {
            Place::DataValue => {
                for finding in text_inside(text).0 {
                    self.findings.add(finding.key, finding.value);
                }
            }
            Place::Arguments if !text.starts_with('-') => {
                self.flags.feed(&format!("--{text}"), self.findings);
            }
            Place::Document | Place::Data | Place::Arguments | Place::Elsewhere => {
                self.flags.feed(text, self.findings);
            }
        }
        Ok(())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<(), A::Error> {
        let place = match self.place {
            Place::Arguments => Place::Arguments,
            _ => Place::Elsewhere,
        };
        // The items of a list may be the words of a command line.
        let mut flags = Flags::default();
        loop {
            let walk = Walk {
                place,
                flags: &mut flags,
                findings: self.findings,
            };
            if items.next_element_seed(walk)?.is_none() {
                return Ok(());
            }
        }
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
        let mut argument = (None, None);
        while let Some(entry) = map.next_key::<Entry>()? {
            let place = match (self.place, entry) {
                (_, Entry::Key(key)) => {
                    let Texts(value) = map.next_value()?;
                    self.findings.add(key, value);
                    continue;
                }
                (Place::Arguments, Entry::Name) => {
                    argument.0 = Some(map.next_value::<Texts>()?.0);
                    continue;
                }
                (Place::Arguments, Entry::Value) => {
                    argument.1 = Some(map.next_value::<Texts>()?.0);
                    continue;
                }
                // Annotations may be outdated.
                (Place::Document, Entry::Metadata) => {
                    map.next_value::<IgnoredAny>()?;
                    continue;
                }
                (Place::Document, Entry::Data) => Place::Data,
                (Place::Data, _) => Place::DataValue,
                (_, Entry::Arguments) => Place::Arguments,
                _ => Place::Elsewhere,
            };
            map.next_value_seed(Walk {
                place,
                flags: &mut Flags::default(),
                findings: self.findings,
            })?;
        }
        if let (Some(Value::Texts(name)), Some(value)) = argument
            && let Some(key) = Key::of_yaml(&name.concat())
        {
            self.findings.add(key, value);
        }
        Ok(())
    }
}

#[derive(Clone, Copy)]
enum Entry {
    Key(Key),
    Metadata,
    Data,
    Arguments,
    Name,
    Value,
    Other,
}

impl<'de> Deserialize<'de> for Entry {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(EntryVisitor)
    }
}

struct EntryVisitor;

impl<'de> Visitor<'de> for EntryVisitor {
    type Value = Entry;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a key")
    }

    ignore_scalars!(Entry::Other);

    fn visit_unit<E>(self) -> Result<Entry, E> {
        Ok(Entry::Other)
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<Entry, E> {
        Ok(match text {
            "metadata" => Entry::Metadata,
            "data" => Entry::Data,
            "name" => Entry::Name,
            "value" => Entry::Value,
            "extraArgs" | "kubeletExtraArgs" => Entry::Arguments,
            _ if text.ends_with("-arg") => Entry::Arguments,
            _ => Key::of_yaml(text).map_or(Entry::Other, Entry::Key),
        })
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Entry, A::Error> {
        while items.next_element::<IgnoredAny>()?.is_some() {}
        Ok(Entry::Other)
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Entry, A::Error> {
        while map.next_entry::<IgnoredAny, IgnoredAny>()?.is_some() {}
        Ok(Entry::Other)
    }
}

/// The value of a key: a string or a list of strings; null is an empty list.
struct Texts(Value);

impl<'de> Deserialize<'de> for Texts {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(TextsVisitor).map(Self)
    }
}

struct TextsVisitor;

impl<'de> Visitor<'de> for TextsVisitor {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a text, or a list of texts")
    }

    ignore_scalars!(Value::Wrong);

    fn visit_unit<E>(self) -> Result<Value, E> {
        Ok(Value::Texts(Vec::new()))
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<Value, E> {
        Ok(Value::of_text(text))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Value, A::Error> {
        let mut all = Some(Vec::new());
        while let Some(Texts(item)) = items.next_element()? {
            all = match (all, item) {
                (Some(mut all), Value::Texts(texts)) if all.len() < MAX_VALUES => {
                    all.extend(texts);
                    Some(all)
                }
                _ => None,
            };
        }
        Ok(all.map_or(Value::Wrong, Value::Texts))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Value, A::Error> {
        while map.next_entry::<IgnoredAny, IgnoredAny>()?.is_some() {}
        Ok(Value::Wrong)
    }
}
