//! One daemon per node: whoever holds the lock is it.

use std::fs::{self, File, TryLockError};
use std::io::{self, Read, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

/// The right to be this node's daemon, for as long as it lives.
#[derive(Debug)]
pub struct Instance {
    path: PathBuf,
    lock: File,
}

/// Why there is no such right.
#[derive(Debug, thiserror::Error)]
pub enum InstanceError {
    /// Another one has it.
    #[error(
        "headcni-daemon runs on this node already{}: stop it first (it holds {})",
        .pid.as_ref().map(|pid| format!(", as process {pid}")).unwrap_or_default(),
        .path.display()
    )]
    Running {
        /// The lock.
        path: PathBuf,
        /// Its process id, if it says.
        pid: Option<String>,
    },
    /// The lock can't be opened.
    #[error("open the lock {}", .path.display())]
    Io {
        /// The lock.
        path: PathBuf,
        /// Why.
        #[source]
        source: io::Error,
    },
}

impl Instance {
    /// Takes the lock, or says who has it.
    pub fn take(path: &Path) -> Result<Self, InstanceError> {
        let failed = |source| InstanceError::Io {
            path: path.to_owned(),
            source,
        };
        if let Some(dir) = path.parent() {
            fs::create_dir_all(dir).map_err(failed)?;
            // Nobody but root has any business here, but people may look.
            fs::set_permissions(dir, fs::Permissions::from_mode(0o755)).map_err(failed)?;
        }
        let mut lock = File::options()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .mode(0o600)
            .open(path)
            .map_err(failed)?;
        match lock.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => {
                return Err(InstanceError::Running {
                    path: path.to_owned(),
                    pid: holder(&mut lock),
                });
            }
            Err(TryLockError::Error(source)) => return Err(failed(source)),
        }
        // The number is for people. Where the disk is full they have to do without.
        let _ = lock
            .set_len(0)
            .and_then(|()| writeln!(lock, "{}", std::process::id()));
        let path = path.to_owned();
        Ok(Self { path, lock })
    }

    /// Takes the lock again if somebody has taken its file away.
    pub fn keep(&mut self) -> Result<(), InstanceError> {
        let identity = |found: fs::Metadata| (found.dev(), found.ino());
        let named = fs::symlink_metadata(&self.path).map(identity);
        let held = self.lock.metadata().map(identity);
        match (named, held) {
            (Ok(named), Ok(held)) if named == held => Ok(()),
            _ => {
                *self = Self::take(&self.path)?;
                Ok(())
            }
        }
    }
}

fn holder(lock: &mut File) -> Option<String> {
    let mut text = String::new();
    lock.take(32).read_to_string(&mut text).ok()?;
    let pid = text.trim();
    (!pid.is_empty() && pid.bytes().all(|byte| byte.is_ascii_digit())).then(|| pid.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_second_one_is_told_about_the_first() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("run/daemon.lock");
        let first = Instance::take(&path).unwrap();
        let error = Instance::take(&path).unwrap_err().to_string();
        let pid = format!("as process {}", std::process::id());
        assert!(error.contains(&pid), "{error}");
        drop(first);
        Instance::take(&path).unwrap();
    }

    #[test]
    fn a_lock_whose_file_was_taken_away_is_taken_again() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("run/daemon.lock");
        let mut first = Instance::take(&path).unwrap();
        first.keep().unwrap();
        fs::remove_dir_all(directory.path().join("run")).unwrap();
        first.keep().unwrap();
        Instance::take(&path).unwrap_err();
    }

    #[test]
    fn whoever_was_faster_keeps_the_lock() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("daemon.lock");
        let mut first = Instance::take(&path).unwrap();
        fs::remove_file(&path).unwrap();
        let mut second = Instance::take(&path).unwrap();
        let error = first.keep().unwrap_err();
        assert!(matches!(error, InstanceError::Running { .. }), "{error}");
        second.keep().unwrap();
    }
}
