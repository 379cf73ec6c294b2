//! tailscaled's state directory: permissions, process record, lock and log.

use std::fs::{self, File, Permissions, TryLockError};
use std::io::{self, Read, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};

use super::error::Error;
use super::process::Identity;

const LOG: &str = "tailscaled.log";
const OLD_LOG: &str = "tailscaled.log.1";
/// Pid and start time of the process.
const RECORD: &str = "tailscaled.pid";
/// Held while a process is started or stopped.
const LOCK: &str = "headcni.lock";
const MAX_RECORD_BYTES: u64 = 4096;
/// Starting takes milliseconds, stopping can take seconds.
const LOCK_TIMEOUT: Duration = Duration::from_secs(20);
const LOCK_POLL_INTERVAL: Duration = Duration::from_millis(20);

#[derive(Clone, Debug)]
pub(super) struct StateDir(pub(super) PathBuf);

#[derive(Debug, Serialize, Deserialize)]
struct Record {
    pid: u32,
    started: u64,
}

impl StateDir {
    /// Creates the directory, readable only by its owner: it contains the node's keys.
    pub(super) fn ensure(&self) -> Result<(), Error> {
        let dir = &self.0;
        fs::DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(dir)
            .map_err(Error::file("create the directory", dir))?;
        restrict(dir, 0o700)?;
        for name in ["tailscaled.state", LOG, OLD_LOG] {
            restrict(&dir.join(name), 0o600)?;
        }
        Ok(())
    }

    /// Blocks until the lock is free.
    pub(super) fn lock(&self) -> Result<File, Error> {
        let path = self.0.join(LOCK);
        let lock = File::options()
            .write(true)
            .create(true)
            .truncate(false)
            .mode(0o600)
            .open(&path)
            .map_err(Error::file("open the lock", &path))?;
        let start = Instant::now();
        loop {
            match lock.try_lock() {
                Ok(()) => return Ok(lock),
                Err(TryLockError::Error(error)) => {
                    return Err(Error::file("take the lock", &path)(error));
                }
                Err(TryLockError::WouldBlock) if start.elapsed() < LOCK_TIMEOUT => {
                    thread::sleep(LOCK_POLL_INTERVAL);
                }
                Err(TryLockError::WouldBlock) => {
                    return Err(Error::Locked {
                        path,
                        waited: LOCK_TIMEOUT,
                    });
                }
            }
        }
    }

    /// `None` if there is no valid record.
    pub(super) fn record(&self) -> Option<Identity> {
        let mut text = String::new();
        let file = File::open(self.0.join(RECORD)).ok()?;
        file.take(MAX_RECORD_BYTES).read_to_string(&mut text).ok()?;
        let Record { pid, started } = serde_json::from_str(&text).ok()?;
        Some(Identity { pid, started })
    }

    pub(super) fn write_record(&self, identity: Identity) -> Result<(), Error> {
        let Identity { pid, started } = identity;
        let (path, new) = (self.0.join(RECORD), self.0.join("tailscaled.pid.new"));
        let write = || -> io::Result<()> {
            let text = serde_json::to_string(&Record { pid, started })?;
            let mut file = File::options()
                .write(true)
                .create(true)
                .truncate(true)
                .mode(0o600)
                .open(&new)?;
            writeln!(file, "{text}")?;
            fs::rename(&new, &path)
        };
        write().map_err(Error::file("write", &path))
    }

