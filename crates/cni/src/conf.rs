//! The network configuration on stdin.

use serde::Deserialize;
use serde_json::{Map, Value};

use crate::keys::shown;
use crate::{Error, NetResult, NetworkName, PluginType, Version, code};

/// A plugin's configuration: the protocol's keys as types, all others as they came.
#[derive(Clone, Debug)]
pub struct NetConf {
    version: Version,
    name: NetworkName,
    keys: Map<String, Value>,
}

/// An attachment that a garbage collection must leave alone.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Deserialize)]
pub struct ValidAttachment {
    /// The container.
    #[serde(rename = "containerID")]
    pub container_id: String,
    /// The interface inside it.
    pub ifname: String,
}

impl NetConf {
    /// Reads a configuration; what is wrong with it is said by key and value.
    pub fn parse(bytes: &[u8]) -> Result<Self, Error> {
        let decoding = |msg: String| Error::new(code::DECODING_FAILURE, msg);
        if bytes.iter().all(u8::is_ascii_whitespace) {
            return Err(decoding(
                "the network configuration on stdin is empty".to_owned(),
            ));
        }
        let document: Value = serde_json::from_slice(bytes).map_err(|error| {
            decoding(format!(
                "the network configuration on stdin is not JSON: {error}"
            ))
        })?;
        let Value::Object(keys) = document else {
            return Err(decoding(format!(
                "the network configuration on stdin is not a JSON object: {}",
                shown(&document)
            )));
        };
        Self::from_keys(keys)
    }

    /// As [`NetConf::parse`], of a document that is read already.
    pub fn from_keys(keys: Map<String, Value>) -> Result<Self, Error> {
        let version = match protocol_text(&keys, "cniVersion")? {
            None | Some("") => Version::UNSTATED,
            Some(text) => text
                .parse::<Version>()
                .map_err(|error| Error::new(code::INCOMPATIBLE_VERSION, error.to_string()))?,
        };
        let name = match protocol_text(&keys, "name")? {
            None | Some("") => {
                return Err(Error::config("the network configuration has no \"name\""));
            }
            Some(text) => NetworkName::new(text)?,
        };
        if let Some(kind) = protocol_text(&keys, "type")? {
            PluginType::new("type", kind)?;
        }
        Ok(Self {
            version,
            name,
            keys,
        })
    }

    /// The version that the answer must have.
    pub fn version(&self) -> Version {
        self.version
    }

    /// The network's name.
    pub fn name(&self) -> &NetworkName {
        &self.name
    }

    /// Every key as it came.
    pub fn keys(&self) -> &Map<String, Value> {
        &self.keys
    }

    /// The result of the plugin before this one, or of the ADD that is checked or undone.
    pub fn prev_result(&self) -> Result<Option<NetResult>, Error> {
        match self.keys.get("prevResult") {
            None | Some(Value::Null) => Ok(None),
            Some(document) => NetResult::from_json(document.clone(), self.version)
                .map(Some)
                .map_err(|error| {
                    let cause = Error::caused(code::DECODING_FAILURE, &error);
                    Error {
                        msg: format!("prevResult: {}", cause.msg),
                        ..cause
                    }
                }),
        }
    }

    /// The attachments that a garbage collection must leave alone.
    ///
    /// An absent list is an empty one: libcni leaves the key out when it is asked to collect
    /// everything, and plugins written in Go can't tell the two apart.
    pub fn valid_attachments(&self) -> Result<Vec<ValidAttachment>, Error> {
        // The second key is what the specification called it at first.
        for key in ["cni.dev/valid-attachments", "cni.dev/attachments"] {
            match self.keys.get(key) {
                None | Some(Value::Null) => {}
                Some(list) => {
                    return Vec::deserialize(list).map_err(|error| {
                        Error::config(format!(
                            "{key} {}: {error}; each entry has containerID and ifname",
                            shown(list)
                        ))
                    });
                }
            }
        }
        Ok(Vec::new())
    }
}

/// The protocol's own keys are text, or the document is none of the protocol's.
fn protocol_text<'a>(keys: &'a Map<String, Value>, key: &str) -> Result<Option<&'a str>, Error> {
    match keys.get(key) {
        None | Some(Value::Null) => Ok(None),
        Some(Value::String(text)) => Ok(Some(text)),
        Some(other) => Err(Error::new(
            code::DECODING_FAILURE,
            format!("{key} must be text and is {}", shown(other)),
        )),
    }
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    #[rstest]
    #[case("", code::DECODING_FAILURE, "empty")]
    #[case(" \n", code::DECODING_FAILURE, "empty")]
    #[case("{", code::DECODING_FAILURE, "not JSON")]
    #[case("[1]", code::DECODING_FAILURE, "[1]")]
    #[case(r#"[{"secret":1}]"#, code::DECODING_FAILURE, "a list")]
    #[case(r#"{"cniVersion":1,"name":"n"}"#, code::DECODING_FAILURE, "cniVersion")]
    #[case(
        r#"{"cniVersion":"2.0.0","name":"n"}"#,
        code::INCOMPATIBLE_VERSION,
        "2.0.0"
    )]
    #[case(r#"{"cniVersion":"1.0.0"}"#, code::INVALID_CONFIG, "name")]
    #[case(r#"{"cniVersion":"1.0.0","name":""}"#, code::INVALID_CONFIG, "name")]
    #[case(r#"{"cniVersion":"1.0.0","name":7}"#, code::DECODING_FAILURE, "name")]
    #[case(
        r#"{"cniVersion":"1.0.0","name":"../x"}"#,
        code::INVALID_CONFIG,
        "../x"
    )]
    #[case(r#"{"name":"n","type":"a/b"}"#, code::INVALID_CONFIG, "a/b")]
    fn bad_configurations_are_refused_by_key_and_value(
        #[case] text: &str,
        #[case] code: u32,
        #[case] part: &str,
    ) {
        let error = NetConf::parse(text.as_bytes()).unwrap_err();
        assert_eq!(error.code, code, "{error}");
        assert!(error.msg.contains(part), "{error}");
    }

    #[test]
    fn a_deeply_nested_document_is_refused_without_a_crash() {
        let text = "[".repeat(100_000);
        assert_eq!(
            NetConf::parse(text.as_bytes()).unwrap_err().code,
            code::DECODING_FAILURE
        );
    }

    #[test]
    fn unknown_keys_are_kept() {
        let conf = NetConf::parse(br#"{"name":"n","x.y/z":{"deep":[1,null]}}"#).unwrap();
        assert_eq!(
            conf.keys()["x.y/z"],
            serde_json::json!({ "deep": [1, null] })
        );
        assert_eq!(conf.version(), Version::UNSTATED);
    }

    #[rstest]
    #[case(r#"{"name":"n"}"#, Some(0))]
    #[case(r#"{"name":"n","cni.dev/valid-attachments":null}"#, Some(0))]
    #[case(r#"{"name":"n","cni.dev/valid-attachments":[]}"#, Some(0))]
    #[case(
        r#"{"name":"n","cni.dev/attachments":[{"containerID":"a","ifname":"b"}]}"#,
        Some(1)
    )]
    #[case(r#"{"name":"n","cni.dev/valid-attachments":"all"}"#, None)]
    #[case(r#"{"name":"n","cni.dev/valid-attachments":[{"ifname":"b"}]}"#, None)]
    fn valid_attachments_are_a_list_of_pairs(#[case] text: &str, #[case] count: Option<usize>) {
        let list = NetConf::parse(text.as_bytes()).unwrap().valid_attachments();
        assert_eq!(list.ok().map(|list| list.len()), count);
    }
}
