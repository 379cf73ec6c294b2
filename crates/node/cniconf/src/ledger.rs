//! What was set aside and where, for the one who puts it back: a later daemon, or a person.
//!
//! The names in the directory say it too. So a ledger that is lost or damaged loses nothing, unless
//! runtimes have been told to look into another directory since.

use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::error::CniConfError;
use node_core::files;

const VERSION: u32 = 1;
const MAX_BYTES: u64 = 4 * 1024 * 1024;
/// The names in the directory tell of earlier ones.
const MOST_ENTRIES: usize = 1000;

/// The file `set-aside.json`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Ledger {
    version: u32,
    /// Where our configuration is or was.
    pub(super) conf_dirs: Vec<PathBuf>,
    /// What was renamed there.
    pub(super) set_aside: Vec<SetAside>,
}

/// A configuration of somebody else.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct SetAside {
    pub(super) dir: PathBuf,
    /// Its own name.
    pub(super) name: String,
    /// The name that it has now.
    pub(super) aside: String,
}

impl Default for Ledger {
    fn default() -> Self {
        Self {
            version: VERSION,
            conf_dirs: Vec::new(),
            set_aside: Vec::new(),
        }
    }
}

impl Ledger {
    /// What the file says; nothing if it is missing or damaged.
    pub(super) fn load(path: &Path) -> Self {
        let read = match files::read_small(path, MAX_BYTES) {
            Ok(text) => serde_json::from_slice(&text).map_err(Into::into),
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(Self::default()),
            Err(error) => Err(error),
        };
        read.unwrap_or_else(|error: io::Error| {
            tracing::warn!(path = %path.display(), %error, "ledger is damaged and begun anew");
            Self::default()
        })
    }

    /// Writes it, unless it is on disk already.
    pub(super) fn save(&self, path: &Path) -> Result<(), CniConfError> {
        let failed = |error| CniConfError::file("write", path, error);
        let mut text = serde_json::to_vec_pretty(self).map_err(|error| failed(error.into()))?;
        text.push(b'\n');
        files::ensure_file(path, &text, 0o600).map_err(failed)?;
        Ok(())
    }

    /// Notes where our configuration is going to be.
    pub(super) fn note_dir(&mut self, dir: &Path) {
        if !self.conf_dirs.iter().any(|known| known == dir) {
            self.conf_dirs.push(dir.to_owned());
        }
    }

    /// Notes that a file is going to have another name.
    pub(super) fn note_aside(&mut self, entry: SetAside) {
        if self.set_aside.contains(&entry) {
            return;
        }
        if self.set_aside.len() >= MOST_ENTRIES {
            self.set_aside.remove(0);
        }
        self.set_aside.push(entry);
    }

    /// Forgets a directory that has nothing of ours any more.
    pub(super) fn forget_dir(&mut self, dir: &Path) {
        self.conf_dirs.retain(|known| known != dir);
        self.forget_asides(dir);
    }

    /// Forgets what was set aside in a directory.
    pub(super) fn forget_asides(&mut self, dir: &Path) {
        self.set_aside.retain(|entry| entry.dir != dir);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_never_grows_too_large_to_be_read() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("set-aside.json");
        let mut ledger = Ledger::default();
        for number in 0..MOST_ENTRIES + 5 {
            // The longest name that a file can have, in the longest form that JSON has for it.
            let name = format!("{number:\u{1}>255}");
            ledger.note_aside(SetAside {
                dir: "/etc/cni/net.d".into(),
                aside: name.clone(),
                name,
            });
        }
        ledger.save(&path).unwrap();
        assert_eq!(ledger.set_aside.len(), MOST_ENTRIES);
        assert_eq!(Ledger::load(&path), ledger);
    }

    #[test]
    fn one_that_is_no_file_is_replaced_by_one() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("set-aside.json");
        std::os::unix::fs::symlink("/dev/zero", &path).unwrap();
        assert_eq!(Ledger::load(&path), Ledger::default());
        Ledger::default().save(&path).unwrap();
        assert!(path.symlink_metadata().unwrap().is_file());
    }
}
