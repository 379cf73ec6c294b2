//! Loads and merges the sources.

use std::ffi::OsString;
use std::fmt;
use std::path::{Path, PathBuf};

use serde::Deserialize;

use super::environment::{self, FlagValue};
use super::file::{self, FileError};
use super::keys::{self, Key};
use super::problem::{ConfigError, Diagnostic, Location, locate};
use super::schema::Config;
use super::secrets::{self, Secrets};
use super::tree::{Node, Origin, Value};
use super::validate::{validate, warnings};
use super::{check, yaml};

/// The pod CIDRs of ten thousand nodes take 400 KiB.
const MAX_BYTES: u64 = 1024 * 1024;

/// The sources of a configuration, lowest precedence first.
#[derive(Clone)]
pub struct Sources {
    /// The file of `--config`. It must exist.
    pub file: Option<PathBuf>,
    /// The file without `--config`. It is optional.
    pub default_file: PathBuf,
    /// The environment of the process; only our variables are used.
    pub environment: Vec<(OsString, OsString)>,
    pub flags: Vec<FlagValue>,
}

/// Without values of environment variables: some are secrets.
impl fmt::Debug for Sources {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Sources")
            .field("file", &self.file)
            .field("default_file", &self.default_file)
            .field("flags", &self.flags)
            .finish_non_exhaustive()
    }
}

impl Default for Sources {
    /// Only the file at its default path.
    fn default() -> Self {
        Self {
            file: None,
            default_file: PathBuf::from(api::paths::DAEMON_CONFIG),
            environment: Vec::new(),
            flags: Vec::new(),
        }
    }
}

/// A valid configuration.
pub struct Loaded {
    pub config: Config,
    pub secrets: Secrets,
    /// Values that are allowed but probably a mistake.
    pub warnings: Vec<Diagnostic>,
    pub file: Option<PathBuf>,
    /// The merged sources with their locations.
    pub(super) merged: Node,
}

/// Without the merged sources: they may contain secrets.
impl fmt::Debug for Loaded {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Loaded")
            .field("config", &self.config)
            .field("secrets", &self.secrets)
            .field("warnings", &self.warnings)
            .field("file", &self.file)
            .finish_non_exhaustive()
    }
}

/// Loads and validates the configuration and its secrets. It blocks.
pub fn load(sources: &Sources) -> Result<Loaded, ConfigError> {
    let root = keys::root();
    let mut diagnostics = Vec::new();
    let mut file = Location::Default;
    let mut merged = Node {
        origin: Origin::Nowhere,
        value: Value::Map(Vec::new()),
    };
    match read(sources) {
        Ok(None) => {}
        Ok(Some((path, tree))) => {
            file = Location::WholeFile(path);
            diagnostics.extend(check::check(&root, &tree, &file));
            merged = tree;
        }
        Err(diagnostic) => diagnostics.push(diagnostic),
    }
    diagnostics.extend(add_overrides(&root, sources, &mut merged, &file));
    refuse(diagnostics)?;

    let config = Config::deserialize(merged.to_json()).map_err(|error| ConfigError {
        diagnostics: vec![Diagnostic {
            location: file.clone(),
            key: None,
            text: error.to_string(),
        }],
    })?;
    let variable = |name: &str| {
        let mut environment = sources.environment.iter();
        let (_, value) = environment.find(|(known, _)| known == name)?;
        let value = value.to_str().unwrap_or_default();
        (!value.is_empty()).then(|| value.to_owned())
    };
    let mut problems = validate(&config);
    let found = secrets::read(&config.headscale, &variable);
    problems.extend(found.problems);
    let mut diagnostics = locate(problems, &merged, &file);
    diagnostics.extend(found.diagnostics);
    refuse(diagnostics)?;

    let mut warnings = warnings(&config);
    warnings.extend(found.warnings);
    Ok(Loaded {
        warnings: locate(warnings, &merged, &file),
        file: match file {
            Location::WholeFile(path) => Some(path),
            _ => None,
        },
        config,
        secrets: found.secrets,
        merged,
    })
}

fn refuse(diagnostics: Vec<Diagnostic>) -> Result<(), ConfigError> {
    if diagnostics.is_empty() {
        Ok(())
    } else {
        Err(ConfigError { diagnostics })
    }
}

/// Merges environment variables and flags over the file.
fn add_overrides(
    root: &Key,
    sources: &Sources,
    merged: &mut Node,
    file: &Location,
) -> Vec<Diagnostic> {
    let (variables, mut diagnostics) = environment::variables(root, &sources.environment);
    let flags = environment::flags(root, &sources.flags);
    for tree in [variables, flags] {
        diagnostics.extend(check::check(root, &tree, file));
        merged.overlay(tree);
    }
    diagnostics
}

/// The file's path and tree; nothing if the default file does not exist.
fn read(sources: &Sources) -> Result<Option<(PathBuf, Node)>, Diagnostic> {
    let (path, is_required) = match &sources.file {
        Some(path) => (path, true),
        None => (&sources.default_file, false),
    };
    let refuse = |text: String| Diagnostic {
        location: Location::WholeFile(path.clone()),
        key: None,
        text,
    };
    let contents = match file::read(path, MAX_BYTES) {
        Err(FileError::Absent) if !is_required => return Ok(None),
        Err(error) => {
            let remedy = match error {
                FileError::Absent => "create it, or omit --config",
                FileError::Unreadable(_) => "check its permissions",
                FileError::NotAFile(_) => "specify a YAML file",
                FileError::TooLarge(_) => "this is not a headcni configuration",
            };
            return Err(refuse(format!("{error}: {remedy}")));
        }
        Ok(contents) => contents.bytes,
    };
    let text = str::from_utf8(&contents).map_err(|error| Diagnostic {
        location: position(path, &contents[..error.valid_up_to()]),
        key: None,
        text: "not UTF-8 from here: save the file as UTF-8".to_owned(),
    })?;
    let mut tree = yaml::parse(text).map_err(|error| Diagnostic {
        location: match error.position {
            Some((line, column)) => Location::File {
                path: path.clone(),
                line,
                column,
            },
            None => Location::WholeFile(path.clone()),
        },
        key: None,
        text: error.text,
    })?;
    if matches!(tree.value, Value::Null) {
        tree.value = Value::Map(Vec::new());
    }
    Ok(Some((path.clone(), tree)))
}

/// The location after this text.
fn position(path: &Path, before: &[u8]) -> Location {
    let text = String::from_utf8_lossy(before);
    let last = text.rsplit('\n').next().unwrap_or_default();
    Location::File {
        path: path.to_owned(),
        line: (text.matches('\n').count() + 1) as u64,
        column: (last.chars().count() + 1) as u64,
    }
}
