//! Renames other CNI configurations, so that the runtime loads ours, and restores them.
//!
//! `20-other.conflist` becomes `20-other.conflist.headcni-aside`, which no runtime loads. If that
//! name exists, a number follows. A file replaces an earlier one only if both are equal.

use std::ffi::{OsStr, OsString};
use std::fs;
use std::io::{self, ErrorKind};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::Path;

use rustix::fs::{CWD, RenameFlags, renameat_with};
use rustix::io::Errno;

use super::error::CniConfError;
use super::ledger::{Ledger, SetAside};
use node_config::CONFLIST;
use node_core::files;

const SUFFIX: &str = ".headcni-aside";
/// What libcni loads: <https://pkg.go.dev/github.com/containernetworking/cni/libcni#ConfFiles>.
const EXTENSIONS: [&str; 3] = ["conf", "conflist", "json"];
const MOST_VERSIONS: u32 = 100;
const MOST_ENTRIES: usize = 10_000;
/// Files per reconcile.
const MOST_FILES: usize = 256;
const LARGEST_BYTES: u64 = 1024 * 1024;

pub(super) fn is_config(name: &OsStr) -> bool {
    let extension = Path::new(name).extension();
    extension.is_some_and(|extension| EXTENSIONS.iter().any(|known| extension == *known))
}

/// The other configurations of a directory, in the order of the runtime.
pub(super) fn others(dir: &Path) -> Result<Vec<OsString>, CniConfError> {
    let failed = |error| CniConfError::file("list", dir, error);
    let mut names = Vec::new();
    for entry in fs::read_dir(dir).map_err(failed)?.take(MOST_ENTRIES) {
        let entry = entry.map_err(failed)?;
        let name = entry.file_name();
        // Follow symlinks: Multus links directories.
        if is_config(&name) && name != CONFLIST && !entry.path().is_dir() {
            names.push(name);
        }
    }
    names.sort();
    Ok(names)
}

/// Renames every other configuration of a directory, after recording it.
pub(super) fn set_aside(
    dir: &Path,
    ledger: &mut Ledger,
    ledger_path: &Path,
) -> Result<Vec<String>, CniConfError> {
    let known = asides(dir)?;
    let mut moves = Vec::new();
    for name in others(dir)?.into_iter().take(MOST_FILES) {
        let (aside, how) = place_for(dir, &name, &known)?;
        if let (Some(name), Some(aside)) = (name.to_str(), aside.to_str()) {
            ledger.note_aside(SetAside {
                dir: dir.to_owned(),
                name: name.to_owned(),
                aside: aside.to_owned(),
            });
        }
        moves.push((name, aside, how));
    }
    if moves.is_empty() {
        return Ok(Vec::new());
    }
    ledger.save(ledger_path)?;
    let mut done = Vec::new();
    for (name, aside, how) in moves {
        match rename(&dir.join(&name), &dir.join(&aside), how) {
            Ok(()) => done.push(format!(
                "{} was set aside as {}",
                dir.join(&name).display(),
                aside.display()
            )),
            // Deleted meanwhile.
            Err(error) if error.kind() == ErrorKind::NotFound => {}
            Err(error) => return Err(CniConfError::file("set aside", &dir.join(&name), error)),
        }
    }
    Ok(done)
}

/// Restores renamed configurations, unless the name exists again.
pub(super) fn put_back(dir: &Path, ledger: &mut Ledger) -> Result<Vec<String>, CniConfError> {
    let mut newest: Vec<Aside> = Vec::new();
    for aside in asides(dir)? {
        match newest.iter_mut().find(|(name, ..)| *name == aside.0) {
            Some(known) if known.1 < aside.1 => *known = aside,
            Some(_) => {}
            None => newest.push(aside),
        }
    }
    newest.sort();
    let mut done = Vec::new();
    for (name, _, aside) in newest {
        let (from, to) = (dir.join(&aside), dir.join(&name));
        match rename(&from, &to, How::IfFree) {
            Ok(()) => done.push(format!("{} was put back", to.display())),
            Err(error) if error.kind() == ErrorKind::NotFound => {}
            Err(error) if error.kind() == ErrorKind::AlreadyExists => {
                tracing::debug!(path = %from.display(), "not put back: the name is taken");
            }
            Err(error) => return Err(CniConfError::file("put back", &to, error)),
        }
    }
    ledger.forget_asides(dir);
    Ok(done)
}

/// Original name, number and current name.
type Aside = (OsString, u32, OsString);

fn asides(dir: &Path) -> Result<Vec<Aside>, CniConfError> {
    let failed = |error| CniConfError::file("list", dir, error);
    let entries = match fs::read_dir(dir) {
        Ok(entries) => entries,
        Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) => {
            return Ok(Vec::new());
        }
        Err(error) => return Err(failed(error)),
    };
    let mut found = Vec::new();
    for entry in entries.take(MOST_ENTRIES) {
        let aside = entry.map_err(failed)?.file_name();
        if let Some((name, number)) = own_name(&aside) {
            found.push((name, number, aside));
        }
    }
    Ok(found)
}

/// Undoes [`aside_name`].
fn own_name(aside: &OsStr) -> Option<(OsString, u32)> {
    let bytes = aside.as_bytes();
    let at = bytes
        .windows(SUFFIX.len())
        .rposition(|part| part == SUFFIX.as_bytes())?;
    let number = match str::from_utf8(&bytes[at + SUFFIX.len()..]).ok()? {
        "" => 1,
        text => text.strip_prefix('-')?.parse().ok()?,
    };
    let name = OsString::from_vec(bytes[..at].to_vec());
    is_config(&name).then_some((name, number))
}

fn aside_name(name: &OsStr, number: u32) -> OsString {
    let mut aside = name.to_owned();
    aside.push(SUFFIX);
    if number > 1 {
        aside.push(format!("-{number}"));
    }
    aside
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum How {
    /// The target must not exist.
    IfFree,
    /// The target is equal.
    InPlaceOf,
}

fn place_for(dir: &Path, name: &OsStr, known: &[Aside]) -> Result<(OsString, How), CniConfError> {
    let of_this = known.iter().filter(|(own, ..)| own == name);
    let Some((_, number, newest)) = of_this.max_by_key(|(_, number, _)| *number) else {
        return Ok((aside_name(name, 1), How::IfFree));
    };
    if is_same(&dir.join(name), &dir.join(newest)) {
        return Ok((newest.clone(), How::InPlaceOf));
    }
    if *number >= MOST_VERSIONS {
        return Err(CniConfError::Persistent {
            path: dir.join(name),
            times: *number,
        });
    }
    Ok((aside_name(name, number + 1), How::IfFree))
}

fn is_same(one: &Path, other: &Path) -> bool {
    let read = |path| files::read_small(path, LARGEST_BYTES).ok();
    read(one).is_some_and(|contents| Some(contents) == read(other))
}

fn rename(from: &Path, to: &Path, how: How) -> io::Result<()> {
    if how == How::InPlaceOf {
        return fs::rename(from, to);
    }
    match renameat_with(CWD, from, CWD, to, RenameFlags::NOREPLACE) {
        // Not supported by this file system, such as NFS. Only headcni uses these names.
        Err(Errno::INVAL | Errno::NOSYS) if to.symlink_metadata().is_err() => fs::rename(from, to),
        Err(Errno::INVAL | Errno::NOSYS) => Err(ErrorKind::AlreadyExists.into()),
        done => Ok(done?),
    }
}

#[cfg(test)]
mod tests;
