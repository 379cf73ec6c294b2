//! The little that this plugin must know about network namespaces itself.

use std::io;

/// Whether the namespace at `path` has an interface of this name; `None` if that can't be told.
///
/// An error means that the way back failed: nothing more may be done in this process.
#[cfg(target_os = "linux")]
pub(crate) fn has_interface(path: &str, name: &str) -> io::Result<Option<bool>> {
    let (Ok(theirs), Ok(ours)) = (net::Netns::open(path), net::Netns::current()) else {
        return Ok(None);
    };
    let devices = theirs.visit(&ours, || {
        std::fs::read_to_string("/proc/thread-self/net/dev")
    });
    match devices {
        Ok(devices) => Ok(devices.ok().map(|devices| lists_interface(&devices, name))),
        Err(net::VisitError::Enter(_)) => Ok(None),
        Err(net::VisitError::Return(error)) => Err(error),
    }
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
    }
}
