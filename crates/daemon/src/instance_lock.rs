//! One daemon per node: the process that holds this lock.

use std::fs::{self, File, TryLockError};
use std::io::{self, Read, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

/// Held until it is dropped.
#[derive(Debug)]
pub struct InstanceLock {
    path: PathBuf,
    lock: File,
}

#[derive(Debug, thiserror::Error)]
pub enum InstanceLockError {
    #[error(
        "headcni-daemon already runs on this node{}: stop it first (it holds {})",
        .pid.as_ref().map(|pid| format!(", as process {pid}")).unwrap_or_default(),
        .path.display()
    )]
    Running { path: PathBuf, pid: Option<String> },
    #[error("open the lock {}", .path.display())]
    Io {
        path: PathBuf,
        #[source]
        source: io::Error,
    },
}

impl InstanceLock {
    /// Fails if another process holds it.
    pub fn acquire(path: &Path) -> Result<Self, InstanceLockError> {
        let failed = |source| InstanceLockError::Io {
            path: path.to_owned(),
            source,
        };
        if let Some(dir) = path.parent() {
            fs::create_dir_all(dir).map_err(failed)?;
            // Only root may write; every user may list.
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
                return Err(InstanceLockError::Running {
                    path: path.to_owned(),
                    pid: holder(&mut lock),
                });
            }
            Err(TryLockError::Error(source)) => return Err(failed(source)),
        }
        // The pid is for operators; a full disk must not stop the daemon.
        let _ = lock
            .set_len(0)
            .and_then(|()| writeln!(lock, "{}", std::process::id()));
        let path = path.to_owned();
        Ok(Self { path, lock })
    }

    /// Acquires the lock again if its file was deleted.
    pub fn renew(&mut self) -> Result<(), InstanceLockError> {
        let identity = |found: fs::Metadata| (found.dev(), found.ino());
        let named = fs::symlink_metadata(&self.path).map(identity);
        let held = self.lock.metadata().map(identity);
        match (named, held) {
            (Ok(named), Ok(held)) if named == held => Ok(()),
            _ => {
                *self = Self::acquire(&self.path)?;
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
    fn a_second_daemon_fails_with_the_pid_of_the_first() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("run/daemon.lock");
        let first = InstanceLock::acquire(&path).unwrap();
        let error = InstanceLock::acquire(&path).unwrap_err().to_string();
        let pid = format!("as process {}", std::process::id());
        assert!(error.contains(&pid), "{error}");
        drop(first);
        InstanceLock::acquire(&path).unwrap();
    }

    #[test]
    fn a_lock_whose_file_was_deleted_is_acquired_again() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("run/daemon.lock");
        let mut first = InstanceLock::acquire(&path).unwrap();
        first.renew().unwrap();
        fs::remove_dir_all(directory.path().join("run")).unwrap();
        first.renew().unwrap();
        InstanceLock::acquire(&path).unwrap_err();
    }

    #[test]
    fn a_renewal_fails_if_another_process_was_faster() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("daemon.lock");
        let mut first = InstanceLock::acquire(&path).unwrap();
        fs::remove_file(&path).unwrap();
        let mut second = InstanceLock::acquire(&path).unwrap();
        let error = first.renew().unwrap_err();
        assert!(
            matches!(error, InstanceLockError::Running { .. }),
            "{error}"
        );
        second.renew().unwrap();
    }
}