    pub(super) fn remove_record(&self) -> Result<(), Error> {
        let path = self.0.join(RECORD);
        match fs::remove_file(&path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                Err(Error::file("remove", &path)(error))
            }
            _ => Ok(()),
        }
    }

    /// In append mode, so that the log can be truncated at any time.
    pub(super) fn open_log(&self) -> Result<File, Error> {
        let path = self.0.join(LOG);
        File::options()
            .append(true)
            .create(true)
            .mode(0o600)
            .open(&path)
            .map_err(Error::file("open the log", &path))
    }

    /// Rotates a log above the limit. tailscaled keeps the file open, so it is copied and truncated; lines
    /// written in between are lost.
    pub(super) fn rotate_log(&self, limit_bytes: u64) -> Result<(), Error> {
        let (path, old) = (self.0.join(LOG), self.0.join(OLD_LOG));
        match fs::metadata(&path) {
            Ok(found) if found.len() > limit_bytes => {}
            _ => return Ok(()),
        }
        let rotate = || -> io::Result<()> {
            let log = File::options().read(true).write(true).open(&path)?;
            let mut copy = File::options()
                .write(true)
                .create(true)
                .truncate(true)
                .mode(0o600)
                .open(&old)?;
            let length = log.metadata()?.len();
            let mut end = &log;
            io::Seek::seek(
                &mut end,
                io::SeekFrom::Start(length.saturating_sub(limit_bytes)),
            )?;
            io::copy(&mut end.take(limit_bytes), &mut copy)?;
            log.set_len(0)
        };
        // Without space for the copy, truncate at least.
        rotate()
            .or_else(|error| {
                let emptied = File::options().write(true).open(&path)?.set_len(0);
                emptied.map_err(|_| error)
            })
            .map_err(Error::file("rotate the log", &path))
    }
}

/// Removes extra permissions. A missing file is no error.
fn restrict(path: &Path, mode: u32) -> Result<(), Error> {
    let found = match fs::symlink_metadata(path) {
        Ok(found) => found,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(Error::file("stat", path)(error)),
    };
    if found.is_symlink() || found.mode() & 0o7777 & !mode == 0 {
        return Ok(());
    }
    tracing::warn!(path = %path.display(), "restricting permissions of a tailscaled state file");
    fs::set_permissions(path, Permissions::from_mode(mode))
        .map_err(Error::file("change the permissions of", path))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn state_dir() -> (tempfile::TempDir, StateDir) {
        let dir = tempfile::tempdir().unwrap();
        let state = StateDir(dir.path().join("a/state"));
        state.ensure().unwrap();
        (dir, state)
    }

    fn mode(path: &Path) -> u32 {
        fs::metadata(path).unwrap().mode() & 0o7777
    }

    #[test]
    fn the_directory_and_its_keys_are_private() {
        let (_dir, state) = state_dir();
        assert_eq!(mode(&state.0), 0o700);
        let keys = state.0.join("tailscaled.state");
        File::create(&keys).unwrap();
        for (path, mode) in [(&state.0, 0o755), (&keys, 0o644)] {
            fs::set_permissions(path, Permissions::from_mode(mode)).unwrap();
        }
        state.ensure().unwrap();
        assert_eq!((mode(&state.0), mode(&keys)), (0o700, 0o600));
    }

    #[test]
    fn a_record_survives_a_round_trip_and_garbage_is_ignored() {
        let (_dir, state) = state_dir();
        assert_eq!(state.record(), None);
        let identity = Identity {
            pid: 5,
            started: 77,
        };
        state.write_record(identity).unwrap();
        assert_eq!(state.record(), Some(identity));
        File::create(state.0.join(RECORD))
            .unwrap()
            .write_all(b"12")
            .unwrap();
        assert_eq!(state.record(), None);
        state.remove_record().unwrap();
        state.remove_record().unwrap();
    }

    #[test]
    fn a_log_is_rotated_while_it_is_written() {
        let (_dir, state) = state_dir();
        let mut log = state.open_log().unwrap();
        log.write_all(&[b'a'; 60]).unwrap();
        log.write_all(&[b'b'; 60]).unwrap();
        state.rotate_log(200).unwrap();
        assert_eq!(fs::metadata(state.0.join(LOG)).unwrap().len(), 120);
        state.rotate_log(100).unwrap();
        log.write_all(b"new").unwrap();
        assert_eq!(fs::read(state.0.join(LOG)).unwrap(), b"new");
        let old = fs::read(state.0.join(OLD_LOG)).unwrap();
        assert_eq!((old.len(), old[39], old[40]), (100, b'a', b'b'));
        assert_eq!(mode(&state.0.join(OLD_LOG)), 0o600);
    }
}
