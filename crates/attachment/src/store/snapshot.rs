//! A record as read without its lock.

use std::fmt;
use std::fs::{File, Metadata};
use std::io::{self, Read};
use std::time::SystemTime;

use crate::record::{Record, last_whole_line};

/// The variable that tells a DEL which state of the record to undo. A DEL of any other state fails
/// and changes nothing.
pub const STAMP_VARIABLE: &str = "HEADCNI_RECORD_STAMP";

/// Upper bound of a record's size. A configuration has a few kilobytes and is in it once per step.
const MAX_BYTES: u64 = 4 * 1024 * 1024;

#[derive(Debug)]
pub struct Snapshot {
    pub content: RecordContent,
    pub stamp: Stamp,
    /// Time of the last write, by the clock at that time.
    pub modified: Option<SystemTime>,
}

#[derive(Debug)]
pub enum RecordContent {
    /// The ADD has not recorded a step yet.
    Empty,
    Whole(Box<Record>),
    /// Unreadable, for example after a power failure.
    Damaged,
}

/// Identifies one state of a record: every write and every new file changes it.
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

    /// Compares with a stamp that was written with [`fmt::Display`].
    pub fn is(&self, text: &str) -> bool {
        self.0 == text
    }
}

impl fmt::Display for Stamp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl Snapshot {
    pub(super) fn read(file: &File) -> io::Result<Self> {
        // Before the content: if the record is written meanwhile, the stamp is outdated.
        let metadata = file.metadata()?;
        let mut bytes = Vec::new();
        file.take(MAX_BYTES).read_to_end(&mut bytes)?;
        let content = match last_whole_line(&bytes) {
            // Of a longer file the end is missing, which has the latest state.
            Some(record) if metadata.len() < MAX_BYTES => RecordContent::Whole(Box::new(record)),
            None if bytes.is_empty() => RecordContent::Empty,
            _ => RecordContent::Damaged,
        };
        Ok(Self {
            content,
            stamp: Stamp::of(&metadata),
            modified: metadata.modified().ok(),
        })
    }
}
