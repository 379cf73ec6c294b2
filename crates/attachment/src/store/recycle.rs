//! Reuses the files of removed records, because ext4 takes long to allocate an inode (ADR 19).
//!
//! A spare is an empty file `new.N` among the records. Only the process that has locked it, and then
//! seen that it still has that name, may rename or remove it. So a record is locked from the moment
//! that it exists. A spare may hold lines of a removed record if a DEL was killed.
//!
//! The name of a record selects the first slot to try. An empty slot gets a new file, so that in
//! time all slots have one.

use std::ffi::OsStr;
use std::fs::{self, File, Metadata, Permissions};
use std::io::{self, ErrorKind};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

use rustix::fs::{CWD, RenameFlags, renameat_with};
use rustix::io::retry_on_intr;

use super::files::{self, Access};

pub(super) const SLOTS: usize = 16;

const PREFIX: &str = "new.";

/// A configuration may hold secrets.
const PRIVATE: u32 = 0o600;

/// Creates the file of a record, which is locked before it has its name. `None` if the file system
/// can't do that; fails with `AlreadyExists` if the record exists.
pub(super) fn create_locked(path: &Path) -> io::Result<Option<File>> {
    for slot in slots(path) {
        let (file, metadata) = match lock_spare(&slot, Access::WriteOrCreate) {
            Ok(Some(grabbed)) => grabbed,
            Err(error) if error.kind() == ErrorKind::NotFound => return Err(error),
            // In use, not ours, or no space for a new file: try the next slot.
            Ok(None) | Err(_) => continue,
        };
        let created = clear(&file, &metadata).and_then(|()| rename_to_free_name(&slot, path));
        return match created {
            Ok(()) => Ok(Some(file)),
            Err(error) if error.kind() == ErrorKind::AlreadyExists => Err(error),
            // NFS and some others don't have RENAME_NOREPLACE.
            Err(_) => {
                let _ = fs::remove_file(&slot);
                Ok(None)
            }
        };
    }
    Ok(None)
}

/// Empties a spare and makes it private, which it usually is.
fn clear(file: &File, metadata: &Metadata) -> io::Result<()> {
    if metadata.len() > 0 {
        file.set_len(0)?;
    }
    if metadata.mode() & 0o777 != PRIVATE {
        file.set_permissions(Permissions::from_mode(PRIVATE))?;
    }
    Ok(())
}

/// Turns a locked record into a spare, or removes it.
pub(super) fn retire(path: &Path, file: &File) -> io::Result<()> {
    for slot in slots(path) {
        match rename_to_free_name(path, &slot) {
            Ok(()) => {
                // After the rename: a DEL killed in between must not leave an empty record. If it
                // fails, the next ADD that takes the spare does it.
                let _ = file.set_len(0);
                return Ok(());
            }
            Err(error) if error.kind() == ErrorKind::AlreadyExists => {}
            Err(_) => break,
        }
    }
    fs::remove_file(path)
}

/// Removes a directory that has only spares.
pub(super) fn remove_dir_if_unused(dir: &Path) {
    let mut spares = Vec::new();
    for entry in fs::read_dir(dir).into_iter().flatten() {
        match entry {
            Ok(entry) if is_spare(&entry.file_name()) => spares.push(entry.path()),
            _ => return,
        }
    }
    for spare in spares {
        if let Ok(Some(_locked)) = lock_spare(&spare, Access::Read) {
            let _ = fs::remove_file(&spare);
        }
    }
    // Fails if the directory is in use.
    let _ = fs::remove_dir(dir);
}

/// Locks a spare. `None` if it is locked, or is not a file of ours.
fn lock_spare(slot: &Path, access: Access) -> io::Result<Option<(File, Metadata)>> {
    let file = files::open(slot, access)?;
    if file.try_lock().is_err() {
        return Ok(None);
    }
    let is_ours = |metadata: &Metadata| metadata.is_file() && metadata.nlink() == 1;
    let Some(metadata) = files::metadata_if_at(slot, &file).filter(is_ours) else {
        // It may be a record by now, and an executed program may have inherited the lock.
        file.unlock()?;
        return Ok(None);
    };
    Ok(Some((file, metadata)))
}

/// The slots of a record, in the order of use.
fn slots(record: &Path) -> impl Iterator<Item = PathBuf> {
    let name = record.file_name().unwrap_or_default();
    let sum = name.as_encoded_bytes().iter().fold(0_usize, |sum, byte| {
        sum.wrapping_mul(31).wrapping_add(usize::from(*byte))
    });
    (0..SLOTS).map(move |step| {
        let number = sum.wrapping_add(step) % SLOTS;
        record.with_file_name(format!("{PREFIX}{number}"))
    })
}

fn is_spare(name: &OsStr) -> bool {
    let number = name.to_str().and_then(|name| name.strip_prefix(PREFIX));
    number.is_some_and(|number| number.parse().is_ok_and(|number: usize| number < SLOTS))
}

fn rename_to_free_name(from: &Path, to: &Path) -> io::Result<()> {
    let flags = RenameFlags::NOREPLACE;
    Ok(retry_on_intr(|| renameat_with(CWD, from, CWD, to, flags))?)
}

#[cfg(test)]
mod tests;
