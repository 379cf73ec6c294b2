//! Interfaces of another network namespace.

use std::io;

/// Whether the netns at `path` has an interface of this name; `None` if it can't be entered.
///
/// After an error this process is in the wrong netns and must not do anything else.
pub(crate) fn has_interface(path: &str, name: &str) -> io::Result<Option<bool>> {
    let (Ok(pod), Ok(host)) = (net::Netns::open(path), net::Netns::current()) else {
        return Ok(None);
    };
    let devices = pod.visit(&host, || {
        std::fs::read_to_string("/proc/thread-self/net/dev")
    });
    match devices {
        Ok(devices) => Ok(devices.ok().map(|devices| lists_interface(&devices, name))),
        Err(net::VisitError::Enter(_)) => Ok(None),
        Err(net::VisitError::Return(error)) => Err(error),
    }
}

/// `/proc/net/dev` has two header lines, then `name: numbers` per interface.
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
    fn interfaces_are_matched_by_their_whole_name() {
        let text = "Inter-| Receive\n face |bytes\n    lo: 1 2\n  eth0: 3 4\n";
        assert!(lists_interface(text, "eth0"));
        assert!(lists_interface(text, "lo"));
        assert!(!lists_interface(text, "eth"));
        assert!(!lists_interface(text, "eth00"));
    }

    #[test]
    fn a_path_that_is_not_a_netns_gives_no_answer() {
        assert_eq!(has_interface("/nonexistent", "eth0").unwrap(), None);
        assert_eq!(has_interface("/etc/hostname", "eth0").unwrap(), None);
    }
}
