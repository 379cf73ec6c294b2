//! Opens and reads small files with the fewest system calls.
//!
//! `std::fs::read` adds statx and lseek, and musl adds fcntl(`FD_CLOEXEC`). A lease touches a dozen
//! files.

use std::fs::File;
use std::io;
use std::path::Path;

use rustix::fs::{Mode, OFlags};
use rustix::io::retry_on_intr;

/// File systems read at least a page at once.
const PAGE_BYTES: usize = 4096;

/// Opens a file without blocking on a FIFO; creates it with mode 0600.
pub(super) fn open(path: &Path, flags: OFlags) -> io::Result<File> {
    let flags = flags | OFlags::CLOEXEC | OFlags::NONBLOCK;
    let mode = Mode::RUSR | Mode::WUSR;
    Ok(retry_on_intr(|| rustix::fs::open(path, flags, mode))?.into())
}

/// Reads a file without following a symbolic link.
pub(super) fn read(path: &Path) -> io::Result<Vec<u8>> {
    let file = open(path, OFlags::RDONLY | OFlags::NOFOLLOW)?;
    let mut bytes = Vec::new();
    let mut buffer = [0; PAGE_BYTES];
    loop {
        let count = retry_on_intr(|| rustix::io::read(&file, &mut buffer))?;
        bytes.extend_from_slice(&buffer[..count]);
        // A read shorter than a page is the end of the file. After the first page, a short read may
        // hide an error that only the next read reports.
        if count == 0 || bytes.len() < PAGE_BYTES {
            return Ok(bytes);
        }
    }
}

#[cfg(test)]
mod tests {
    use rstest::rstest;
    use tempfile::TempDir;

    use super::*;
    use crate::store::record::replace;

    #[rstest]
    fn a_file_of_any_length_is_read_completely(
        #[values(0, 1, 4095, 4096, 4097, 100_000)] length: usize,
    ) {
        let directory = TempDir::new().unwrap();
        let path = directory.path().join("file");
        let bytes: Vec<u8> = (0..=u8::MAX).cycle().take(length).collect();
        replace(&path, &bytes).unwrap();
        assert_eq!(read(&path).unwrap(), bytes);
    }
}
