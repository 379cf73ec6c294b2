//! The host's end of an attachment: its name, and what is written on it.
//!
//! Both follow from names alone, so that a link can be found without a record, and a record's link
//! without a list. The kernel keeps the text with the link.

use cni::{ContainerId, IfName, NetworkName};

/// The name of an attachment's link on the host: always the same, so nobody has to remember it.
pub fn host_name(container: &ContainerId, ifname: &IfName) -> String {
    format!("hc{:011x}", hash(container, ifname) >> 20)
}

/// FNV-1a over both names, then mixed: names that differ in one letter are far apart.
/// <http://www.isthe.com/chongo/tech/comp/fnv/>
pub fn hash(container: &ContainerId, ifname: &IfName) -> u64 {
    let mut hash: u64 = 0xcbf2_9ce4_8422_2325;
    // No name has a zero in it.
    for byte in [container.as_str(), ifname.as_str()].join("\0").bytes() {
        hash = (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
    }
    (hash ^ (hash >> 32)).wrapping_mul(0x9e37_79b9_7f4a_7c15)
}

/// What is written on an attachment's link.
pub fn alias(network: &NetworkName, container: &ContainerId, ifname: &IfName) -> String {
    format!("headcni {network} {container} {ifname}")
}

/// The attachment that a link is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Labelled<'a> {
    /// The network's name.
    pub network: &'a str,
    /// The container's id.
    pub container: &'a str,
    /// The interface in the container.
    pub ifname: &'a str,
}

/// Reads what is written on a link; `None` if it isn't one of ours.
pub fn read_alias<'a>(name: &str, kind: &str, alias: &'a str) -> Option<Labelled<'a>> {
    if !name.starts_with("hc") || kind != "veth" {
        return None;
    }
    let mut words = alias.split(' ');
    match (
        words.next(),
        words.next(),
        words.next(),
        words.next(),
        words.next(),
    ) {
        (Some("headcni"), Some(network), Some(container), Some(ifname), None) => Some(Labelled {
            network,
            container,
            ifname,
        }),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_on_a_link_can_be_read() {
        let network = NetworkName::new("net").unwrap();
        let container = ContainerId::new("box").unwrap();
        let ifname = IfName::new("eth0").unwrap();
        let text = alias(&network, &container, &ifname);
        assert_eq!(
            read_alias("hc0123456789a", "veth", &text),
            Some(Labelled {
                network: "net",
                container: "box",
                ifname: "eth0"
            })
        );
    }

    #[test]
    fn only_a_link_that_says_so_is_ours() {
        for (name, kind, alias) in [
            ("veth0", "veth", "headcni net box eth0"),
            ("hc0", "dummy", "headcni net box eth0"),
            ("hc0", "veth", "net box eth0"),
            ("hc0", "veth", "headcni net box"),
            ("hc0", "veth", "headcni net box eth0 more"),
            ("hc0", "veth", ""),
        ] {
            assert_eq!(
                read_alias(name, kind, alias),
                None,
                "{name} {kind} {alias:?}"
            );
        }
    }
}
