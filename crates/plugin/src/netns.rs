//! The little that this plugin must know about network namespaces itself.

use std::fs::Metadata;
use std::io;
use std::path::Path;

use serde::{Deserialize, Serialize};

/// What a namespace is, whatever its path.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Identity {
    /// Device and inode of its file. The kernel gives them to another namespace later.
    number: String,
    /// When the file got its place in the file system, unless the path is a link.
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
            // Behind a link is the kernel's own file under /proc, with a new time whenever it likes.
            born: (!Path::new(path).is_symlink()).then_some(born),
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

/// Whether something is at `path` that can't be a namespace: a pipe, a directory. A delegate that
/// opens a pipe waits for ever.
pub(crate) fn is_something_else(path: &str) -> bool {
    Path::new(path)
        .metadata()
        .is_ok_and(|found| !found.is_file())
}

/// Whether the namespace at `path` has an interface of this name; `None` if that can't be told.
///
/// An error means that the way back failed: nothing more may be done in this process.
#[cfg(target_os = "linux")]
pub(crate) fn has_interface(path: &str, name: &str) -> io::Result<Option<bool>> {
    use std::fs::{self, File};
    use std::os::fd::AsFd;

    use rustix::fs::{Mode, OFlags, open};
    use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};

    let network = Some(LinkNameSpaceType::Network);
    // A pipe in its place must not hold us up.
    let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let (Ok(theirs), Ok(ours)) = (
        open(path, flags, Mode::empty()),
        File::open("/proc/thread-self/ns/net"),
    ) else {
        return Ok(None);
    };
    if move_into_link_name_space(theirs.as_fd(), network).is_err() {
        return Ok(None);
    }
    let devices = fs::read_to_string("/proc/thread-self/net/dev");
    move_into_link_name_space(ours.as_fd(), network)?;
    Ok(devices.ok().map(|devices| lists_interface(&devices, name)))
}

#[cfg(not(target_os = "linux"))]
#[expect(clippy::unnecessary_wraps, reason = "it can fail on Linux")]
pub(crate) fn has_interface(_path: &str, _name: &str) -> io::Result<Option<bool>> {
    Ok(None)
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
        assert_eq!(has_interface("/nonexistent", "eth0").unwrap(), None);
        assert_eq!(has_interface("/etc/hostname", "eth0").unwrap(), None);
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

    #[test]
    fn a_link_to_a_namespace_is_the_same_at_every_look() {
        let directory = tempfile::TempDir::new().unwrap();
        let link = directory.path().join("netns");
        std::os::unix::fs::symlink("/proc/self/ns/net", &link).unwrap();
        let identity = Identity::of(link.to_str().unwrap()).unwrap();
        assert_eq!(identity.born, None);
        assert!(identity.may_be(&Identity::of("/proc/thread-self/ns/net").unwrap()));
    }
}
