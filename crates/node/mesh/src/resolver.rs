//! Who resolves names for a tailscaled that does not see the host's loopback.

use std::net::{IpAddr, Ipv4Addr};
use std::path::Path;

use node_core::files::read_small;

/// What programs go by.
const RESOLV_CONF: &str = "etc/resolv.conf";
/// Whom systemd's resolver asks, which is itself on loopback.
const UPSTREAMS: &str = "run/systemd/resolve/resolv.conf";
/// Both have a few lines.
const MAX_LEN: u64 = 1 << 16;

/// The first server behind a resolver on loopback, if it is known; nothing where names are resolved
/// without one.
pub(crate) fn find(root: &Path) -> Option<Ipv4Addr> {
    let read = |path: &str| {
        let bytes = read_small(&root.join(path), MAX_LEN).ok()?;
        Some(String::from_utf8_lossy(&bytes).into_owned())
    };
    behind(&read(RESOLV_CONF)?, &read(UPSTREAMS)?)
}

fn behind(resolv_conf: &str, upstreams: &str) -> Option<Ipv4Addr> {
    if !servers(resolv_conf).any(|server| server.is_loopback()) {
        return None;
    }
    servers(upstreams).find_map(|server| match server {
        IpAddr::V4(ipv4) if !ipv4.is_loopback() => Some(ipv4),
        _ => None,
    })
}

fn servers(text: &str) -> impl Iterator<Item = IpAddr> {
    let lines = text.lines().filter_map(|line| {
        let mut words = line.split_whitespace();
        (words.next() == Some("nameserver")).then(|| words.next()?.parse().ok())
    });
    lines.flatten()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_resolver_on_loopback_has_servers_behind_it() {
        let upstreams = "# x\nnameserver 127.0.0.1\nnameserver fd00::1\nnameserver 10.7.0.1\n";
        let behind = |conf| behind(conf, upstreams).map(|found| found.to_string());
        let stub = "options edns0\nnameserver 127.0.0.53\nsearch lan\n";
        assert_eq!(behind(stub).as_deref(), Some("10.7.0.1"));
        assert_eq!(behind("nameserver 10.7.0.2\n"), None);
        assert_eq!(behind(""), None);
    }

    #[test]
    fn without_systemd_s_resolver_none_is_known() {
        let root = tempfile::tempdir().unwrap();
        assert_eq!(find(root.path()), None);
    }
}
