//! Names that are valid by construction, because each of them becomes part of a path.

use std::fmt;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::{Error, code};

macro_rules! name_type {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name(String);

        impl $name {
            /// The name as text.
            pub fn as_str(&self) -> &str {
                &self.0
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&self.0)
            }
        }
    };
}

name_type! {
    /// `CNI_CONTAINERID`: begins with a letter or digit, then letters, digits, `_`, `.` and `-`.
    ContainerId
}
name_type! {
    /// `CNI_IFNAME`: a name that the kernel takes for an interface.
    IfName
}
name_type! {
    /// A network's `name`: same alphabet as [`ContainerId`].
    NetworkName
}
name_type! {
    /// A plugin's `type`: the name of a file in a directory of `CNI_PATH`, never a path.
    PluginType
}

impl ContainerId {
    /// Takes `text` if it is a container id.
    pub fn new(text: &str) -> Result<Self, Error> {
        if is_plain_name(text) {
            return Ok(Self(text.to_owned()));
        }
        Err(Error::variable(
            "CNI_CONTAINERID",
            format_args!("{text:?} is not a container id: {PLAIN_NAME}"),
        ))
    }
}

impl NetworkName {
    /// Takes `text` if it is a network name.
    pub fn new(text: &str) -> Result<Self, Error> {
        if is_plain_name(text) {
            return Ok(Self(text.to_owned()));
        }
        Err(Error::config(format!(
            "name {text:?} is not a network name: {PLAIN_NAME}"
        )))
    }
}

impl PluginType {
    /// Takes `text`, found under `key`, if it is a plugin's file name.
    pub fn new(key: &str, text: &str) -> Result<Self, Error> {
        // A type that could leave CNI_PATH would run any program as root: CVE-2021-20206.
        if is_plain_name(text) {
            return Ok(Self(text.to_owned()));
        }
        Err(Error::config(format!(
            "{key} {text:?} is not a plugin name: {PLAIN_NAME}"
        )))
    }
}

impl Serialize for PluginType {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.serialize_str(&self.0)
    }
}

impl<'de> Deserialize<'de> for PluginType {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let text = String::deserialize(from)?;
        Self::new("type", &text).map_err(serde::de::Error::custom)
    }
}

impl IfName {
    /// `IFNAMSIZ` less the final NUL.
    const MAX_BYTES: usize = 15;

    /// Takes `text` if the kernel would: see `dev_valid_name` in net/core/dev.c.
    pub fn new(text: &str) -> Result<Self, Error> {
        let trouble = if text.is_empty() {
            "is empty"
        } else if text.len() > Self::MAX_BYTES {
            "is longer than 15 bytes"
        } else if text == "." || text == ".." {
            "is a directory"
        } else if text.contains(|c: char| {
            c == '/' || c == ':' || c == '\0' || c.is_whitespace() || c.is_control()
        }) {
            "contains '/', ':', white space or a control character"
        } else {
            return Ok(Self(text.to_owned()));
        };
        Err(Error::new(
            code::INVALID_ENVIRONMENT,
            format!("CNI_IFNAME {text:?} is not an interface name: it {trouble}"),
        ))
    }
}

const PLAIN_NAME: &str =
    "it must begin with a letter or digit and go on with letters, digits, '_', '.' or '-'";

fn is_plain_name(text: &str) -> bool {
    text.starts_with(|c: char| c.is_ascii_alphanumeric())
        && text
            .chars()
            .all(|c| c.is_ascii_alphanumeric() || matches!(c, '_' | '.' | '-'))
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    #[rstest]
    #[case("a", true)]
    #[case("0f-e.d_c", true)]
    #[case("", false)]
    #[case("-a", false)]
    #[case("..", false)]
    #[case("a/b", false)]
    #[case("a b", false)]
    #[case("ä", false)]
    #[case("a\n", false)]
    fn ids_names_and_types_share_one_alphabet(#[case] text: &str, #[case] valid: bool) {
        assert_eq!(ContainerId::new(text).is_ok(), valid);
        assert_eq!(NetworkName::new(text).is_ok(), valid);
        assert_eq!(PluginType::new("type", text).is_ok(), valid);
    }

    #[rstest]
    #[case("eth0", true)]
    #[case("fifteen-bytes.x", true)]
    #[case("sixteen-bytes.xy", false)]
    #[case("net@1", true)]
    #[case("", false)]
    #[case(".", false)]
    #[case("..", false)]
    #[case("a/b", false)]
    #[case("a:b", false)]
    #[case("a b", false)]
    #[case("a\tb", false)]
    fn interface_names_are_what_the_kernel_takes(#[case] text: &str, #[case] valid: bool) {
        assert_eq!(IfName::new(text).is_ok(), valid);
    }

    #[test]
    fn errors_name_the_variable_or_key_and_the_value() {
        assert!(
            ContainerId::new("a/b")
                .unwrap_err()
                .msg
                .contains("CNI_CONTAINERID \"a/b\"")
        );
        assert!(
            IfName::new("a/b")
                .unwrap_err()
                .msg
                .contains("CNI_IFNAME \"a/b\"")
        );
        let error = PluginType::new("delegate.type", "../x").unwrap_err();
        assert!(
            error.msg.contains("delegate.type \"../x\""),
            "{}",
            error.msg
        );
        assert_eq!(error.code, code::INVALID_CONFIG);
    }
}
