//! Opens and reads small files, each with no more system calls than it takes.
//!
//! The standard library asks for a file's size and position before it reads, and musl sets
//! `FD_CLOEXEC` once more when the kernel has done so. That adds up: a lease is a dozen files.

use std::fs::File;
use std::io;
use std::path::Path;

use rustix::fs::{Mode, OFlags};
use rustix::io::retry_on_intr;

/// The least that a file system reads at once: up to here, a read is all or nothing.
const PAGE_BYTES: usize = 4096;

/// Opens a file and waits for no pipe. If it comes to be, it is for us alone.
pub(super) fn open(path: &Path, flags: OFlags) -> io::Result<File> {
    let flags = flags | OFlags::CLOEXEC | OFlags::NONBLOCK;
    let mode = Mode::RUSR | Mode::WUSR;
    Ok(retry_on_intr(|| rustix::fs::open(path, flags, mode))?.into())
}

/// Reads a file, but follows no link.
pub(super) fn read(path: &Path) -> io::Result<Vec<u8>> {
    let file = open(path, OFlags::RDONLY | OFlags::NOFOLLOW)?;
    let mut bytes = Vec::new();
    let mut buffer = [0; PAGE_BYTES];
    loop {
        let count = retry_on_intr(|| rustix::io::read(&file, &mut buffer))?;
        bytes.extend_from_slice(&buffer[..count]);
        // A file that ends within its first page has been read. In a longer one, less than was
        // asked for may also mean an error further on, which the next read tells.
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
    fn a_file_is_read_as_a_whole(#[values(0, 1, 4095, 4096, 4097, 100_000)] length: usize) {
        let directory = TempDir::new().unwrap();
        let path = directory.path().join("file");
        let bytes: Vec<u8> = (0..=u8::MAX).cycle().take(length).collect();
        replace(&path, &bytes).unwrap();
        assert_eq!(read(&path).unwrap(), bytes);
    }
}
