//! The caller's side: find a plugin in `CNI_PATH`, execute it, understand its answer.

mod run;

use std::path::{Path, PathBuf};
use std::time::Duration;

use serde_json::{Map, Value};

use crate::{Attachment, Env, Error, NetResult, PluginType, Verb, Version, code};

/// A plugin that another plugin executes.
#[derive(Clone, Debug)]
pub struct Delegate<'a> {
    /// What to execute.
    pub kind: &'a PluginType,
    /// What the plugin inherits, `CNI_PATH` included; the call's own variables are set on top.
    pub env: &'a Env,
    /// How long it may take before it is ended, with everything that it started.
    pub timeout: Duration,
}

/// Why a delegate did not do what it was asked.
#[derive(Debug, thiserror::Error)]
pub enum DelegateError {
    /// No directory of `CNI_PATH` has it.
    #[error("plugin {kind:?} is not in CNI_PATH ({path}): install it there or correct the type")]
    NotFound {
        /// The plugin's type.
        kind: String,
        /// Where it was looked for.
        path: String,
    },
    /// `CNI_PATH` is needed and missing or unusable.
    #[error("{0}")]
    Path(Error),
    /// The file is there but can't be executed.
    #[error("execute {path}")]
    Spawn {
        /// The file.
        path: PathBuf,
        /// Why.
        #[source]
        source: std::io::Error,
    },
    /// It did not end in time.
    #[error(
        "plugin {kind:?} did not finish {verb} within {seconds} s and was ended; \
         raise delegate_timeout_seconds if it needs longer"
    )]
    TimedOut {
        /// The plugin's type.
        kind: String,
        /// What it was asked.
        verb: Verb,
        /// How long it had.
        seconds: f64,
    },
    /// It failed without an error object, or what it printed is no answer.
    #[error("plugin {kind:?} {trouble}; it printed {printed}")]
    Broken {
        /// The plugin's type.
        kind: String,
        /// How it ended, or what is wrong with its answer.
        trouble: String,
        /// The beginning of its stdout.
        printed: String,
    },
    /// It failed and said why.
    #[error("{kind}: {error}")]
    Failed {
        /// The plugin's type.
        kind: String,
        /// Its own words.
        error: Error,
    },
}

impl DelegateError {
    /// The error that our own caller gets: a delegate's own code and words are kept.
    pub fn into_error(self) -> Error {
        let code = match &self {
            Self::NotFound { .. } => code::INVALID_CONFIG,
            Self::Path(error) => return error.clone(),
            Self::Spawn { .. } | Self::Broken { .. } => code::DELEGATE_BROKEN,
            Self::TimedOut { .. } => code::DELEGATE_TIMEOUT,
            Self::Failed { kind, error } => {
                let msg = format!("{kind}: {}", error.msg);
                return Error {
                    msg,
                    ..error.clone()
                };
            }
        };
        Error::caused(code, &self)
    }
}

impl Delegate<'_> {
    /// Executes ADD; the answer must be a result.
    pub fn add(
        &self,
        conf: &Map<String, Value>,
        version: Version,
        to: &Attachment,
    ) -> Result<NetResult, DelegateError> {
        let stdout = self.run(Verb::Add, conf, Some(to))?;
        let parsed = serde_json::from_slice(&stdout)
            .map_err(|error| error.to_string())
            .and_then(|document| {
                NetResult::from_json(document, version)
                    .map_err(|error| Error::caused(code::DELEGATE_BROKEN, &error).msg)
            });
        parsed.map_err(|trouble| self.broken(&format!("gave no result: {trouble}"), &stdout))
    }

    /// Executes a verb that answers with nothing but success or failure.
    pub fn call(
        &self,
        verb: Verb,
        conf: &Map<String, Value>,
        of: Option<&Attachment>,
    ) -> Result<(), DelegateError> {
        self.run(verb, conf, of).map(drop)
    }

    /// Fails unless the plugin is there to be executed.
    pub fn find(&self) -> Result<PathBuf, DelegateError> {
        let path = self
            .env
            .get("CNI_PATH")
            .and_then(|path| path.ok_or_else(|| Error::variable("CNI_PATH", "is missing")))
            .map_err(DelegateError::Path)?;
        std::env::split_paths(path)
            // An empty entry would silently be the working directory.
            .filter(|directory| !directory.as_os_str().is_empty())
            .map(|directory| directory.join(executable_name(self.kind)))
            .find(|file| file.is_file())
            .ok_or_else(|| DelegateError::NotFound {
                kind: self.kind.to_string(),
                path: path.to_owned(),
            })
    }

    fn run(
        &self,
        verb: Verb,
        conf: &Map<String, Value>,
        attachment: Option<&Attachment>,
    ) -> Result<Vec<u8>, DelegateError> {
        let path = self.find()?;
        let stdin = serde_json::to_vec(conf).unwrap_or_default();
        let finished = run::run(
            &path,
            &self.child_env(verb, attachment),
            stdin,
            self.timeout,
        )
        .map_err(|source| DelegateError::Spawn { path, source })?;
        match finished {
            run::Finished::TimedOut => Err(DelegateError::TimedOut {
                kind: self.kind.to_string(),
                verb,
                seconds: self.timeout.as_secs_f64(),
            }),
            run::Finished::TooMuch => Err(self.broken("printed far too much", b"")),
            run::Finished::Exited { status, stdout } if status.success() => Ok(stdout),
            run::Finished::Exited { status, stdout } => Err(self.failure(status, &stdout)),
        }
    }

    fn failure(&self, status: std::process::ExitStatus, stdout: &[u8]) -> DelegateError {
        match serde_json::from_slice(stdout)
            .ok()
            .and_then(|object| Error::from_json(&object))
        {
            Some(error) => DelegateError::Failed {
                kind: self.kind.to_string(),
                error,
            },
            None => self.broken(
                &format!("failed without an error object ({status})"),
                stdout,
            ),
        }
    }

    fn broken(&self, trouble: &str, stdout: &[u8]) -> DelegateError {
        const MAX_BYTES: usize = 200;
        let start = &stdout[..stdout.len().min(MAX_BYTES)];
        let printed = match String::from_utf8_lossy(start) {
            text if text.trim().is_empty() => "nothing on stdout".to_owned(),
            text => format!("{text:?}"),
        };
        DelegateError::Broken {
            kind: self.kind.to_string(),
            trouble: trouble.to_owned(),
            printed,
        }
    }

    fn child_env(&self, verb: Verb, attachment: Option<&Attachment>) -> Env {
        let env = self.env.clone().with("CNI_COMMAND", verb.as_str());
        match attachment {
            None => env,
            Some(attachment) => env
                .with("CNI_CONTAINERID", attachment.container.as_str())
                .with("CNI_IFNAME", attachment.ifname.as_str())
                .with("CNI_NETNS", attachment.netns.as_deref().unwrap_or_default())
                .with("CNI_ARGS", attachment.args.as_str()),
        }
    }
}

fn executable_name(kind: &PluginType) -> PathBuf {
    Path::new(kind.as_str()).with_added_extension(std::env::consts::EXE_EXTENSION)
}

#[cfg(unix)]
#[cfg(test)]
mod tests;
