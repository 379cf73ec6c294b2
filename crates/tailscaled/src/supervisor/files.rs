//! The state directory: who may look into it, the record of the process, the lock and the log.

use std::fs::{self, File, Permissions, TryLockError};
use std::io::{self, Read, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};

use super::error::Error;
use super::process::Identity;

/// What tailscaled says, and what it said before that.
const LOG: &str = "tailscaled.log";
const OLD_LOG: &str = "tailscaled.log.1";
/// Which process it is.
const RECORD: &str = "tailscaled.pid";
/// Held while one is started or stopped.
const LOCK: &str = "headcni.lock";
/// It is read whole, and has some 50 bytes.
const LONGEST_RECORD_BYTES: u64 = 4096;
/// Starting takes milliseconds, stopping can take seconds.
const LOCK_WAIT: Duration = Duration::from_secs(20);
const LOCK_PAUSE: Duration = Duration::from_millis(20);

/// The directory that all of a tailscaled's files are in.
#[derive(Clone, Debug)]
pub(super) struct StateDir(pub(super) PathBuf);

/// What we write down about a process.
#[derive(Debug, Serialize, Deserialize)]
struct Record {
    pid: u32,
    started: u64,
}

impl StateDir {
    /// Makes it, and sees to it that nobody but its owner looks into it: it has the node's keys.
    pub(super) fn ensure(&self) -> Result<(), Error> {
        let dir = &self.0;
        fs::DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(dir)
            .map_err(Error::file("make the directory", dir))?;
        restrict(dir, 0o700)?;
        for name in ["tailscaled.state", LOG, OLD_LOG] {
            restrict(&dir.join(name), 0o600)?;
        }
        Ok(())
    }

    /// Waits for its turn to start or stop a process; blocks.
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
                Err(TryLockError::WouldBlock) if start.elapsed() < LOCK_WAIT => {
                    thread::sleep(LOCK_PAUSE);
                }
                Err(TryLockError::WouldBlock) => {
                    return Err(Error::Locked {
                        path,
                        waited: LOCK_WAIT,
                    });
                }
            }
        }
    }

    /// The process that was written down. What makes no sense is as good as nothing.
    pub(super) fn record(&self) -> Option<Identity> {
        let mut text = String::new();
        let file = File::open(self.0.join(RECORD)).ok()?;
        file.take(LONGEST_RECORD_BYTES)
            .read_to_string(&mut text)
            .ok()?;
        let Record { pid, started } = serde_json::from_str(&text).ok()?;
        Some(Identity { pid, started })
    }

    /// Writes a process down.
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

    /// A log for a process to write to. It is appended to, so that it can be cut at any time.
    pub(super) fn open_log(&self) -> Result<File, Error> {
        let path = self.0.join(LOG);
        File::options()
            .append(true)
            .create(true)
            .mode(0o600)
            .open(&path)
            .map_err(Error::file("open the log", &path))
    }

    /// Puts a log aside that has grown above a limit. The one who writes keeps its file, so it is
    /// copied and emptied; what is written in between is lost.
    pub(super) fn trim_log(&self, limit_bytes: u64) -> Result<(), Error> {
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
        // Above all it must not grow: a disk too full for a copy gets none.
        rotate()
            .or_else(|error| {
                let emptied = File::options().write(true).open(&path)?.set_len(0);
                emptied.map_err(|_| error)
            })
            .map_err(Error::file("shorten the log", &path))
    }
}

/// Takes rights away that a file has and should not have; one that is missing has none.
fn restrict(path: &Path, mode: u32) -> Result<(), Error> {
    let found = match fs::symlink_metadata(path) {
        Ok(found) => found,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(Error::file("look at", path)(error)),
    };
    if found.is_symlink() || found.mode() & 0o7777 & !mode == 0 {
        return Ok(());
    }
    tracing::warn!(path = %path.display(), "others could read this: taking their rights away");
    fs::set_permissions(path, Permissions::from_mode(mode))
        .map_err(Error::file("change the rights of", path))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn made() -> (tempfile::TempDir, StateDir) {
        let dir = tempfile::tempdir().unwrap();
        let state = StateDir(dir.path().join("a/state"));
        state.ensure().unwrap();
        (dir, state)
    }

    fn mode(path: &Path) -> u32 {
        fs::metadata(path).unwrap().mode() & 0o7777
    }

    #[test]
    fn nobody_else_may_look() {
        let (_dir, state) = made();
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
    fn a_record_is_read_again_and_nonsense_is_no_record() {
        let (_dir, state) = made();
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
    fn a_log_is_cut_while_it_is_written() {
        let (_dir, state) = made();
        let mut log = state.open_log().unwrap();
        log.write_all(&[b'a'; 60]).unwrap();
        log.write_all(&[b'b'; 60]).unwrap();
        state.trim_log(200).unwrap();
        assert_eq!(fs::metadata(state.0.join(LOG)).unwrap().len(), 120);
        state.trim_log(100).unwrap();
        log.write_all(b"new").unwrap();
        assert_eq!(fs::read(state.0.join(LOG)).unwrap(), b"new");
        let old = fs::read(state.0.join(OLD_LOG)).unwrap();
        assert_eq!((old.len(), old[39], old[40]), (100, b'a', b'b'));
        assert_eq!(mode(&state.0.join(OLD_LOG)), 0o600);
    }
}
