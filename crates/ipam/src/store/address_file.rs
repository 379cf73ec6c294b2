//! The file of a leased address: appears whole, names its owner.

use std::fs::{self, File};
use std::io::{self, ErrorKind, Write};
use std::net::IpAddr;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, CWD, Mode, OFlags, linkat, open};
use rustix::io::Errno;

use super::file;
use super::owner::Owner;
use super::record::{index_dir, remove};

/// What tells a file from another one that takes its name later: inode and time of writing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Identity(pub(super) String);

impl Identity {
    pub(super) fn of(metadata: &fs::Metadata) -> Self {
        let (seconds, nanoseconds) = (metadata.mtime(), metadata.mtime_nsec());
        Self(format!("{}:{seconds}.{nanoseconds:09}", metadata.ino()))
    }
}

pub(super) fn path(dir: &Path, address: IpAddr) -> PathBuf {
    dir.join(address.to_string())
}

/// Who has an address.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Holder {
    Nobody,
    /// Nobody either, but a torn file has its name.
    TornFile,
    Owner(Owner),
    /// Its name is taken by something that is no lease: a directory, a link.
    Foreign,
}

pub(super) fn holder(dir: &Path, address: IpAddr) -> io::Result<Holder> {
    let path = path(dir, address);
    match file::read(&path) {
        Ok(bytes) => Ok(match Owner::from_text(&String::from_utf8_lossy(&bytes)) {
            Some(owner) => Holder::Owner(owner),
            None => Holder::TornFile,
        }),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(Holder::Nobody),
        Err(_) if fs::symlink_metadata(&path).is_ok_and(|found| !found.is_file()) => {
            Ok(Holder::Foreign)
        }
        Err(error) => Err(error),
    }
}

/// A file with its content, but no address yet.
pub(super) struct Unnamed {
    file: File,
    /// Its name for the time being, on file systems that can't do without one.
    temporary: Option<PathBuf>,
    pub(super) identity: Identity,
}

impl Unnamed {
    pub(super) fn new(dir: &Path, owner: &Owner, number: usize) -> io::Result<Self> {
        let (mut file, temporary) = create(dir, number)?;
        file.write_all(owner.to_text().as_bytes())?;
        let identity = Identity::of(&file.metadata()?);
        Ok(Self {
            file,
            temporary,
            identity,
        })
    }

    /// Gives the file its name; fails with `AlreadyExists` if that is taken.
    pub(super) fn link(&self, dir: &Path, address: IpAddr) -> io::Result<()> {
        let path = path(dir, address);
        if let Some(temporary) = &self.temporary {
            return fs::hard_link(temporary, path);
        }
        // By descriptor, which needs a privilege that plugins have; else by its name in /proc.
        match linkat(&self.file, "", CWD, &path, AtFlags::EMPTY_PATH) {
            Err(Errno::NOENT | Errno::PERM | Errno::ACCESS) => {
                let descriptor = std::os::fd::AsRawFd::as_raw_fd(&self.file);
                let by_proc = format!("/proc/self/fd/{descriptor}");
                linkat(CWD, by_proc, CWD, &path, AtFlags::SYMLINK_FOLLOW)?;
            }
            outcome => outcome?,
        }
        Ok(())
    }
}

impl Drop for Unnamed {
    fn drop(&mut self) {
        if let Some(temporary) = &self.temporary {
            // Left-overs are found and removed when the index is made anew.
            let _ = fs::remove_file(temporary);
        }
    }
}

/// A file without a name, or with a temporary one where the file system knows no other way.
fn create(dir: &Path, number: usize) -> io::Result<(File, Option<PathBuf>)> {
    let mode = Mode::RUSR | Mode::WUSR;
    match open(
        dir,
        OFlags::TMPFILE | OFlags::WRONLY | OFlags::CLOEXEC,
        mode,
    ) {
        Ok(descriptor) => return Ok((descriptor.into(), None)),
        Err(Errno::OPNOTSUPP | Errno::ISDIR | Errno::INVAL) => {}
        Err(error) => return Err(error.into()),
    }
    let path = index_dir(dir).join(format!("new.{number}"));
    // It may be left over, and a living lease by now: it must not be written to.
    remove(&path)?;
    let flags = OFlags::CREATE | OFlags::EXCL | OFlags::WRONLY | OFlags::CLOEXEC;
    Ok((open(&path, flags, mode)?.into(), Some(path)))
}
