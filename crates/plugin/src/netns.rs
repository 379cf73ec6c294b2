//! The little that this plugin must know about network namespaces itself.

use std::path::Path;

/// What a namespace is, whatever its path: device and inode of its file.
///
/// `None` if there is no such file, which says nothing about the namespace.
#[cfg(unix)]
pub(crate) fn identity(path: &str) -> Option<String> {
    use std::os::unix::fs::MetadataExt;

    let metadata = Path::new(path).metadata().ok()?;
    Some(format!("{}:{}", metadata.dev(), metadata.ino()))
}

#[cfg(not(unix))]
pub(crate) fn identity(path: &str) -> Option<String> {
    Path::new(path).exists().then(|| path.to_owned())
}

/// Whether the namespace at `path` has an interface of this name; `None` if that can't be told.
#[cfg(target_os = "linux")]
pub(crate) fn has_interface(path: &str, name: &str) -> Option<bool> {
    use std::fs::{self, File};
    use std::os::fd::AsFd;

    use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};

    let namespace = File::open(path).ok()?;
    // In a thread of its own, which ends there: nothing has to be moved back.
    let devices = std::thread::spawn(move || {
        move_into_link_name_space(namespace.as_fd(), Some(LinkNameSpaceType::Network)).ok()?;
        fs::read_to_string("/proc/thread-self/net/dev").ok()
    });
    Some(lists_interface(&devices.join().ok()??, name))
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
        assert_eq!(identity("/nonexistent"), None);
    }
}
