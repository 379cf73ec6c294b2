//! Puts the sources together.

use std::ffi::OsString;
use std::fmt;
use std::path::{Path, PathBuf};

use serde::Deserialize;

use super::environment::{self, Setting};
use super::file::{self, FileError};
use super::keys::{self, Key};
use super::problem::{Complaint, ConfigError, Place, locate};
use super::schema::Config;
use super::secrets::{self, Secrets};
use super::tree::{Node, Origin, Value};
use super::validate::{advise, validate};
use super::{check, yaml};

/// The largest file that is read: ten thousand nodes' networks are 400 KiB.
const MOST_BYTES: u64 = 1024 * 1024;

/// Where a configuration comes from, the weakest first.
#[derive(Clone)]
pub struct Sources {
    /// The file that somebody asked for. It must be there.
    pub file: Option<PathBuf>,
    /// The file if nobody asked for one. It may be absent.
    pub default_file: PathBuf,
    /// The process's environment; only our variables are looked at.
    pub environment: Vec<(OsString, OsString)>,
    /// What flags say.
    pub flags: Vec<Setting>,
}

/// Without the variables' values: some are secrets.
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
    /// The file in its usual place, and nothing else.
    fn default() -> Self {
        Self {
            file: None,
            default_file: PathBuf::from(api::paths::DAEMON_CONFIG),
            environment: Vec::new(),
            flags: Vec::new(),
        }
    }
}

/// A configuration that can be used.
pub struct Loaded {
    /// The configuration.
    pub config: Config,
    /// What it may not show.
    pub secrets: Secrets,
    /// What is allowed but likely not meant.
    pub warnings: Vec<Complaint>,
    /// The file that was read, if there was one.
    pub file: Option<PathBuf>,
    /// What all sources said, and where.
    pub(super) said: Node,
}

/// Without what the sources said: the configuration has it all.
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

/// Reads and checks the whole configuration, and the secrets that it names. It blocks.
pub fn load(sources: &Sources) -> Result<Loaded, ConfigError> {
    let root = keys::root();
    let mut complaints = Vec::new();
    let mut file = Place::Default;
    let mut said = Node {
        origin: Origin::Nowhere,
        value: Value::Map(Vec::new()),
    };
    match read(sources) {
        Ok(None) => {}
        Ok(Some((path, tree))) => {
            file = Place::WholeFile(path);
            complaints.extend(check::check(&root, &tree, &file));
            said = tree;
        }
        Err(complaint) => complaints.push(complaint),
    }
    complaints.extend(add_overrides(&root, sources, &mut said, &file));
    refuse(complaints)?;

    let config = Config::deserialize(said.to_json()).map_err(|error| ConfigError {
        complaints: vec![Complaint {
            place: file.clone(),
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
    let mut complaints = locate(problems, &said, &file);
    complaints.extend(found.complaints);
    refuse(complaints)?;

    let mut warnings = advise(&config);
    warnings.extend(found.warnings);
    Ok(Loaded {
        warnings: locate(warnings, &said, &file),
        file: match file {
            Place::WholeFile(path) => Some(path),
            _ => None,
        },
        config,
        secrets: found.secrets,
        said,
    })
}

fn refuse(complaints: Vec<Complaint>) -> Result<(), ConfigError> {
    if complaints.is_empty() {
        Ok(())
    } else {
        Err(ConfigError { complaints })
    }
}

/// Lays variables and flags over what the file says.
fn add_overrides(root: &Key, sources: &Sources, said: &mut Node, file: &Place) -> Vec<Complaint> {
    let (variables, mut complaints) = environment::variables(root, &sources.environment);
    let flags = environment::flags(root, &sources.flags);
    for tree in [variables, flags] {
        complaints.extend(check::check(root, &tree, file));
        said.overlay(tree);
    }
    complaints
}

/// The file's path and tree; nothing if there needs to be no file.
fn read(sources: &Sources) -> Result<Option<(PathBuf, Node)>, Complaint> {
    let (path, is_asked_for) = match &sources.file {
        Some(path) => (path, true),
        None => (&sources.default_file, false),
    };
    let complain = |text: String| Complaint {
        place: Place::WholeFile(path.clone()),
        key: None,
        text,
    };
    let contents = match file::read(path, MOST_BYTES) {
        Err(FileError::Absent) if !is_asked_for => return Ok(None),
        Err(error) => {
            let way_out = match error {
                FileError::Absent => "make it, or leave --config out",
                FileError::Unreadable(_) => "look at its permissions",
                FileError::NotAFile(_) => "name a YAML file",
                FileError::TooLarge(_) => "that is no configuration of ours",
            };
            return Err(complain(format!("{error}: {way_out}")));
        }
        Ok(contents) => contents.bytes,
    };
    let text = str::from_utf8(&contents).map_err(|error| Complaint {
        place: position(path, &contents[..error.valid_up_to()]),
        key: None,
        text: "not UTF-8 from here on: save it as UTF-8".to_owned(),
    })?;
    let mut tree = yaml::parse(text).map_err(|error| Complaint {
        place: match error.position {
            Some((line, column)) => Place::File {
                path: path.clone(),
                line,
                column,
            },
            None => Place::WholeFile(path.clone()),
        },
        key: None,
        text: error.text,
    })?;
    if matches!(tree.value, Value::Null) {
        tree.value = Value::Map(Vec::new());
    }
    Ok(Some((path.clone(), tree)))
}

/// The place after this text.
fn position(path: &Path, before: &[u8]) -> Place {
    let text = String::from_utf8_lossy(before);
    let last = text.rsplit('\n').next().unwrap_or_default();
    Place::File {
        path: path.to_owned(),
        line: (text.matches('\n').count() + 1) as u64,
        column: (last.chars().count() + 1) as u64,
    }
}
