//! Records which CNI configurations were renamed, and in which directory.
//!
//! The suffix of the files has the same information, so a lost ledger matters only if `cni.confDir`
//! changed.

use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::error::CniConfError;
use node_core::files;

const VERSION: u32 = 1;
const MAX_BYTES: u64 = 4 * 1024 * 1024;
/// File names have earlier ones.
const MOST_ENTRIES: usize = 1000;

/// The file `set-aside.json`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Ledger {
    version: u32,
    /// Directories with a conflist of ours.
    pub(super) conf_dirs: Vec<PathBuf>,
    pub(super) set_aside: Vec<SetAside>,
}

/// A renamed configuration.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct SetAside {
    pub(super) dir: PathBuf,
    /// The original name.
    pub(super) name: String,
    /// The current name.
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
    /// Empty if the file is missing or damaged.
    pub(super) fn load(path: &Path) -> Self {
        let read = match files::read_small(path, MAX_BYTES) {
            Ok(text) => serde_json::from_slice(&text).map_err(Into::into),
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(Self::default()),
            Err(error) => Err(error),
        };
        read.unwrap_or_else(|error: io::Error| {
            tracing::warn!(path = %path.display(), %error, "replacing damaged ledger");
            Self::default()
        })
    }

    /// Writes it if it changed.
    pub(super) fn save(&self, path: &Path) -> Result<(), CniConfError> {
        let failed = |error| CniConfError::file("write", path, error);
        let mut text = serde_json::to_vec_pretty(self).map_err(|error| failed(error.into()))?;
        text.push(b'\n');
        files::ensure_file(path, &text, 0o600).map_err(failed)?;
        Ok(())
    }

    /// Records a directory of our conflist.
    pub(super) fn note_dir(&mut self, dir: &Path) {
        if !self.conf_dirs.iter().any(|known| known == dir) {
            self.conf_dirs.push(dir.to_owned());
        }
    }

    /// Records a rename before it happens.
    pub(super) fn note_aside(&mut self, entry: SetAside) {
        if self.set_aside.contains(&entry) {
            return;
        }
        if self.set_aside.len() >= MOST_ENTRIES {
            self.set_aside.remove(0);
        }
        self.set_aside.push(entry);
    }

    pub(super) fn forget_dir(&mut self, dir: &Path) {
        self.conf_dirs.retain(|known| known != dir);
        self.forget_asides(dir);
    }

    pub(super) fn forget_asides(&mut self, dir: &Path) {
        self.set_aside.retain(|entry| entry.dir != dir);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_ledger_has_a_maximum_size() {
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
    fn a_ledger_that_is_not_a_file_is_replaced() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("set-aside.json");
        std::os::unix::fs::symlink("/dev/zero", &path).unwrap();
        assert_eq!(Ledger::load(&path), Ledger::default());
        Ledger::default().save(&path).unwrap();
        assert!(path.symlink_metadata().unwrap().is_file());
    }
}
