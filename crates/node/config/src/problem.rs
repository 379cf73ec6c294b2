//! Errors and warnings about a configuration, with location and remedy.
//!
//! No message contains a value that could not be parsed: it may be a secret in the wrong place.

use std::fmt::{self, Write};
use std::path::PathBuf;

use super::path::KeyPath;
use super::tree::{Node, Origin};

const MAX_DIAGNOSTICS: usize = 100;

/// An invalid value of a key, without its location.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    pub key: KeyPath,
    /// Keys to locate, most specific first; `key` is the last resort.
    pub locations: Vec<KeyPath>,
    /// Error and remedy.
    pub text: String,
}

impl Problem {
    pub fn new(key: impl Into<KeyPath>, text: impl Into<String>) -> Self {
        Self {
            key: key.into(),
            locations: Vec::new(),
            text: text.into(),
        }
    }

    /// Adds a key whose location is preferred, if it is set.
    #[must_use]
    pub fn at(mut self, spot: impl Into<KeyPath>) -> Self {
        self.locations.push(spot.into());
        self
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Location {
    /// Line and column count from 1.
    File {
        path: PathBuf,
        line: u64,
        /// In characters.
        column: u64,
    },
    WholeFile(PathBuf),
    Variable(String),
    Flag(&'static str),
    Default,
}

impl fmt::Display for Location {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::File { path, line, column } => {
                write_escaped(f, &path.to_string_lossy())?;
                write!(f, ":{line}:{column}")
            }
            Self::WholeFile(path) => write_escaped(f, &path.to_string_lossy()),
            Self::Variable(name) => write_escaped(f, name),
            Self::Flag(name) => f.write_str(name),
            Self::Default => f.write_str("default"),
        }
    }
}

/// Escapes control characters, so that a message stays on one line.
fn write_escaped(f: &mut fmt::Formatter<'_>, text: &str) -> fmt::Result {
    text.chars().try_for_each(|c| {
        if c.is_control() {
            write!(f, "{}", c.escape_default())
        } else {
            f.write_char(c)
        }
    })
}

/// An error or a warning: `/etc/headcni/daemon.yaml:7:5: network.mtuu: unknown key,
/// did you mean mtu?`
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Diagnostic {
    pub location: Location,
    pub key: Option<KeyPath>,
    /// Error and remedy.
    pub text: String,
}

impl fmt::Display for Diagnostic {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: ", self.location)?;
        if let Some(key) = &self.key {
            write!(f, "{key}: ")?;
        }
        f.write_str(&self.text)
    }
}

/// All errors of an invalid configuration, one per line.
#[derive(Debug, thiserror::Error)]
pub struct ConfigError {
    /// At least one.
    pub diagnostics: Vec<Diagnostic>,
}

impl fmt::Display for ConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, diagnostic) in self.diagnostics.iter().take(MAX_DIAGNOSTICS).enumerate() {
            let separator = if index == 0 { "" } else { "\n" };
            write!(f, "{separator}{diagnostic}")?;
        }
        match self.diagnostics.len().checked_sub(MAX_DIAGNOSTICS) {
            None | Some(0) => Ok(()),
            Some(more) => write!(f, "\n… and {more} more"),
        }
    }
}

/// Finds the locations of problems in the merged sources.
pub(super) fn locate(problems: Vec<Problem>, merged: &Node, file: &Location) -> Vec<Diagnostic> {
    let locate = |problem: Problem| Diagnostic {
        location: find(&problem, merged).map_or(file.clone(), |node| location(&node.origin, file)),
        key: Some(problem.key),
        text: problem.text,
    };
    problems.into_iter().map(locate).collect()
}

/// The value with the problem, or the innermost section around it.
fn find<'a>(problem: &Problem, merged: &'a Node) -> Option<&'a Node> {
    let mut exact = problem.locations.iter().chain([&problem.key]);
    exact.find_map(|path| merged.at(path)).or_else(|| {
        let key = problem.locations.first().unwrap_or(&problem.key);
        let node = merged.nearest(key);
        (!std::ptr::eq(node, merged)).then_some(node)
    })
}

pub(super) fn location(origin: &Origin, file: &Location) -> Location {
    match (origin, file) {
        (Origin::File { line, column }, Location::WholeFile(path)) => Location::File {
            path: path.clone(),
            line: *line,
            column: *column,
        },
        (Origin::File { .. } | Origin::Nowhere, file) => file.clone(),
        (Origin::Variable(name), _) => Location::Variable(name.clone()),
        (Origin::Flag(name), _) => Location::Flag(name),
    }
}
