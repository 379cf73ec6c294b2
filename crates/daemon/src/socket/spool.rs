//! Reads what the plugin could not say, and empties the file.

use std::fs::File;
use std::io::{self, ErrorKind, Read};
use std::path::Path;

use api::messages::{MAX_REQUEST_BYTES, MAX_SPOOL_BYTES, Request, RequestError};
use rustix::fs::{FlockOperation, Mode, OFlags, flock, open};

use super::News;

/// What was in the spool.
#[derive(Debug, PartialEq)]
pub(super) struct Spooled {
    bytes: Vec<u8>,
    /// Whether there may have been more than fitted in.
    pub(super) is_full: bool,
}

impl Spooled {
    /// What each line says.
    pub(super) fn lines(&self) -> impl Iterator<Item = Result<News, RequestError>> {
        let lines = self.bytes.split(|byte| *byte == b'\n');
        let lines = lines.filter(|line| !line.is_empty());
        lines.map(|line| match Request::parse(line)? {
            Request::Event(event) => Ok(News::Event(event)),
            Request::Ask(_) => Err(RequestError::Empty),
        })
    }
}

/// Takes all that is in the spool; nothing if it is empty or not there. It blocks, though not for
/// a lock: whoever has that is waited for by coming again.
pub(super) fn take(path: &Path) -> io::Result<Option<Spooled>> {
    // In the place of the file there may be a pipe that nobody writes to.
    let flags = OFlags::RDWR | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let mut file = match open(path, flags, Mode::empty()) {
        Ok(file) => File::from(file),
        Err(rustix::io::Errno::NOENT) => return Ok(None),
        Err(error) => return Err(error.into()),
    };
    flock(&file, FlockOperation::NonBlockingLockExclusive)?;
    let found = file.metadata()?;
    if !found.is_file() {
        return Err(io::Error::new(
            ErrorKind::InvalidInput,
            "it is not a regular file",
        ));
    }
    if found.len() == 0 {
        return Ok(None);
    }
    let mut bytes = Vec::new();
    (&mut file).take(MAX_SPOOL_BYTES).read_to_end(&mut bytes)?;
    file.set_len(0)?;
    // A line that did not fit was no longer than a line may be.
    let is_full = found.len() + MAX_REQUEST_BYTES as u64 > MAX_SPOOL_BYTES;
    Ok(Some(Spooled { bytes, is_full }))
}

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::path::PathBuf;

    use api::event::Event;
    use tempfile::TempDir;

    use super::*;

    fn spool(contents: &[u8]) -> (TempDir, PathBuf) {
        let dir = TempDir::new().unwrap();
        let path = dir.path().join("spool");
        File::create(&path).unwrap().write_all(contents).unwrap();
        (dir, path)
    }

    fn line(container: &str) -> Vec<u8> {
        let container = container.to_owned();
        Request::event_line(&Event {
            container,
            ..Event::default()
        })
        .unwrap()
    }

    fn containers(spooled: &Spooled) -> Vec<Option<String>> {
        let name = |news| match news {
            Ok(News::Event(event)) => Some(event.container),
            _ => None,
        };
        spooled.lines().map(name).collect()
    }

    #[test]
    fn what_is_taken_is_gone() {
        let (_dir, path) = spool(&[line("a"), line("b")].concat());
        let spooled = take(&path).unwrap().unwrap();
        let names = ["a", "b"].map(|name| Some(name.to_owned()));
        assert_eq!(containers(&spooled), names);
        assert!(!spooled.is_full);
        assert_eq!(take(&path).unwrap(), None);
        assert_eq!(std::fs::metadata(&path).unwrap().len(), 0);
    }

    #[test]
    fn damaged_lines_are_passed_over() {
        let torn = &line("torn")[..20];
        let (_dir, path) = spool(
            &[
                b"\0\xff\n\n".as_slice(),
                &line("a"),
                torn,
                b"\n",
                &line("b"),
                b"{\"version\":1,\"ask\":\"pods\"}\n{\"version\":99,\"event\":{}}\n",
                torn,
            ]
            .concat(),
        );
        let spooled = take(&path).unwrap().unwrap();
        let (a, b) = (Some("a".to_owned()), Some("b".to_owned()));
        assert_eq!(containers(&spooled), [None, a, None, b, None, None, None]);
    }

    #[test]
    fn nothing_is_taken_while_somebody_has_the_lock() {
        let (_dir, path) = spool(&line("a"));
        let holder = File::open(&path).unwrap();
        holder.lock().unwrap();
        let error = take(&path).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::WouldBlock);
        holder.unlock().unwrap();
        assert!(take(&path).unwrap().is_some());
    }

    #[test]
    fn a_spool_that_is_nearly_full_may_have_lost_something() {
        let mut bytes = vec![b'x'; usize::try_from(MAX_SPOOL_BYTES).unwrap() - MAX_REQUEST_BYTES];
        let (_dir, path) = spool(&bytes);
        assert!(!take(&path).unwrap().unwrap().is_full);
        bytes.push(b'x');
        let (_dir, path) = spool(&bytes);
        assert!(take(&path).unwrap().unwrap().is_full);
    }

    #[test]
    fn a_spool_beyond_its_bound_is_read_in_part_and_emptied() {
        let (_dir, path) = spool(&vec![b'\n'; 5 << 20]);
        let spooled = take(&path).unwrap().unwrap();
        assert_eq!(spooled.bytes.len() as u64, MAX_SPOOL_BYTES);
        assert!(spooled.is_full);
        assert_eq!(take(&path).unwrap(), None);
    }

    #[test]
    fn no_spool_is_an_empty_one_and_a_link_is_none() {
        let (dir, path) = spool(&line("a"));
        assert_eq!(take(&dir.path().join("none")).unwrap(), None);
        let link = dir.path().join("link");
        std::os::unix::fs::symlink(&path, &link).unwrap();
        take(&link).unwrap_err();
        assert!(take(&path).unwrap().is_some());
    }
}
