//! What is wrong with a configuration, where, and how to mend it.
//!
//! No message shows a value that could not be understood: a secret may have been written in the
//! wrong place. File, line and column, or the variable's name, say where to look.

use std::fmt::{self, Write};
use std::path::PathBuf;

use super::path::KeyPath;
use super::tree::{Node, Origin};

/// More than a person mends at once.
const MOST_SHOWN: usize = 100;

/// Something wrong with a key's value, whatever the value came from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    /// The key.
    pub key: KeyPath,
    /// Where a person has to look, most exactly first; the key's own place comes last.
    pub spots: Vec<KeyPath>,
    /// What is wrong, and the way out.
    pub text: String,
}

impl Problem {
    /// A problem with a key, to be mended there.
    pub fn new(key: impl Into<KeyPath>, text: impl Into<String>) -> Self {
        Self {
            key: key.into(),
            spots: Vec::new(),
            text: text.into(),
        }
    }

    /// Says where else to look, if something is said there.
    #[must_use]
    pub fn look_at(mut self, spot: impl Into<KeyPath>) -> Self {
        self.spots.push(spot.into());
        self
    }
}

/// Where a problem is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Place {
    /// In a file, counted from 1.
    File {
        /// The file.
        path: PathBuf,
        /// Its line.
        line: u64,
        /// The column, in characters.
        column: u64,
    },
    /// With a file as a whole.
    WholeFile(PathBuf),
    /// In an environment variable.
    Variable(String),
    /// Behind a flag.
    Flag(&'static str),
    /// With what nobody has said: a default.
    Default,
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::File { path, line, column } => {
                visible(f, &path.to_string_lossy())?;
                write!(f, ":{line}:{column}")
            }
            Self::WholeFile(path) => visible(f, &path.to_string_lossy()),
            Self::Variable(name) => visible(f, name),
            Self::Flag(name) => f.write_str(name),
            Self::Default => f.write_str("default"),
        }
    }
}

/// Writes text of others so that it stays on its line.
fn visible(f: &mut fmt::Formatter<'_>, text: &str) -> fmt::Result {
    text.chars().try_for_each(|c| {
        if c.is_control() {
            write!(f, "{}", c.escape_default())
        } else {
            f.write_char(c)
        }
    })
}

/// A problem, or a warning, and its place: `/etc/headcni/daemon.yaml:7:5: network.mtuu: unknown key,
/// did you mean mtu?`
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Complaint {
    /// Where it is.
    pub place: Place,
    /// The key, if it is about one.
    pub key: Option<KeyPath>,
    /// What is wrong, and the way out.
    pub text: String,
}

impl fmt::Display for Complaint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: ", self.place)?;
        if let Some(key) = &self.key {
            write!(f, "{key}: ")?;
        }
        f.write_str(&self.text)
    }
}

/// A configuration that can't be used: everything that was found wrong with it, a line each.
#[derive(Debug, thiserror::Error)]
pub struct ConfigError {
    /// What was found, at least one.
    pub complaints: Vec<Complaint>,
}

impl fmt::Display for ConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, complaint) in self.complaints.iter().take(MOST_SHOWN).enumerate() {
            let end_of_last = if index == 0 { "" } else { "\n" };
            write!(f, "{end_of_last}{complaint}")?;
        }
        match self.complaints.len().checked_sub(MOST_SHOWN) {
            None | Some(0) => Ok(()),
            Some(more) => write!(f, "\n… and {more} more like these"),
        }
    }
}

/// Finds the places of problems in what all sources said.
pub(super) fn locate(problems: Vec<Problem>, said: &Node, file: &Place) -> Vec<Complaint> {
    let locate = |problem: Problem| Complaint {
        place: find(&problem, said).map_or(file.clone(), |node| place(&node.origin, file)),
        key: Some(problem.key),
        text: problem.text,
    };
    problems.into_iter().map(locate).collect()
}

/// The value that a problem is with, or what is around it short of the whole.
fn find<'a>(problem: &Problem, said: &'a Node) -> Option<&'a Node> {
    let mut exact = problem.spots.iter().chain([&problem.key]);
    exact.find_map(|path| said.at(path)).or_else(|| {
        let around = problem.spots.first().unwrap_or(&problem.key);
        let node = said.nearest(around);
        (!std::ptr::eq(node, said)).then_some(node)
    })
}

/// The place of a value that came from the environment, a flag, or this file.
pub(super) fn place(origin: &Origin, file: &Place) -> Place {
    match (origin, file) {
        (Origin::File { line, column }, Place::WholeFile(path)) => Place::File {
            path: path.clone(),
            line: *line,
            column: *column,
        },
        (Origin::File { .. } | Origin::Nowhere, file) => file.clone(),
        (Origin::Variable(name), _) => Place::Variable(name.clone()),
        (Origin::Flag(name), _) => Place::Flag(name),
    }
}
