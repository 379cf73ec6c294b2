//! Keys to other systems. They come from files or from the environment, never from the configuration,
//! and are never shown.

use std::fmt;
use std::path::{Path, PathBuf};

use headscale::Secret;

use super::file::{self, FileError};
use super::problem::{Complaint, Place, Problem};
use super::schema::Headscale;

/// Far more than any key has.
const MOST_BYTES: u64 = 4096;

/// Where a secret was found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SecretSource {
    /// In this file.
    File(PathBuf),
    /// In this environment variable.
    Variable(&'static str),
}

impl fmt::Display for SecretSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::File(path) => write!(f, "file {}", path.display()),
            Self::Variable(name) => write!(f, "variable {name}"),
        }
    }
}

/// A secret and where it was found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FoundSecret {
    /// The secret.
    pub secret: Secret,
    /// Where it was found.
    pub source: SecretSource,
}

/// All secrets that were given.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Secrets {
    /// Headscale's API key.
    pub api_key: Option<FoundSecret>,
    /// A key that lets this node join the mesh.
    pub pre_auth_key: Option<FoundSecret>,
}

impl Secrets {
    /// What files and the environment have now: keys are replaced while the daemon runs. It blocks;
    /// what can't be read is left out, and was complained about when the configuration was loaded.
    pub fn current(headscale: &Headscale) -> Self {
        read(headscale, &|name| std::env::var(name).ok()).secrets
    }
}

/// A secret's variable, and the key that names its file.
pub(super) struct Slot {
    pub(super) variable: &'static str,
    key: &'static str,
    pub(super) what: &'static str,
}

pub(super) const API_KEY: Slot = Slot {
    variable: "HEADCNID_HEADSCALE_API_KEY",
    key: "headscale.apiKeyFile",
    what: "API key",
};
pub(super) const PRE_AUTH_KEY: Slot = Slot {
    variable: "HEADCNID_HEADSCALE_PRE_AUTH_KEY",
    key: "headscale.preAuthKeyFile",
    what: "pre-auth key",
};

/// What was found while secrets were read.
#[derive(Debug, Default)]
pub(super) struct Found {
    pub(super) secrets: Secrets,
    pub(super) problems: Vec<Problem>,
    /// Problems with variables.
    pub(super) complaints: Vec<Complaint>,
    pub(super) warnings: Vec<Problem>,
}

/// Reads all secrets: from the files that the configuration names, and of the environment's.
pub(super) fn read(headscale: &Headscale, variables: &dyn Fn(&str) -> Option<String>) -> Found {
    let mut found = Found::default();
    let api_key = found.look(&API_KEY, headscale.api_key_file.as_deref(), variables);
    let file = headscale.pre_auth_key_file.as_deref();
    let pre_auth_key = found.look(&PRE_AUTH_KEY, file, variables);
    found.secrets = Secrets {
        api_key,
        pre_auth_key,
    };
    found
}

impl Found {
    fn look(
        &mut self,
        slot: &Slot,
        file: Option<&Path>,
        variables: &dyn Fn(&str) -> Option<String>,
    ) -> Option<FoundSecret> {
        let (text, source) = match (file, variables(slot.variable)) {
            (Some(_), Some(_)) => {
                let text = format!("{} is set too: take one of them away", slot.variable);
                self.problems.push(Problem::new(slot.key, text));
                return None;
            }
            (None, None) => return None,
            (None, Some(text)) => (text, SecretSource::Variable(slot.variable)),
            // What is no path is complained about by those who look at paths.
            (Some(path), None) if !path.is_absolute() => return None,
            (Some(path), None) => {
                let text = self.read_file(slot, path)?;
                (text, SecretSource::File(path.to_owned()))
            }
        };
        let text = text.trim();
        let trouble = if text.is_empty() {
            "is empty: put the key there"
        } else if text.contains(|c: char| c.is_whitespace() || c.is_control()) {
            "has more than one word: put the key there and nothing else"
        } else {
            return Some(FoundSecret {
                secret: Secret::new(text),
                source,
            });
        };
        match source {
            SecretSource::File(path) => {
                let text = format!("{} {trouble}", path.display());
                self.problems.push(Problem::new(slot.key, text));
            }
            SecretSource::Variable(name) => self.complaints.push(Complaint {
                place: Place::Variable(name.to_owned()),
                key: None,
                text: trouble.to_owned(),
            }),
        }
        None
    }

    fn read_file(&mut self, slot: &Slot, path: &Path) -> Option<String> {
        let shown = path.display();
        let contents = match file::read(path, MOST_BYTES) {
            Ok(contents) => contents,
            Err(error) => {
                let text = match error {
                    // What is not there may be no path: somebody wrote the key itself.
                    FileError::Absent => format!("{error}: make it, or take the key away"),
                    FileError::Unreadable(_) => format!("{shown} {error}: let root read it"),
                    FileError::NotAFile(_) | FileError::TooLarge(_) => {
                        format!("{shown} {error}: name a file with the key and nothing else")
                    }
                };
                self.problems.push(Problem::new(slot.key, text));
                return None;
            }
        };
        if contents.is_public {
            let text = format!("everybody can read {shown}: chmod 0600 {shown}");
            self.warnings.push(Problem::new(slot.key, text));
        }
        let text = String::from_utf8(contents.bytes);
        if text.is_err() {
            let text = format!("{shown} is not text: name a file with the key and nothing else");
            self.problems.push(Problem::new(slot.key, text));
        }
        text.ok()
    }
}
