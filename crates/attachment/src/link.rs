//! Name and alias of an attachment's link on the host.
//!
//! Both are derived from the names of the attachment, so that a link can be found without a record
//! and garbage collection needs no list. The kernel keeps the alias (`IFLA_IFALIAS`).

use cni::{ContainerId, IfName, NetworkName};

/// Name of an attachment's link on the host.
pub fn host_name(container: &ContainerId, ifname: &IfName) -> String {
    format!("hc{:011x}", hash(container, ifname) >> 20)
}

/// FNV-1a over both names, then mixed, because similar names have similar FNV hashes.
/// <http://www.isthe.com/chongo/tech/comp/fnv/>
pub fn hash(container: &ContainerId, ifname: &IfName) -> u64 {
    let mut hash: u64 = 0xcbf2_9ce4_8422_2325;
    // Neither name contains a NUL.
    for byte in [container.as_str(), ifname.as_str()].join("\0").bytes() {
        hash = (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
    }
    (hash ^ (hash >> 32)).wrapping_mul(0x9e37_79b9_7f4a_7c15)
}

/// Alias of an attachment's link.
pub fn alias(network: &NetworkName, container: &ContainerId, ifname: &IfName) -> String {
    format!("headcni {network} {container} {ifname}")
}

/// The attachment of a link.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LinkOwner<'a> {
    pub network: &'a str,
    pub container: &'a str,
    pub ifname: &'a str,
}

/// Parses the alias of a link; `None` if headcni has not made it.
pub fn parse_alias<'a>(name: &str, kind: &str, alias: &'a str) -> Option<LinkOwner<'a>> {
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
        (Some("headcni"), Some(network), Some(container), Some(ifname), None) => Some(LinkOwner {
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
    fn an_alias_parses_back() {
        let network = NetworkName::new("net").unwrap();
        let container = ContainerId::new("box").unwrap();
        let ifname = IfName::new("eth0").unwrap();
        let text = alias(&network, &container, &ifname);
        assert_eq!(
            parse_alias("hc0123456789a", "veth", &text),
            Some(LinkOwner {
                network: "net",
                container: "box",
                ifname: "eth0"
            })
        );
    }

    #[test]
    fn other_links_are_not_ours() {
        for (name, kind, alias) in [
            ("veth0", "veth", "headcni net box eth0"),
            ("hc0", "dummy", "headcni net box eth0"),
            ("hc0", "veth", "net box eth0"),
            ("hc0", "veth", "headcni net box"),
            ("hc0", "veth", "headcni net box eth0 more"),
            ("hc0", "veth", ""),
        ] {
            assert_eq!(
                parse_alias(name, kind, alias),
                None,
                "{name} {kind} {alias:?}"
            );
        }
    }
}
