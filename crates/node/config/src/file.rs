//! Reads small regular files. A pipe would block and a device may never end, so both are refused.

use std::fs::OpenOptions;
use std::io::{self, Read};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::Path;

use rustix::fs::OFlags;

#[derive(Debug, thiserror::Error)]
pub(super) enum FileError {
    #[error("no such file")]
    Absent,
    #[error("can't be read: {0}")]
    Unreadable(#[from] io::Error),
    #[error("is {0}, not a file")]
    NotAFile(&'static str),
    #[error("is larger than {0} bytes")]
    TooLarge(u64),
}

pub(super) struct Contents {
    pub(super) bytes: Vec<u8>,
    pub(super) is_world_readable: bool,
}

/// Reads a file of at most `max` bytes.
pub(super) fn read(path: &Path, max: u64) -> Result<Contents, FileError> {
    let flags = (OFlags::NONBLOCK | OFlags::NOCTTY).bits().cast_signed();
    let opened = OpenOptions::new().read(true).custom_flags(flags).open(path);
    let file = opened.map_err(|error| match error.kind() {
        io::ErrorKind::NotFound => FileError::Absent,
        _ => FileError::Unreadable(error),
    })?;
    let metadata = file.metadata()?;
    if metadata.is_dir() {
        return Err(FileError::NotAFile("a directory"));
    }
    if !metadata.is_file() {
        return Err(FileError::NotAFile("a pipe, socket or device"));
    }
    let mut bytes = Vec::new();
    // The file may grow while it is read.
    file.take(max + 1).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > max {
        return Err(FileError::TooLarge(max));
    }
    Ok(Contents {
        bytes,
        is_world_readable: metadata.mode() & 0o004 != 0,
    })
}
