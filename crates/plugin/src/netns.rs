//! The little that this plugin must know about network namespaces itself.

use std::fs::Metadata;
use std::path::Path;

use serde::{Deserialize, Serialize};

/// What a namespace is, whatever its path.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Identity {
    /// Device and inode of its file. The kernel gives them to another namespace later.
    number: String,
    /// When the file got its place in the file system; nothing of the kind under `/proc`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    born: Option<String>,
}

impl Identity {
    /// `None` if there is no such file, which says nothing about the namespace.
    pub(crate) fn of(path: &str) -> Option<Self> {
        let metadata = Path::new(path).metadata().ok()?;
        Some(Self::from_metadata(path, &metadata))
    }

    #[cfg(unix)]
    fn from_metadata(path: &str, metadata: &Metadata) -> Self {
        use std::os::unix::fs::MetadataExt;

        let born = format!("{}.{:09}", metadata.ctime(), metadata.ctime_nsec());
        Self {
            number: format!("{}:{}", metadata.dev(), metadata.ino()),
            // There the kernel makes a new inode, with a new time, whenever it likes.
            born: (!path.starts_with("/proc/")).then_some(born),
        }
    }

    #[cfg(not(unix))]
    fn from_metadata(path: &str, _metadata: &Metadata) -> Self {
        Self {
            number: path.to_owned(),
            born: None,
        }
    }

    /// Whether both can be the same namespace.
    pub(crate) fn may_be(&self, other: &Self) -> bool {
        self.number == other.number
            && (self.born == other.born || self.born.is_none() || other.born.is_none())
    }
}

/// Whether the namespace at `path` has an interface of this name; `None` if that can't be told.
#[cfg(target_os = "linux")]
pub(crate) fn has_interface(path: &str, name: &str) -> Option<bool> {
    use std::fs::{self, File};
    use std::os::fd::AsFd;

    use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};

    let (theirs, ours) = (
        File::open(path).ok()?,
        File::open("/proc/thread-self/ns/net").ok()?,
    );
    let network = Some(LinkNameSpaceType::Network);
    move_into_link_name_space(theirs.as_fd(), network).ok()?;
    let devices = fs::read_to_string("/proc/thread-self/net/dev");
    move_into_link_name_space(ours.as_fd(), network)
        .expect("whoever may enter a namespace may return to its own");
    Some(lists_interface(&devices.ok()?, name))
}

#[cfg(not(target_os = "linux"))]
pub(crate) fn has_interface(_path: &str, _name: &str) -> Option<bool> {
    None
}

/// `/proc/net/dev` has two lines of heading, then `name: numbers` per interface.
#[cfg_attr(
    not(target_os = "linux"),
    expect(dead_code, reason = "only Linux has this file")
)]
fn lists_interface(proc_net_dev: &str, name: &str) -> bool {
    let lines = proc_net_dev.lines().skip(2);
    lines
        .filter_map(|line| line.split_once(':'))
        .any(|(listed, _)| listed.trim() == name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn interfaces_are_told_by_their_whole_name() {
        let text = "Inter-| Receive\n face |bytes\n    lo: 1 2\n  eth0: 3 4\n";
        assert!(lists_interface(text, "eth0"));
        assert!(lists_interface(text, "lo"));
        assert!(!lists_interface(text, "eth"));
        assert!(!lists_interface(text, "eth00"));
    }

    #[test]
    fn what_is_no_namespace_tells_nothing() {
        assert_eq!(has_interface("/nonexistent", "eth0"), None);
        assert_eq!(has_interface("/etc/hostname", "eth0"), None);
        assert_eq!(Identity::of("/nonexistent"), None);
    }

    #[test]
    fn a_number_that_is_used_again_is_told_by_its_birth() {
        let identity = |number: &str, born: Option<&str>| Identity {
            number: number.to_owned(),
            born: born.map(str::to_owned),
        };
        let one = identity("4:7", Some("1.0"));
        assert!(one.may_be(&one));
        assert!(one.may_be(&identity("4:7", None)));
        assert!(!one.may_be(&identity("4:7", Some("2.0"))));
        assert!(!one.may_be(&identity("4:8", None)));
    }
}
