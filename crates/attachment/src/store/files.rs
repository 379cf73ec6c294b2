//! Opens record files: regular files only; symbolic links are not followed, pipes don't block.

use std::fs::{File, Metadata};
use std::io;
use std::path::Path;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Access {
    /// Create, lock and write.
    Create,
    /// Lock and write; create if missing.
    WriteOrCreate,
    /// Lock and write.
    Write,
    /// Lock, on a file system that may be read-only.
    Lock,
    Read,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Origin {
    /// Locked before it had its name.
    CreatedLocked,
    Created,
    Existing,
}

pub(super) fn create_or_open(path: &Path) -> io::Result<(File, Origin)> {
    match create(path) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
            open(path, Access::Write).map(|file| (file, Origin::Existing))
        }
        created => created,
    }
}

fn create(path: &Path) -> io::Result<(File, Origin)> {
    #[cfg(target_os = "linux")]
    if let Some(file) = super::recycle::create_locked(path)? {
        return Ok((file, Origin::CreatedLocked));
    }
    open(path, Access::Create).map(|file| (file, Origin::Created))
}

/// Removes a record that this process has locked.
pub(super) fn remove(path: &Path, file: &File) -> io::Result<()> {
    #[cfg(target_os = "linux")]
    return super::recycle::retire(path, file);
    #[cfg(not(target_os = "linux"))]
    {
        let _ = file;
        std::fs::remove_file(path)
    }
}

/// Removes a directory without records.
pub(super) fn remove_dir_if_unused(dir: &Path) {
    #[cfg(target_os = "linux")]
    super::recycle::remove_dir_if_unused(dir);
    #[cfg(not(target_os = "linux"))]
    // Fails if the directory is in use.
    let _ = std::fs::remove_dir(dir);
}

/// As [`create_or_open`], for a record that probably exists.
pub(super) fn open_or_create(path: &Path) -> io::Result<(File, Origin)> {
    match open(path, Access::Write) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => create_or_open(path),
        opened => opened.map(|file| (file, Origin::Existing)),
    }
}

/// Opens a file; a new one has mode 0600. Executed programs inherit what is opened for locking, and
/// hold the lock too.
#[cfg(target_os = "linux")]
pub(super) fn open(path: &Path, access: Access) -> io::Result<File> {
    use rustix::fs::{Mode, OFlags};

    // With rustix, because musl's `open` makes a second system call.
    let flags = match access {
        Access::Create => OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL,
        Access::WriteOrCreate => OFlags::WRONLY | OFlags::CREATE,
        Access::Write => OFlags::WRONLY,
        Access::Lock => OFlags::RDONLY,
        Access::Read => OFlags::RDONLY | OFlags::CLOEXEC,
    };
    let plain = OFlags::NOFOLLOW | OFlags::NONBLOCK;
    let file = rustix::fs::open(path, flags | plain, Mode::RUSR | Mode::WUSR)?;
    Ok(file.into())
}

#[cfg(not(target_os = "linux"))]
pub(super) fn open(path: &Path, access: Access) -> io::Result<File> {
    let mut options = std::fs::OpenOptions::new();
    match access {
        Access::Create => options.write(true).create_new(true),
        Access::WriteOrCreate => options.write(true).create(true),
        Access::Write => options.write(true),
        Access::Lock | Access::Read => options.read(true),
    };
    options.open(path)
}

/// Whether `path` exists and is not a regular file.
pub(super) fn is_irregular(path: &Path) -> bool {
    path.symlink_metadata().is_ok_and(|found| !found.is_file())
}

/// Metadata of an open file, if it is still the file at `path`.
#[cfg(unix)]
pub(super) fn metadata_if_at(path: &Path, file: &File) -> Option<Metadata> {
    use std::os::unix::fs::MetadataExt;

    let (open, named) = (file.metadata().ok()?, path.symlink_metadata().ok()?);
    (open.dev() == named.dev() && open.ino() == named.ino()).then_some(open)
}

#[cfg(not(unix))]
pub(super) fn metadata_if_at(path: &Path, file: &File) -> Option<Metadata> {
    let metadata = file.metadata().ok()?;
    path.exists().then_some(metadata)
}
