//! The file of a leased address. It appears complete and names its owner.

use std::fs;
use std::io::{self, ErrorKind};
use std::net::IpAddr;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use rustix::fs::{CWD, RenameFlags, renameat_with};
use rustix::io::retry_on_intr;

use super::file;
use super::owner::LeaseOwner;
use super::record::{index_dir, overwrite, remove};

/// Inode and mtime: differs if the address is leased again.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct FileIdentity(pub(super) String);

impl FileIdentity {
    pub(super) fn of(metadata: &fs::Metadata) -> Self {
        let (seconds, nanoseconds) = (metadata.mtime(), metadata.mtime_nsec());
        Self(format!("{}:{seconds}.{nanoseconds:09}", metadata.ino()))
    }
}

pub(super) fn path(dir: &Path, address: IpAddr) -> PathBuf {
    dir.join(address.to_string())
}

#[derive(Debug, PartialEq, Eq)]
pub(super) enum AddressHolder {
    Free,
    /// The file is empty: a crash of host-local.
    TornFile,
    LeaseOwner(LeaseOwner),
    /// Not a lease: a directory or a symbolic link occupies the name.
    Foreign,
}

pub(super) fn holder(dir: &Path, address: IpAddr) -> io::Result<AddressHolder> {
    let path = path(dir, address);
    match file::read(&path) {
        Ok(bytes) => Ok(
            match LeaseOwner::from_text(&String::from_utf8_lossy(&bytes)) {
                Some(owner) => AddressHolder::LeaseOwner(owner),
                None => AddressHolder::TornFile,
            },
        ),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(AddressHolder::Free),
        Err(_) if fs::symlink_metadata(&path).is_ok_and(|found| !found.is_file()) => {
            Ok(AddressHolder::Foreign)
        }
        Err(error) => Err(error),
    }
}

/// A complete file that is not linked to an address yet.
pub(super) struct StagedFile {
    path: PathBuf,
    pub(super) identity: FileIdentity,
}

impl StagedFile {
    /// Reuses the file of an earlier release: allocating an inode is the slowest part of a lease on
    /// ext4.
    pub(super) fn new(dir: &Path, owner: &LeaseOwner, number: usize) -> io::Result<Self> {
        let path = spare_path(dir, number);
        let metadata = overwrite(&path, owner.to_text().as_bytes())?;
        let identity = FileIdentity::of(&metadata);
        Ok(Self { path, identity })
    }

    /// Links the file to its address; fails with `AlreadyExists` if the name is taken.
    pub(super) fn link(&self, dir: &Path, address: IpAddr) -> io::Result<()> {
        let path = path(dir, address);
        match rename_to_free_name(&self.path, &path) {
            // NFS and some FUSE file systems lack RENAME_NOREPLACE.
            Err(error)
                if matches!(
                    error.kind(),
                    ErrorKind::InvalidInput | ErrorKind::Unsupported
                ) =>
            {
                fs::hard_link(&self.path, &path)?;
                // With two names, the next lease would overwrite this one.
                remove(&self.path).or_else(|error| remove(&path).and(Err(error)))
            }
            outcome => outcome,
        }
    }
}

/// Unlinks the file of an address, and keeps it for the next lease if none is kept yet.
pub(super) fn release(dir: &Path, address: IpAddr, number: usize) -> io::Result<()> {
    let path = path(dir, address);
    // Don't replace: ext4 flushes a file that replaces another one by rename.
    rename_to_free_name(&path, &spare_path(dir, number)).or_else(|_| remove(&path))
}

fn rename_to_free_name(from: &Path, to: &Path) -> io::Result<()> {
    let flags = RenameFlags::NOREPLACE;
    Ok(retry_on_intr(|| renameat_with(CWD, from, CWD, to, flags))?)
}

fn spare_path(dir: &Path, number: usize) -> PathBuf {
    index_dir(dir).join(format!("new.{number}"))
}
