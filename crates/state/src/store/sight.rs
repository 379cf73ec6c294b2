//! A record as somebody sees it who doesn't hold it.

use std::fmt;
use std::fs::{File, Metadata};
use std::io::{self, Read};
use std::time::SystemTime;

use crate::record::{Record, last_whole_line};

/// The variable by which a DEL is told which state of the record it is for. If it is another one
/// by now, the DEL refuses and changes nothing.
pub const STAMP_VARIABLE: &str = "HEADCNI_RECORD_STAMP";

/// More than any record has: a configuration is a few kilobytes, and is in it once per step.
const MAX_BYTES: u64 = 4 * 1024 * 1024;

/// A record, and which state of it that is.
#[derive(Debug)]
pub struct Sight {
    /// What it says.
    pub content: Content,
    /// Which state of it this is.
    pub stamp: Stamp,
    /// When it was written last, by the clock of that time; `None` where that isn't known.
    pub modified: Option<SystemTime>,
}

/// What a record says.
#[derive(Debug)]
pub enum Content {
    /// Nothing: whoever made it has not begun.
    Empty,
    /// This.
    Whole(Box<Record>),
    /// Nothing that can be understood.
    Damaged,
}

/// Tells one state of a record from every other: a file that is written or made anew has another.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stamp(String);

impl Stamp {
    #[cfg(unix)]
    pub(super) fn of(metadata: &Metadata) -> Self {
        use std::os::unix::fs::MetadataExt;

        let (seconds, nanoseconds) = (metadata.mtime(), metadata.mtime_nsec());
        let (inode, length) = (metadata.ino(), metadata.len());
        Self(format!("{inode}:{length}:{seconds}.{nanoseconds:09}"))
    }

    #[cfg(not(unix))]
    pub(super) fn of(metadata: &Metadata) -> Self {
        Self(format!("{}:{:?}", metadata.len(), metadata.modified()))
    }

    /// As [`fmt::Display`] wrote it.
    pub fn is(&self, text: &str) -> bool {
        self.0 == text
    }
}

impl fmt::Display for Stamp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl Sight {
    pub(super) fn of(file: &File) -> io::Result<Self> {
        let metadata = file.metadata()?;
        let mut bytes = Vec::new();
        file.take(MAX_BYTES).read_to_end(&mut bytes)?;
        let content = match last_whole_line(&bytes) {
            // Of one that is too long, the end is missing, and the end is what counts.
            Some(record) if metadata.len() < MAX_BYTES => Content::Whole(Box::new(record)),
            None if bytes.is_empty() => Content::Empty,
            _ => Content::Damaged,
        };
        Ok(Self {
            content,
            // Of before the reading: if it was written since, the stamp is another one by now.
            stamp: Stamp::of(&metadata),
            modified: metadata.modified().ok(),
        })
    }
}
