//! Secrets. They come from files or the environment, never from the configuration, and are never
//! printed.

use std::fmt;
use std::path::{Path, PathBuf};

use headscale::Secret;

use super::file::{self, FileError};
use super::problem::{Diagnostic, Location, Problem};
use super::schema::Headscale;

const MAX_BYTES: u64 = 4096;

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SecretSource {
    File(PathBuf),
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

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FoundSecret {
    pub secret: Secret,
    pub source: SecretSource,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Secrets {
    pub api_key: Option<FoundSecret>,
    pub pre_auth_key: Option<FoundSecret>,
}

impl Secrets {
    /// Reads the secrets again, because keys are rotated while the daemon runs. It blocks. Unreadable
    /// secrets are skipped: loading the configuration has reported them.
    pub fn current(headscale: &Headscale) -> Self {
        read(headscale, &|name| std::env::var(name).ok()).secrets
    }
}

/// The environment variable of a secret, and the key of its file.
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

#[derive(Debug, Default)]
pub(super) struct Found {
    pub(super) secrets: Secrets,
    pub(super) problems: Vec<Problem>,
    /// Errors of environment variables.
    pub(super) diagnostics: Vec<Diagnostic>,
    pub(super) warnings: Vec<Problem>,
}

/// Reads all secrets from files and environment variables.
pub(super) fn read(headscale: &Headscale, variables: &dyn Fn(&str) -> Option<String>) -> Found {
    let mut found = Found::default();
    let api_key = found.read_secret(&API_KEY, headscale.api_key_file.as_deref(), variables);
    let file = headscale.pre_auth_key_file.as_deref();
    let pre_auth_key = found.read_secret(&PRE_AUTH_KEY, file, variables);
    found.secrets = Secrets {
        api_key,
        pre_auth_key,
    };
    found
}

impl Found {
    fn read_secret(
        &mut self,
        slot: &Slot,
        file: Option<&Path>,
        variables: &dyn Fn(&str) -> Option<String>,
    ) -> Option<FoundSecret> {
        let (text, source) = match (file, variables(slot.variable)) {
            (Some(_), Some(_)) => {
                let text = format!("{} is set too: remove one of them", slot.variable);
                self.problems.push(Problem::new(slot.key, text));
                return None;
            }
            (None, None) => return None,
            (None, Some(text)) => (text, SecretSource::Variable(slot.variable)),
            // Validation reports relative paths.
            (Some(path), None) if !path.is_absolute() => return None,
            (Some(path), None) => {
                let text = self.read_file(slot, path)?;
                (text, SecretSource::File(path.to_owned()))
            }
        };
        let text = text.trim();
        let problem = if text.is_empty() {
            "is empty: write the key to it"
        } else if text.contains(|c: char| c.is_whitespace() || c.is_control()) {
            "has more than one word: it must contain only the key"
        } else {
            return Some(FoundSecret {
                secret: Secret::new(text),
                source,
            });
        };
        match source {
            SecretSource::File(path) => {
                let text = format!("{} {problem}", path.display());
                self.problems.push(Problem::new(slot.key, text));
            }
            SecretSource::Variable(name) => self.diagnostics.push(Diagnostic {
                location: Location::Variable(name.to_owned()),
                key: None,
                text: problem.to_owned(),
            }),
        }
        None
    }

    fn read_file(&mut self, slot: &Slot, path: &Path) -> Option<String> {
        let shown = path.display();
        let contents = match file::read(path, MAX_BYTES) {
            Ok(contents) => contents,
            Err(error) => {
                let text = match error {
                    // Without the path: it may be the key itself.
                    FileError::Absent => format!("{error}: create it, or remove the key"),
                    FileError::Unreadable(_) => format!("{shown} {error}: let root read it"),
                    FileError::NotAFile(_) | FileError::TooLarge(_) => {
                        format!("{shown} {error}: use a file that contains only the key")
                    }
                };
                self.problems.push(Problem::new(slot.key, text));
                return None;
            }
        };
        if contents.is_world_readable {
            let text = format!("{shown} is world-readable: chmod 0600 {shown}");
            self.warnings.push(Problem::new(slot.key, text));
        }
        let text = String::from_utf8(contents.bytes);
        if text.is_err() {
            let text = format!("{shown} is not text: use a file that contains only the key");
            self.problems.push(Problem::new(slot.key, text));
        }
        text.ok()
    }
}
