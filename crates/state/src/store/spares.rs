//! What removed records leave for new ones: to find a new inode takes ext4 longer than all else
//! that a record asks of it.
//!
//! A spare is an empty file `new.N` among the records. Whoever has locked it, and has seen since
//! that it is the file of that name, may give it another name or remove it; nobody else may. So a
//! record is locked from the moment that it is there, and no name leads to another file at the last
//! moment. If whoever was to empty a spare was killed, there are lines of a removed record in it.
//!
//! A new record looks in one place, which follows from its name. If there is nothing, a file is
//! made there, and in time all places have one.

use std::ffi::OsStr;
use std::fs::{self, File, Metadata, Permissions};
use std::io::{self, ErrorKind};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

use rustix::fs::{CWD, RenameFlags, renameat_with};
use rustix::io::retry_on_intr;

use super::files::{self, Purpose};

/// How many there are at the most.
pub(super) const PLACES: usize = 16;

const PREFIX: &str = "new.";

/// For its owner's eyes: a configuration may hold secrets.
const PRIVATE: u32 = 0o600;

/// Makes the file of a record, which is ours alone before anybody can open it. `None` if that can't
/// be done here; fails with `AlreadyExists` if it is there.
pub(super) fn make_locked(path: &Path) -> io::Result<Option<File>> {
    for place in places(path) {
        let (file, metadata) = match grab(&place, Purpose::KeepOrMake) {
            Ok(Some(grabbed)) => grabbed,
            Err(error) if error.kind() == ErrorKind::NotFound => return Err(error),
            // In use, none of ours, or no room for one more: there may be others.
            Ok(None) | Err(_) => continue,
        };
        let made = make_blank(&file, &metadata).and_then(|()| rename_to_free_name(&place, path));
        return match made {
            Ok(()) => Ok(Some(file)),
            Err(error) if error.kind() == ErrorKind::AlreadyExists => Err(error),
            // NFS and some others have no such rename.
            Err(_) => {
                let _ = fs::remove_file(&place);
                Ok(None)
            }
        };
    }
    Ok(None)
}

/// Makes a spare what a new file would be, which it is as a rule.
fn make_blank(file: &File, metadata: &Metadata) -> io::Result<()> {
    if metadata.len() > 0 {
        file.set_len(0)?;
    }
    if metadata.mode() & 0o777 != PRIVATE {
        file.set_permissions(Permissions::from_mode(PRIVATE))?;
    }
    Ok(())
}

/// Takes its name from a record that we have locked: makes a spare of it, or removes it.
pub(super) fn retire(path: &Path, file: &File) -> io::Result<()> {
    for place in places(path) {
        match rename_to_free_name(path, &place) {
            Ok(()) => {
                // Not before: killed in between, we would leave an attachment with an empty record.
                // If it fails, the next one who takes it does it.
                let _ = file.set_len(0);
                return Ok(());
            }
            Err(error) if error.kind() == ErrorKind::AlreadyExists => {}
            Err(_) => break,
        }
    }
    fs::remove_file(path)
}

/// Removes a directory that has spares in it and nothing else.
pub(super) fn remove_unused(dir: &Path) {
    let mut spares = Vec::new();
    for entry in fs::read_dir(dir).into_iter().flatten() {
        match entry {
            Ok(entry) if is_spare(&entry.file_name()) => spares.push(entry.path()),
            _ => return,
        }
    }
    for spare in spares {
        if let Ok(Some(_locked)) = grab(&spare, Purpose::Read) {
            let _ = fs::remove_file(&spare);
        }
    }
    // Fails if somebody has begun to use it, as it should.
    let _ = fs::remove_dir(dir);
}

/// Locks a spare. `None` if somebody else has it, or if it isn't one that we would have made.
fn grab(place: &Path, purpose: Purpose) -> io::Result<Option<(File, Metadata)>> {
    let file = files::open(place, purpose)?;
    if file.try_lock().is_err() {
        return Ok(None);
    }
    let is_ours = |metadata: &Metadata| metadata.is_file() && metadata.nlink() == 1;
    let Some(metadata) = files::metadata_if_at(place, &file).filter(is_ours) else {
        // It may be a record by now, and a program that was started meanwhile may have it too.
        file.unlock()?;
        return Ok(None);
    };
    Ok(Some((file, metadata)))
}

/// Where a record looks for a spare, and where it leaves one, in this order.
fn places(record: &Path) -> impl Iterator<Item = PathBuf> {
    let name = record.file_name().unwrap_or_default();
    let sum = name.as_encoded_bytes().iter().fold(0_usize, |sum, byte| {
        sum.wrapping_mul(31).wrapping_add(usize::from(*byte))
    });
    (0..PLACES).map(move |step| {
        let number = sum.wrapping_add(step) % PLACES;
        record.with_file_name(format!("{PREFIX}{number}"))
    })
}

fn is_spare(name: &OsStr) -> bool {
    let number = name.to_str().and_then(|name| name.strip_prefix(PREFIX));
    number.is_some_and(|number| number.parse().is_ok_and(|number: usize| number < PLACES))
}

fn rename_to_free_name(from: &Path, to: &Path) -> io::Result<()> {
    let flags = RenameFlags::NOREPLACE;
    Ok(retry_on_intr(|| renameat_with(CWD, from, CWD, to, flags))?)
}

#[cfg(test)]
mod tests;
