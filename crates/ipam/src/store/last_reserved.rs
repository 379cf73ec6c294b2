//! `last_reserved_ip.N`: host-local's last allocation per range set.
//!
//! It is only a hint where to start the search, so a torn file does no harm.

use std::fs::File;
use std::io::{self, ErrorKind};
use std::net::IpAddr;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use rustix::fs::OFlags;

use super::file;

/// Longer than the longest address.
const BUFFER_BYTES: usize = 64;

pub(super) struct LastReserved {
    path: PathBuf,
    /// `None` if it is missing or unreadable.
    file: Option<File>,
    /// Upper bound of the file's length.
    length: usize,
    pub(super) address: Option<IpAddr>,
}

impl LastReserved {
    pub(super) fn of_set(dir: &Path, number: usize) -> Self {
        let path = dir.join(format!("last_reserved_ip.{number}"));
        let mut buffer = [0; BUFFER_BYTES];
        let read = file::open(&path, OFlags::RDWR)
            .and_then(|file| Ok((file.read_at(&mut buffer, 0)?, file)));
        let (length, file) = match read {
            // The file may be longer than the buffer.
            Ok((BUFFER_BYTES, file)) => (usize::MAX, Some(file)),
            Ok((length, file)) => (length, Some(file)),
            Err(error) if error.kind() == ErrorKind::NotFound => (0, None),
            Err(_) => (usize::MAX, None),
        };
        let text = buffer.get(..length).map(std::str::from_utf8);
        Self {
            address: text.and_then(|text| text.ok()?.trim().parse().ok()),
            path,
            file,
            length,
        }
    }

    /// Stores the address without truncating the file first: ext4 would flush it.
    pub(super) fn store(&mut self, address: IpAddr) -> io::Result<()> {
        let text = address.to_string();
        let file = match self.file.take() {
            Some(file) => file,
            None => file::open(&self.path, OFlags::WRONLY | OFlags::CREATE)?,
        };
        file.write_all_at(text.as_bytes(), 0)?;
        if text.len() < self.length {
            file.set_len(text.len() as u64)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use rstest::rstest;
    use tempfile::TempDir;

    use super::*;
    use crate::store::record::replace;

    #[rstest]
    #[case::none(None, None)]
    #[case::a_shorter_one(Some("10.1.0.2"), Some("10.1.0.2"))]
    #[case::a_longer_one(Some("fd00:1111:2222::2"), Some("fd00:1111:2222::2"))]
    #[case::a_line(Some(" 10.1.0.2\n"), Some("10.1.0.2"))]
    #[case::a_torn_one(Some("10.1."), None)]
    #[case::too_much(Some(&*"10.1.0.2 ".repeat(1000)), None)]
    fn any_earlier_content_is_replaced(#[case] before: Option<&str>, #[case] read: Option<&str>) {
        let directory = TempDir::new().unwrap();
        let path = directory.path().join("last_reserved_ip.7");
        if let Some(text) = before {
            replace(&path, text.as_bytes()).unwrap();
        }
        let mut last_reserved = LastReserved::of_set(directory.path(), 7);
        assert_eq!(
            last_reserved.address,
            read.map(|text| text.parse().unwrap())
        );
        last_reserved.store("10.1.0.113".parse().unwrap()).unwrap();
        assert_eq!(fs::read_to_string(&path).unwrap(), "10.1.0.113");
    }
}
