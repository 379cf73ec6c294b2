//! Opens the files of a record: files only, no link is followed, no pipe is waited for.

use std::fs::File;
use std::io;
use std::path::Path;

/// What a file is opened for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Purpose {
    /// To be locked; made if need be. Programs that we execute inherit it, and hold the lock
    /// with us.
    Lock,
    /// As [`Purpose::Lock`], but only if it is there.
    ExistingLock,
    /// To be written from the start; made if need be.
    NewRecord,
    /// To be read.
    Record,
}

/// Opens a file; one that is made is for its owner's eyes.
#[cfg(target_os = "linux")]
pub(super) fn open(path: &Path, purpose: Purpose) -> io::Result<File> {
    use rustix::fs::{Mode, OFlags};

    // By rustix, because `open` of musl takes a second system call.
    let flags = match purpose {
        Purpose::Lock => OFlags::WRONLY | OFlags::CREATE,
        Purpose::ExistingLock => OFlags::RDONLY,
        Purpose::NewRecord => OFlags::WRONLY | OFlags::CREATE | OFlags::TRUNC | OFlags::CLOEXEC,
        Purpose::Record => OFlags::RDONLY | OFlags::CLOEXEC,
    };
    let plain = OFlags::NOFOLLOW | OFlags::NONBLOCK;
    let file = rustix::fs::open(path, flags | plain, Mode::RUSR | Mode::WUSR)?;
    Ok(file.into())
}

/// As on Linux, as far as the standard library can.
#[cfg(not(target_os = "linux"))]
pub(super) fn open(path: &Path, purpose: Purpose) -> io::Result<File> {
    let mut options = std::fs::OpenOptions::new();
    match purpose {
        Purpose::Lock => options.write(true).create(true).truncate(false),
        Purpose::ExistingLock | Purpose::Record => options.read(true),
        Purpose::NewRecord => options.write(true).create(true).truncate(true),
    };
    options.open(path)
}
