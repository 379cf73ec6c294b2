//! Opens the files of records: files only, no link is followed, no pipe is waited for.

use std::fs::{File, Metadata};
use std::io;
use std::path::Path;

/// What a file is opened for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Purpose {
    /// To be locked and written, and made for that.
    Make,
    /// To be locked and written, and made if it isn't there.
    KeepOrMake,
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
    /// We have made it, and it was locked when it got its name.
    MadeLocked,
    /// We have made it.
    Made,
    /// It was there.
    Found,
}

/// Makes a record to be locked and written, or opens the one that is there.
pub(super) fn make_or_open(path: &Path) -> io::Result<(File, Origin)> {
    match make(path) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
            open(path, Purpose::Keep).map(|file| (file, Origin::Found))
        }
        made => made,
    }
}

/// The same, for one that is likely to be there.
pub(super) fn open_or_make(path: &Path) -> io::Result<(File, Origin)> {
    match open(path, Purpose::Keep) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => make_or_open(path),
        opened => opened.map(|file| (file, Origin::Found)),
    }
}

fn make(path: &Path) -> io::Result<(File, Origin)> {
    #[cfg(target_os = "linux")]
    if let Some(file) = super::spares::make_locked(path)? {
        return Ok((file, Origin::MadeLocked));
    }
    open(path, Purpose::Make).map(|file| (file, Origin::Made))
}

/// Removes a record that we have locked.
#[cfg(target_os = "linux")]
pub(super) fn remove(path: &Path, file: &File) -> io::Result<()> {
    super::spares::retire(path, file)
}

/// As on Linux, but nothing is kept.
#[cfg(not(target_os = "linux"))]
pub(super) fn remove(path: &Path, _file: &File) -> io::Result<()> {
    std::fs::remove_file(path)
}

/// Removes a directory that no record is in.
#[cfg(target_os = "linux")]
pub(super) fn remove_unused(dir: &Path) {
    super::spares::remove_unused(dir);
}

/// As on Linux.
#[cfg(not(target_os = "linux"))]
pub(super) fn remove_unused(dir: &Path) {
    // Fails if it is in use, as it should.
    let _ = std::fs::remove_dir(dir);
}

/// Opens a file; one that is made is for its owner's eyes. Programs that we execute inherit what
/// is opened to be locked, and hold the lock with us.
#[cfg(target_os = "linux")]
pub(super) fn open(path: &Path, purpose: Purpose) -> io::Result<File> {
    use rustix::fs::{Mode, OFlags};

    // By rustix, because `open` of musl takes a second system call.
    let flags = match purpose {
        Purpose::Make => OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL,
        Purpose::KeepOrMake => OFlags::WRONLY | OFlags::CREATE,
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
        Purpose::KeepOrMake => options.write(true).create(true),
        Purpose::Keep => options.write(true),
        Purpose::Look | Purpose::Read => options.read(true),
    };
    options.open(path)
}

/// Whether something is at `path` that is no file.
pub(super) fn is_something_else(path: &Path) -> bool {
    path.symlink_metadata().is_ok_and(|found| !found.is_file())
}

/// What is known about an open file, if it is the one at `path`: its name may be another one's by
/// now, and it may have another name.
#[cfg(unix)]
pub(super) fn metadata_if_at(path: &Path, file: &File) -> Option<Metadata> {
    use std::os::unix::fs::MetadataExt;

    let (ours, named) = (file.metadata().ok()?, path.symlink_metadata().ok()?);
    (ours.dev() == named.dev() && ours.ino() == named.ino()).then_some(ours)
}

/// As on Unix, as far as the standard library can.
#[cfg(not(unix))]
pub(super) fn metadata_if_at(path: &Path, file: &File) -> Option<Metadata> {
    let metadata = file.metadata().ok()?;
    path.exists().then_some(metadata)
}
