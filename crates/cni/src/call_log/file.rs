//! Appends to a log file and rotates it at a size limit.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::path::Path;

/// At this size the file is renamed to `….1` and replaces an earlier one.
const MAX_BYTES: u64 = 10 * 1024 * 1024;

/// Appends a line. Several processes may append at the same time.
pub(super) fn append(path: &Path, line: &[u8]) -> io::Result<()> {
    append_bounded(path, line, MAX_BYTES)
}

fn append_bounded(path: &Path, line: &[u8], max_bytes: u64) -> io::Result<()> {
    let mut file = open(path)?;
    if file.metadata()?.len() >= max_bytes {
        rotate(&file, path, max_bytes)?;
        file = open(path)?;
    }
    // One write in append mode: lines of several processes don't interleave.
    file.write_all(line)
}

fn open(path: &Path) -> io::Result<File> {
    let mut options = OpenOptions::new();
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o640);
    options.append(true).create(true);
    // A pipe could block the call, and a device could be stdout, which belongs to the protocol.
    if fs::metadata(path).is_ok_and(|found| !found.is_file()) {
        return Err(io::Error::new(
            io::ErrorKind::InvalidInput,
            "it is not a regular file",
        ));
    }
    match options.open(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            fs::create_dir_all(path.parent().unwrap_or(Path::new("/")))?;
            options.open(path)
        }
        opened => opened,
    }
}

fn rotate(full: &File, path: &Path, max_bytes: u64) -> io::Result<()> {
    full.lock()?;
    // Another process may have rotated it while this one waited for the lock.
    if fs::metadata(path).is_ok_and(|now| now.len() >= max_bytes) {
        fs::rename(path, path.with_added_extension("1"))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rotation_bounds_both_files_and_loses_no_line() {
        let directory = tempfile::TempDir::new().unwrap();
        let path = directory.path().join("new/plugin.log");
        for number in 0..100 {
            append_bounded(&path, format!("line {number:04}\n").as_bytes(), 100).unwrap();
        }
        let earlier = fs::read_to_string(path.with_added_extension("1")).unwrap();
        let current = fs::read_to_string(&path).unwrap();
        assert!(earlier.len() <= 110 && current.len() <= 110);
        assert!(current.ends_with("line 0099\n"));
        let last_earlier: u32 = earlier.trim_end()[earlier.len() - 5..].parse().unwrap();
        let first_current: u32 = current.lines().next().unwrap()[5..].parse().unwrap();
        assert_eq!(
            last_earlier + 1,
            first_current,
            "a line was lost in the rotation"
        );
        assert_eq!(fs::read_dir(path.parent().unwrap()).unwrap().count(), 2);
    }
}
