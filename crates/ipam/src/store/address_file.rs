//! The file of a leased address: appears whole, names its owner.

use std::fs;
use std::io::{self, ErrorKind};
use std::net::IpAddr;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use rustix::fs::{CWD, RenameFlags, renameat_with};
use rustix::io::retry_on_intr;

use super::file;
use super::owner::Owner;
use super::record::{index_dir, remove, write_over};

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
    path: PathBuf,
    pub(super) identity: Identity,
}

impl Unnamed {
    /// Takes what a release has left, if anything: to find a new inode takes ext4 longer than all
    /// else that a lease asks of it.
    pub(super) fn new(dir: &Path, owner: &Owner, number: usize) -> io::Result<Self> {
        let path = spare_path(dir, number);
        let metadata = write_over(&path, owner.to_text().as_bytes())?;
        let identity = Identity::of(&metadata);
        Ok(Self { path, identity })
    }

    /// Gives the file its name; fails with `AlreadyExists` if that is taken.
    pub(super) fn link(&self, dir: &Path, address: IpAddr) -> io::Result<()> {
        let path = path(dir, address);
        match rename_to_free_name(&self.path, &path) {
            // NFS and some others can't: two steps, which end before the lock is given back.
            Err(error)
                if matches!(
                    error.kind(),
                    ErrorKind::InvalidInput | ErrorKind::Unsupported
                ) =>
            {
                fs::hard_link(&self.path, &path)?;
                // With two names it would be written over by the next lease.
                remove(&self.path).or_else(|error| remove(&path).and(Err(error)))
            }
            outcome => outcome,
        }
    }
}

/// Removes the file of an address, or leaves it for the next lease.
pub(super) fn release(dir: &Path, address: IpAddr, number: usize) -> io::Result<()> {
    let path = path(dir, address);
    // Not in place of another one: ext4 would write this one to disk at once.
    rename_to_free_name(&path, &spare_path(dir, number)).or_else(|_| remove(&path))
}

fn rename_to_free_name(from: &Path, to: &Path) -> io::Result<()> {
    let flags = RenameFlags::NOREPLACE;
    Ok(retry_on_intr(|| renameat_with(CWD, from, CWD, to, flags))?)
}

fn spare_path(dir: &Path, number: usize) -> PathBuf {
    index_dir(dir).join(format!("new.{number}"))
}
