//! Opens the files of a record: files only, no link is followed, no pipe is waited for.

use std::fs::File;
use std::io;
use std::path::Path;

/// What a file is opened for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Purpose {
    /// To be locked and written, and made for that.
    Make,
    /// To be locked and written.
    Keep,
    /// To be locked, where nothing can be written.
    Look,
    /// To be read.
    Read,
}

/// Where an open file comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Origin {
    /// We have made it.
    Made,
    /// It was there.
    Found,
}

/// Opens a file to be locked and written, and makes it if need be.
pub(super) fn open_or_create(path: &Path) -> io::Result<(File, Origin)> {
    match open(path, Purpose::Make) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
            open(path, Purpose::Keep).map(|file| (file, Origin::Found))
        }
        made => made.map(|file| (file, Origin::Made)),
    }
}

/// Opens a file; one that is made is for its owner's eyes. Programs that we execute inherit what
/// is opened to be locked, and hold the lock with us.
#[cfg(target_os = "linux")]
pub(super) fn open(path: &Path, purpose: Purpose) -> io::Result<File> {
    use rustix::fs::{Mode, OFlags};

    // By rustix, because `open` of musl takes a second system call.
    let flags = match purpose {
        Purpose::Make => OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL,
        Purpose::Keep => OFlags::WRONLY,
        Purpose::Look => OFlags::RDONLY,
        Purpose::Read => OFlags::RDONLY | OFlags::CLOEXEC,
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
        Purpose::Make => options.write(true).create_new(true),
        Purpose::Keep => options.write(true),
        Purpose::Look | Purpose::Read => options.read(true),
    };
    options.open(path)
}

/// Whether something is at `path` that is no file.
pub(super) fn is_something_else(path: &Path) -> bool {
    path.symlink_metadata().is_ok_and(|found| !found.is_file())
}

/// The length of an open file, unless somebody has removed it since.
#[cfg(unix)]
pub(super) fn length_if_there(file: &File, _path: &Path) -> Option<u64> {
    use std::os::unix::fs::MetadataExt;

    let metadata = file.metadata().ok()?;
    (metadata.nlink() > 0).then_some(metadata.len())
}

/// As on Unix, as far as the standard library can.
#[cfg(not(unix))]
pub(super) fn length_if_there(file: &File, path: &Path) -> Option<u64> {
    let metadata = file.metadata().ok()?;
    path.exists().then(|| metadata.len())
}
