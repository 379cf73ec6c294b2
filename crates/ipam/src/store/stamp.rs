//! The stamp in the lock file: proof that the index is right.
//!
//! A directory's modification time changes with every file that comes or goes. After a change of
//! ours we set it to a moment in the past and note that moment; when it is still there at the next
//! call, nobody has touched the directory. The clock's coarse ticks don't matter to that.

use std::fs::File;
use std::io;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::Path;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use rustix::fs::{AtFlags, CWD, Timespec, Timestamps, UTIME_OMIT, utimensat};

/// Length of the line, padded so that one write replaces all of it.
const LINE_BYTES: usize = 120;

/// What was known when the store was left.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Stamp {
    /// The boot that it was left in.
    pub(super) boot: String,
    /// The modification times of the store's directory and of the one with the records; absent
    /// while a change is under way.
    pub(super) marks: Option<[Mtime; 2]>,
}

/// Seconds and nanoseconds.
pub(super) type Mtime = (i64, i64);

pub(super) fn directory_mtime(dir: &Path) -> io::Result<Mtime> {
    let metadata = dir.metadata()?;
    Ok((metadata.mtime(), metadata.mtime_nsec()))
}

impl Stamp {
    /// The stamp of a lock file; `None` if it isn't ours or was torn.
    pub(super) fn read(lock: &File) -> io::Result<Option<Self>> {
        let mut bytes = [0; LINE_BYTES];
        match lock.read_exact_at(&mut bytes, 0) {
            Ok(()) => Ok(std::str::from_utf8(&bytes).ok().and_then(Self::parse)),
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => Ok(None),
            Err(error) => Err(error),
        }
    }

    pub(super) fn write(&self, lock: &File) -> io::Result<()> {
        let marks = match self.marks {
            Some(marks) => marks
                .map(|(seconds, nanos)| format!("{seconds}.{nanos:09}"))
                .join(" "),
            None => "changing".to_owned(),
        };
        let line = format!("headcni-ipam 1 {} {marks}", self.boot);
        let padded = format!("{line:<width$}\n", width = LINE_BYTES - 1);
        lock.write_all_at(padded.as_bytes(), 0)
    }

    fn parse(line: &str) -> Option<Self> {
        let mut words = line.split_whitespace();
        if (words.next()?, words.next()?) != ("headcni-ipam", "1") {
            return None;
        }
        let boot = words.next()?.to_owned();
        let mut mark = || -> Option<Mtime> {
            let (seconds, nanos) = words.next()?.split_once('.')?;
            Some((seconds.parse().ok()?, nanos.parse().ok()?))
        };
        let marks = mark().and_then(|first| Some([first, mark()?]));
        Some(Self { boot, marks })
    }
}

/// Sets the directory's modification time to a moment that no change from now on can give it, and
/// tells which.
pub(super) fn mark_directory(dir: &Path) -> io::Result<Mtime> {
    // Far enough for file systems that keep whole seconds. It is a whole one, so that any of them
    // keeps it as it is, and nobody needs to look what has become of it.
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
    fn a_stamp_reads_back_and_garbage_does_not() {
        let directory = TempDir::new().unwrap();
        let path = directory.path().join("lock");
        let file = File::options()
            .read(true)
            .write(true)
            .create_new(true)
            .open(path)
            .unwrap();
        assert_eq!(Stamp::read(&file).unwrap(), None);
        for marks in [
            Some([(1_789_000_000, 5), (1_789_000_001, 999_999_999)]),
            None,
        ] {
            let stamp = Stamp {
                boot: "842f1e82-2c09-4a44-921e-672ff1029bc4".to_owned(),
                marks,
            };
            stamp.write(&file).unwrap();
            assert_eq!(Stamp::read(&file).unwrap(), Some(stamp));
        }
        file.set_len(50).unwrap();
        assert_eq!(Stamp::read(&file).unwrap(), None);
    }

    #[test]
    fn any_change_after_marking_shows() {
        let directory = TempDir::new().unwrap();
        for round in 0..100 {
            let marked = mark_directory(directory.path()).unwrap();
            assert_eq!(directory_mtime(directory.path()).unwrap(), marked);
            File::create(directory.path().join(round.to_string())).unwrap();
            assert_ne!(directory_mtime(directory.path()).unwrap(), marked);
        }
    }
}
