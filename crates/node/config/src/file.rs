//! Reads small files that people write. Nothing else is opened: not a pipe, which would make us wait,
//! and not a device, which may never end.

use std::fs::OpenOptions;
use std::io::{self, Read};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::Path;

use rustix::fs::OFlags;

/// Why a file can't be used.
#[derive(Debug, thiserror::Error)]
pub(super) enum FileError {
    #[error("there is no such file")]
    Absent,
    #[error("can't be read: {0}")]
    Unreadable(#[from] io::Error),
    #[error("is {0}, not a file")]
    NotAFile(&'static str),
    #[error("is larger than {0} bytes")]
    TooLarge(u64),
}

/// A file's contents, and whether everybody may read it.
pub(super) struct Contents {
    pub(super) bytes: Vec<u8>,
    pub(super) is_public: bool,
}

/// Reads a file of at most `most` bytes.
pub(super) fn read(path: &Path, most: u64) -> Result<Contents, FileError> {
    let flags = (OFlags::NONBLOCK | OFlags::NOCTTY).bits().cast_signed();
    let opened = OpenOptions::new().read(true).custom_flags(flags).open(path);
    let file = opened.map_err(|error| match error.kind() {
        io::ErrorKind::NotFound => FileError::Absent,
        _ => FileError::Unreadable(error),
    })?;
    let about = file.metadata()?;
    if about.is_dir() {
        return Err(FileError::NotAFile("a directory"));
    }
    if !about.is_file() {
        return Err(FileError::NotAFile("a pipe, socket or device"));
    }
    let mut bytes = Vec::new();
    // It may grow while it is read.
    file.take(most + 1).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > most {
        return Err(FileError::TooLarge(most));
    }
    Ok(Contents {
        bytes,
        is_public: about.mode() & 0o004 != 0,
    })
}
