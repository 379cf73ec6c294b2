//! What a runtime may ask of a plugin.

use std::fmt;
use std::str::FromStr;

use crate::Version;

/// The value of `CNI_COMMAND`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verb {
    /// Attach a container to the network.
    Add,
    /// Undo an attachment.
    Del,
    /// Verify an attachment.
    Check,
    /// Remove every attachment that is not listed as valid.
    Gc,
    /// Say whether an ADD could work.
    Status,
    /// List the versions that are spoken.
    Version,
}

impl Verb {
    /// The verb as it stands in `CNI_COMMAND`.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Add => "ADD",
            Self::Del => "DEL",
            Self::Check => "CHECK",
            Self::Gc => "GC",
            Self::Status => "STATUS",
            Self::Version => "VERSION",
        }
    }

    /// The first version of the specification that has this verb.
    pub fn since(self) -> Version {
        match self {
            Self::Add | Self::Del | Self::Version => Version::V0_1_0,
            Self::Check => Version::V0_4_0,
            Self::Gc | Self::Status => Version::V1_1_0,
        }
    }
}

impl fmt::Display for Verb {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl FromStr for Verb {
    type Err = ();

    fn from_str(text: &str) -> Result<Self, ()> {
        [
            Self::Add,
            Self::Del,
            Self::Check,
            Self::Gc,
            Self::Status,
            Self::Version,
        ]
        .into_iter()
        .find(|verb| verb.as_str() == text)
        .ok_or(())
    }
}
