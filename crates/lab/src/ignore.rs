//! What may remain on a node after DEL.
//!
//! The reference plugins never remove what containers share: the bridge, the top chains of portmap and
//! firewall, host-local's lock. A snapshot taken after a first ADD and DEL covers all of that at once.

use crate::rules;
use crate::snapshot::Section;

/// What a [`Snapshot`](crate::Snapshot) leaves out.
#[derive(Debug, Clone, Default)]
pub struct Ignore {
    links: Vec<String>,
    chains: Vec<String>,
    filled_chains: Vec<String>,
    tables: Vec<String>,
    paths: Vec<String>,
}

impl Ignore {
    pub fn new() -> Self {
        Self::default()
    }

    /// A link with its addresses, routes, neighbours and rules.
    #[must_use]
    pub fn link(mut self, name: &str) -> Self {
        self.links.push(name.to_owned());
        self
    }

    /// An iptables chain and the jumps to it, but not the rules in it.
    #[must_use]
    pub fn chain(mut self, name: &str) -> Self {
        self.chains.push(name.to_owned());
        self
    }

    /// An iptables chain with the jumps to it and the rules in it.
    #[must_use]
    pub fn filled_chain(mut self, name: &str) -> Self {
        self.filled_chains.push(name.to_owned());
        self.chain(name)
    }

    /// An nft table with all that is in it, as in `inet cni_plugins_masquerade`.
    #[must_use]
    pub fn nft_table(mut self, family_and_name: &str) -> Self {
        self.tables.push(format!("table {family_and_name}"));
        self
    }

    /// A file, or all files under a directory.
    #[must_use]
    pub fn path(mut self, path: &str) -> Self {
        self.paths.push(path.trim_end_matches('/').to_owned());
        self
    }

    /// The shared chains of portmap's iptables backend.
    #[must_use]
    pub fn portmap(self) -> Self {
        self.chain("CNI-HOSTPORT-DNAT")
            .filled_chain("CNI-HOSTPORT-SETMARK")
            .filled_chain("CNI-HOSTPORT-MASQ")
    }

    /// The shared chains of firewall's iptables backend.
    #[must_use]
    pub fn firewall(self) -> Self {
        self.chain("CNI-FORWARD").chain("CNI-ADMIN")
    }

    /// All files of host-local and headcni-ipam in a network's directory, such as
    /// `/var/lib/cni/networks/net1`, except leases.
    #[must_use]
    pub fn host_local(self, dir: &str) -> Self {
        let names = [
            "lock",
            "last_reserved_ip.0",
            "last_reserved_ip.1",
            ".headcni/new.0",
            ".headcni/new.1",
            ".headcni/pending",
        ];
        names
            .iter()
            .fold(self, |ignored, name| ignored.path(&format!("{dir}/{name}")))
    }

    /// The recycled record files in a network's directory, such as `/var/lib/cni/headcni/net1`.
    #[must_use]
    pub fn spare_records(self, dir: &str) -> Self {
        (0..16).fold(self, |ignored, number| {
            ignored.path(&format!("{dir}/new.{number}"))
        })
    }

    pub(crate) fn and(mut self, other: Self) -> Self {
        self.links.extend(other.links);
        self.chains.extend(other.chains);
        self.filled_chains.extend(other.filled_chains);
        self.tables.extend(other.tables);
        self.paths.extend(other.paths);
        self
    }

    pub(crate) fn covers(&self, section: Section, line: &str) -> bool {
        match section {
            Section::Nft => self.tables.iter().any(|table| rules::is_in(line, table)),
            Section::Files => self.paths.iter().any(|path| {
                let rest = line.strip_prefix(path.as_str());
                rest.is_some_and(|rest| rest.starts_with(['/', ' ']))
            }),
            Section::Iptables => {
                let has = |flag: &str, name: &str| has_pair(line, flag, name);
                let declares = |name: &String| has("-N", name) || has("-j", name);
                self.chains.iter().any(declares)
                    || self.filled_chains.iter().any(|name| has("-A", name))
            }
            _ => self
                .links
                .iter()
                .any(|link| line.split(' ').any(|word| word == link)),
        }
    }
}

fn has_pair(line: &str, flag: &str, value: &str) -> bool {
    let mut words = line.split(' ');
    words.any(|word| word == flag) && words.next() == Some(value)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ignoring_a_link_ignores_its_addresses_and_routes() {
        let ignore = Ignore::new().link("cni0");
        assert!(ignore.covers(Section::Links, "cni0"));
        assert!(ignore.covers(Section::Routes, "10.0.0.0/24 dev cni0 scope link"));
        assert!(!ignore.covers(Section::Links, "cni01"));
    }

    #[test]
    fn a_containers_rules_in_a_shared_chain_are_not_ignored() {
        let ignore = Ignore::new().portmap();
        let covers = |line| ignore.covers(Section::Iptables, line);
        assert!(covers("iptables -t nat -N CNI-HOSTPORT-DNAT"));
        assert!(covers(
            "iptables -t nat -A OUTPUT -m addrtype -j CNI-HOSTPORT-DNAT"
        ));
        assert!(covers(
            "iptables -t nat -A CNI-HOSTPORT-MASQ -m mark -j MASQUERADE"
        ));
        assert!(!covers(
            "iptables -t nat -A CNI-HOSTPORT-DNAT -p tcp -j CNI-DN-0123"
        ));
        assert!(!covers("iptables -t nat -N CNI-DN-0123"));
    }

    #[test]
    fn a_path_matches_whole_components() {
        let ignore = Ignore::new()
            .host_local("/var/lib/cni/networks/n")
            .path("/a/b");
        let covers = |line| ignore.covers(Section::Files, line);
        assert!(covers("/var/lib/cni/networks/n/lock 0640 \"\""));
        assert!(covers("/a/b/c 0600 \"\""));
        assert!(!covers("/a/bc 0600 \"\""));
        assert!(!covers("/var/lib/cni/networks/n/10.0.0.2 0600 \"id\""));
    }
}
