//! A file for what the daemon could not be told. It reads and empties it.

use std::fs::File;
use std::io::{self, ErrorKind, Write};
use std::path::Path;
use std::thread;
use std::time::Duration;

use api::messages::MAX_SPOOL_BYTES;
use rustix::fs::{FlockOperation, Mode, OFlags, flock, mkdir, open};
use rustix::io::Errno;

/// The pauses between tries to get the file's lock. Whoever has it adds a line, or is the daemon
/// and reads a megabyte: neither takes long.
const PAUSES: [Duration; 3] = [
    Duration::from_micros(200),
    Duration::from_micros(600),
    Duration::from_micros(1500),
];

/// Adds a line; an error if it does not fit, or somebody else has the file for too long.
pub(super) fn add(path: &Path, line: &[u8]) -> io::Result<()> {
    let mut file = opened(path)?;
    lock(&file)?;
    let found = file.metadata()?;
    if !found.is_file() {
        return Err(ErrorKind::InvalidInput.into());
    }
    let size = found.len();
    if size + line.len() as u64 > MAX_SPOOL_BYTES {
        return Err(ErrorKind::StorageFull.into());
    }
    file.write_all(line).inspect_err(|_| {
        // Half a line would spoil the next one. What can't be cut off either is the reader's.
        let _ = file.set_len(size);
    })
}

/// Opens the file, and makes it if need be; the directory too, which somebody has named.
fn opened(path: &Path) -> io::Result<File> {
    let flags = OFlags::WRONLY
        | OFlags::APPEND
        | OFlags::CREATE
        | OFlags::NOFOLLOW
        // In the place of the file there may be a pipe that nobody reads.
        | OFlags::NONBLOCK
        | OFlags::CLOEXEC;
    let mode = Mode::from_raw_mode(0o600);
    match open(path, flags, mode) {
        Err(Errno::NOENT) => {
            mkdir(
                path.parent().unwrap_or(Path::new("/")),
                Mode::from_raw_mode(0o755),
            )?;
            Ok(open(path, flags, mode)?.into())
        }
        opened => Ok(opened?.into()),
    }
}

fn lock(file: &File) -> io::Result<()> {
    for pause in PAUSES {
        match flock(file, FlockOperation::NonBlockingLockExclusive) {
            Err(Errno::WOULDBLOCK | Errno::INTR) => thread::sleep(pause),
            outcome => return Ok(outcome?),
        }
    }
    Ok(flock(file, FlockOperation::NonBlockingLockExclusive)?)
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::PermissionsExt;

    use tempfile::TempDir;

    use super::*;

    fn place() -> (TempDir, std::path::PathBuf) {
        let dir = TempDir::new().unwrap();
        let path = dir.path().join("new/spool");
        (dir, path)
    }

    #[test]
    fn lines_are_added_to_a_file_for_root_alone() {
        let (_dir, path) = place();
        add(&path, b"one\n").unwrap();
        add(&path, b"two\n").unwrap();
        assert_eq!(fs::read_to_string(&path).unwrap(), "one\ntwo\n");
        let mode = fs::metadata(&path).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
    }

    #[test]
    fn the_file_never_grows_beyond_its_bound() {
        let (_dir, path) = place();
        let mut line = vec![b'x'; 60_000];
        line.push(b'\n');
        let added = (0..100).filter(|_| add(&path, &line).is_ok()).count();
        assert_eq!(added, 17);
        add(&path, b"a small one still fits\n").unwrap();
        assert!(fs::metadata(&path).unwrap().len() <= MAX_SPOOL_BYTES);
    }

    #[test]
    fn who_holds_the_lock_is_not_waited_for() {
        let (_dir, path) = place();
        add(&path, b"one\n").unwrap();
        let holder = File::open(&path).unwrap();
        holder.lock().unwrap();
        let error = add(&path, b"two\n").unwrap_err();
        assert_eq!(error.kind(), ErrorKind::WouldBlock);
        holder.unlock().unwrap();
        add(&path, b"three\n").unwrap();
        assert_eq!(fs::read_to_string(&path).unwrap(), "one\nthree\n");
    }

    #[test]
    fn links_and_pipes_are_not_followed() {
        let (dir, path) = place();
        add(&path, b"one\n").unwrap();
        let link = dir.path().join("link");
        std::os::unix::fs::symlink(&path, &link).unwrap();
        add(&link, b"two\n").unwrap_err();
        let pipe = dir.path().join("pipe");
        rustix::fs::mknodat(
            rustix::fs::CWD,
            &pipe,
            rustix::fs::FileType::Fifo,
            Mode::from_raw_mode(0o600),
            0,
        )
        .unwrap();
        add(&pipe, b"three\n").unwrap_err();
        let _reader = open(&pipe, OFlags::RDONLY | OFlags::NONBLOCK, Mode::empty()).unwrap();
        add(&pipe, b"four\n").unwrap_err();
        assert_eq!(fs::read_to_string(&path).unwrap(), "one\n");
    }
}
