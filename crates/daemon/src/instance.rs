//! One daemon per node: whoever holds the lock is it.

use std::fs::{self, File, TryLockError};
use std::io::{self, Read, Write};
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

/// The right to be this node's daemon, for as long as it lives.
#[derive(Debug)]
pub struct Instance {
    _lock: File,
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
        lock.set_len(0)
            .and_then(|()| writeln!(lock, "{}", std::process::id()))
            .map_err(failed)?;
        Ok(Self { _lock: lock })
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
}
