//! The versions of the protocol, in their order.

use std::fmt;
use std::str::FromStr;

/// A released version of the CNI specification.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[expect(missing_docs, reason = "each name is the version it stands for")]
pub enum Version {
    V0_1_0,
    V0_2_0,
    V0_3_0,
    V0_3_1,
    V0_4_0,
    V1_0_0,
    V1_1_0,
}

impl Version {
    /// Every version that this crate speaks, oldest first.
    pub const ALL: [Self; 7] = [
        Self::V0_1_0,
        Self::V0_2_0,
        Self::V0_3_0,
        Self::V0_3_1,
        Self::V0_4_0,
        Self::V1_0_0,
        Self::V1_1_0,
    ];

    /// The newest version.
    pub const LATEST: Self = Self::V1_1_0;

    /// What a document without `cniVersion` means: the key is younger than the first release.
    pub const UNSTATED: Self = Self::V0_1_0;

    /// The version as it stands in documents.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::V0_1_0 => "0.1.0",
            Self::V0_2_0 => "0.2.0",
            Self::V0_3_0 => "0.3.0",
            Self::V0_3_1 => "0.3.1",
            Self::V0_4_0 => "0.4.0",
            Self::V1_0_0 => "1.0.0",
            Self::V1_1_0 => "1.1.0",
        }
    }
}

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl FromStr for Version {
    type Err = UnknownVersion;

    fn from_str(text: &str) -> Result<Self, UnknownVersion> {
        Self::ALL
            .into_iter()
            .find(|version| version.as_str() == text)
            .ok_or_else(|| UnknownVersion(text.to_owned()))
    }
}

/// A `cniVersion` that is none of [`Version::ALL`].
#[derive(Debug, thiserror::Error)]
#[error(
    "cniVersion {0:?} is not supported; supported are 0.1.0, 0.2.0, 0.3.0, 0.3.1, 0.4.0, 1.0.0 and 1.1.0"
)]
pub struct UnknownVersion(String);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_read_back_as_they_are_written_and_are_in_order() {
        for version in Version::ALL {
            assert_eq!(version.to_string().parse::<Version>().unwrap(), version);
        }
        assert!(Version::ALL.is_sorted());
    }

    #[test]
    fn an_unknown_version_is_named_together_with_every_supported_one() {
        let message = "9.9.9".parse::<Version>().unwrap_err().to_string();
        assert!(message.contains("9.9.9"), "{message}");
        for version in Version::ALL {
            assert!(message.contains(version.as_str()), "{message}");
        }
    }
}
