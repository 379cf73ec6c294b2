//! Identity of a network namespace, independent of its path.

use std::fs::Metadata;
use std::path::Path;

use serde::{Deserialize, Serialize};

/// Identity of a netns, independent of its path.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NetnsId {
    /// Device and inode of its file. The kernel reuses them for later namespaces.
    number: String,
    /// Change time of the file, unless the path is a symbolic link.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    born: Option<String>,
}

/// What is at a path that is supposed to be a netns.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NetnsPath {
    /// No file. The netns may still exist.
    Missing,
    /// A file that can be a netns.
    Netns(NetnsId),
    /// A pipe or a directory. A delegate that opens a pipe would block for ever.
    NotNetns,
}

/// Inspects what is at `path`.
pub fn inspect(path: &str) -> NetnsPath {
    let path = Path::new(path);
    let found = match path.symlink_metadata() {
        Ok(metadata) if metadata.is_symlink() => path.metadata().map(|target| (target, true)),
        found => found.map(|metadata| (metadata, false)),
    };
    match found {
        Err(_) => NetnsPath::Missing,
        Ok((metadata, _)) if !metadata.is_file() => NetnsPath::NotNetns,
        Ok((metadata, is_symlink)) => NetnsPath::Netns(NetnsId::new(&metadata, path, is_symlink)),
    }
}

impl NetnsId {
    /// The netns at `path`; `None` if there is no such file.
    pub fn of(path: &str) -> Option<Self> {
        match inspect(path) {
            NetnsPath::Netns(id) => Some(id),
            NetnsPath::Missing | NetnsPath::NotNetns => None,
        }
    }

    #[cfg(unix)]
    fn new(metadata: &Metadata, _path: &Path, is_symlink: bool) -> Self {
        use std::os::unix::fs::MetadataExt;

        let born = format!("{}.{:09}", metadata.ctime(), metadata.ctime_nsec());
        Self {
            number: format!("{}:{}", metadata.dev(), metadata.ino()),
            // Files under /proc have no stable change time.
            born: (!is_symlink).then_some(born),
        }
    }

    #[cfg(not(unix))]
    fn new(_metadata: &Metadata, path: &Path, _is_symlink: bool) -> Self {
        Self {
            number: path.display().to_string(),
            born: None,
        }
    }

    /// Whether both can be the same netns.
    pub fn may_equal(&self, other: &Self) -> bool {
        self.number == other.number
            && (self.born == other.born || self.born.is_none() || other.born.is_none())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_missing_file_has_no_identity() {
        assert_eq!(NetnsId::of("/nonexistent"), None);
    }

    #[test]
    fn a_reused_inode_number_is_recognized_by_its_change_time() {
        let id = |number: &str, born: Option<&str>| NetnsId {
            number: number.to_owned(),
            born: born.map(str::to_owned),
        };
        let one = id("4:7", Some("1.0"));
        assert!(one.may_equal(&one));
        assert!(one.may_equal(&id("4:7", None)));
        assert!(!one.may_equal(&id("4:7", Some("2.0"))));
        assert!(!one.may_equal(&id("4:8", None)));
    }

    #[test]
    fn a_symbolic_link_to_a_netns_has_a_stable_identity() {
        let directory = tempfile::TempDir::new().unwrap();
        let link = directory.path().join("netns");
        std::os::unix::fs::symlink("/proc/self/ns/net", &link).unwrap();
        let id = NetnsId::of(link.to_str().unwrap()).unwrap();
        assert_eq!(id.born, None);
        assert!(id.may_equal(&NetnsId::of("/proc/thread-self/ns/net").unwrap()));
    }
}
