//! The stamp in the lock file proves that the index is valid.
//!
//! Every file that is created or removed updates the mtime of its directory. After a change of ours
//! we set that mtime to a time in the past and store it in the stamp. If it still matches at the
//! next call, no other process changed the directory, whatever the granularity of the file system's
//! clock.

use std::fs::File;
use std::io;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::Path;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use rustix::fs::{AtFlags, CWD, Timespec, Timestamps, UTIME_OMIT, utimensat};

/// Padded, so that one write replaces the whole line.
const LINE_BYTES: usize = 120;

/// The state of the store after the last call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Stamp {
    pub(super) boot: String,
    /// Mtimes of the store's directory and of the records' directory; `None` during a change.
    pub(super) mtimes: Option<[Mtime; 2]>,
}

/// Seconds and nanoseconds.
pub(super) type Mtime = (i64, i64);

pub(super) fn directory_mtime(dir: &Path) -> io::Result<Mtime> {
    let metadata = dir.metadata()?;
    Ok((metadata.mtime(), metadata.mtime_nsec()))
}

impl Stamp {
    /// Reads the stamp; `None` if it is torn or foreign.
    pub(super) fn read(lock: &File) -> io::Result<Option<Self>> {
        let mut bytes = [0; LINE_BYTES];
        match lock.read_exact_at(&mut bytes, 0) {
            Ok(()) => Ok(std::str::from_utf8(&bytes).ok().and_then(Self::parse)),
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => Ok(None),
            Err(error) => Err(error),
        }
    }

    pub(super) fn write(&self, lock: &File) -> io::Result<()> {
        let mtimes = match self.mtimes {
            Some(mtimes) => mtimes
                .map(|(seconds, nanos)| format!("{seconds}.{nanos:09}"))
                .join(" "),
            None => "changing".to_owned(),
        };
        let line = format!("headcni-ipam 1 {} {mtimes}", self.boot);
        let padded = format!("{line:<width$}\n", width = LINE_BYTES - 1);
        lock.write_all_at(padded.as_bytes(), 0)
    }

    fn parse(line: &str) -> Option<Self> {
        let mut words = line.split_whitespace();
        if (words.next()?, words.next()?) != ("headcni-ipam", "1") {
            return None;
        }
        let boot = words.next()?.to_owned();
        let mut mtime = || -> Option<Mtime> {
            let (seconds, nanos) = words.next()?.split_once('.')?;
            Some((seconds.parse().ok()?, nanos.parse().ok()?))
        };
        let mtimes = mtime().and_then(|first| Some([first, mtime()?]));
        Some(Self { boot, mtimes })
    }
}

/// Sets the directory's mtime to a time that no later change can produce, and returns it.
pub(super) fn set_past_mtime(dir: &Path) -> io::Result<Mtime> {
    // 10 s are enough for file systems that store whole seconds, and a whole second is stored
    // unchanged by all of them.
    let past = SystemTime::now() - Duration::from_secs(10);
    let since = past.duration_since(UNIX_EPOCH).unwrap_or_default();
    let seconds = i64::try_from(since.as_secs()).unwrap_or_default();
    let times = Timestamps {
        last_access: Timespec {
            tv_sec: 0,
            tv_nsec: UTIME_OMIT,
        },
        last_modification: Timespec {
            tv_sec: seconds,
            tv_nsec: 0,
        },
    };
    utimensat(CWD, dir, &times, AtFlags::empty())?;
    Ok((seconds, 0))
}

#[cfg(test)]
mod tests {
    use tempfile::TempDir;

    use super::*;

    #[test]
    fn a_stamp_is_read_back_and_a_torn_one_is_ignored() {
        let directory = TempDir::new().unwrap();
        let path = directory.path().join("lock");
        let file = File::options()
            .read(true)
            .write(true)
            .create_new(true)
            .open(path)
            .unwrap();
        assert_eq!(Stamp::read(&file).unwrap(), None);
        for mtimes in [
            Some([(1_789_000_000, 5), (1_789_000_001, 999_999_999)]),
            None,
        ] {
            let stamp = Stamp {
                boot: "842f1e82-2c09-4a44-921e-672ff1029bc4".to_owned(),
                mtimes,
            };
            stamp.write(&file).unwrap();
            assert_eq!(Stamp::read(&file).unwrap(), Some(stamp));
        }
        file.set_len(50).unwrap();
        assert_eq!(Stamp::read(&file).unwrap(), None);
    }

    #[test]
    fn any_later_change_is_visible_in_the_mtime() {
        let directory = TempDir::new().unwrap();
        for round in 0..100 {
            let set = set_past_mtime(directory.path()).unwrap();
            assert_eq!(directory_mtime(directory.path()).unwrap(), set);
            File::create(directory.path().join(round.to_string())).unwrap();
            assert_ne!(directory_mtime(directory.path()).unwrap(), set);
        }
    }
}
