//! Which firewalls there are, by the chains that they keep in nftables.

use std::fmt;

use ipnet::IpNet;
use net::nft::{Chain, HOOK_FORWARD, Policy, TableFamily};
use ruleset::{PORTS_TABLE, TABLE};

/// A firewall that has a say in what is forwarded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Found {
    pub(super) owner: Owner,
    pub(super) way: Way,
    /// The family of the packets that it gets.
    pub(super) family: TableFamily,
    /// Whether it drops what nobody has allowed.
    pub(super) is_drop: bool,
}

/// Who looks after a chain.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Owner {
    Docker,
    Ufw,
    Firewalld,
    /// Whoever called iptables.
    Iptables,
    /// Whoever called nft.
    Unknown,
}

/// How a firewall is told something.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Way {
    Iptables(IptablesChain),
    Firewalld,
    /// By nobody but its owner.
    Natively(NftChain),
}

/// A chain of iptables that rules of ours can be in.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct IptablesChain {
    /// The programs that know the chain; the first one that is installed is used.
    pub(super) programs: &'static [&'static str],
    /// Where rules of ours go.
    pub(super) chain: &'static str,
    /// Chains whose rules count.
    pub(super) read: Vec<&'static str>,
}

/// A chain of nftables.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct NftChain {
    pub(super) family: TableFamily,
    pub(super) table: String,
    pub(super) name: String,
}

impl Owner {
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Docker => "docker",
            Self::Ufw => "ufw",
            Self::Firewalld => "firewalld",
            Self::Iptables => "iptables",
            Self::Unknown => "nftables",
        }
    }
}

impl Found {
    /// Whether packets of a network get there.
    pub(super) fn concerns(&self, network: &IpNet) -> bool {
        match self.family {
            TableFamily::Ip => network.addr().is_ipv4(),
            TableFamily::Ip6 => network.addr().is_ipv6(),
            TableFamily::Inet | TableFamily::Other(_) => true,
        }
    }

    pub(super) fn can_be_told(&self) -> bool {
        !matches!(self.way, Way::Natively(_))
    }

    /// What a person does about it.
    pub(super) fn remedy(&self, networks: &[IpNet]) -> String {
        let Some(network) = networks.first() else {
            return String::new();
        };
        match (&self.way, self.owner) {
            (_, Owner::Ufw) => format!(
                "allow it by `ufw route allow from {network}` and `ufw route allow to {network}`"
            ),
            (Way::Iptables(chain), _) => {
                let (program, chain) = (chain.programs[0], chain.chain);
                format!(
                    "allow it by `{program} -I {chain} -s {network} -j ACCEPT` and \
                     `{program} -I {chain} -d {network} -j ACCEPT`"
                )
            }
            (Way::Firewalld, _) => format!(
                "allow it by `firewall-cmd --permanent --zone=trusted --add-source={network}` and \
                 `firewall-cmd --reload`"
            ),
            (Way::Natively(chain), _) => {
                let family = if network.addr().is_ipv4() {
                    "ip"
                } else {
                    "ip6"
                };
                format!(
                    "allow it by `nft insert rule {chain} {family} saddr {network} accept` and \
                     `nft insert rule {chain} {family} daddr {network} accept`"
                )
            }
        }
    }
}

impl fmt::Display for NftChain {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {} {}", self.family.name(), self.table, self.name)
    }
}

impl fmt::Display for Found {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let owner = self.owner.name();
        match &self.way {
            Way::Iptables(chain) => {
                write!(f, "{owner} (chain FORWARD of {})", chain.programs[0])
            }
            Way::Firewalld => f.write_str(owner),
            Way::Natively(chain) => write!(f, "{owner} (table {chain})"),
        }
    }
}

/// The firewalls among these chains. Those of iptables are among them whatever they drop, because
/// rules of ours may be there.
pub(super) fn in_nftables(chains: &[Chain]) -> Vec<Found> {
    let mut found = Vec::new();
    if chains.iter().any(is_of_firewalld) {
        found.push(Found {
            owner: Owner::Firewalld,
            way: Way::Firewalld,
            family: TableFamily::Inet,
            // It refuses in its last rule, whatever the policy says.
            is_drop: true,
        });
    }
    for chain in chains {
        let is_forward = matches!(chain.hook, Some((HOOK_FORWARD, _)));
        let is_ours = [TABLE, PORTS_TABLE].contains(&chain.table.as_str());
        let is_ip = !matches!(chain.family, TableFamily::Other(_));
        if !is_forward || is_ours || !is_ip || is_of_firewalld(chain) {
            continue;
        }
        let is_drop = chain.policy == Policy::Drop;
        let family = chain.family;
        let programs: &[&str] = match family {
            TableFamily::Ip => &["iptables-nft", "iptables"],
            _ => &["ip6tables-nft", "ip6tables"],
        };
        let is_of_iptables =
            family != TableFamily::Inet && chain.table == "filter" && chain.name == "FORWARD";
        if is_of_iptables {
            let has = |name: &str| {
                let mut of_table = chains
                    .iter()
                    .filter(|other| (other.family, &other.table) == (family, &chain.table));
                of_table.any(|other| other.name == name)
            };
            let (owner, way) = of_iptables(programs, has);
            found.push(Found {
                owner,
                way: Way::Iptables(way),
                family,
                is_drop,
            });
        } else if is_drop {
            found.push(Found {
                owner: Owner::Unknown,
                way: Way::Natively(NftChain {
                    family,
                    table: chain.table.clone(),
                    name: chain.name.clone(),
                }),
                family,
                is_drop,
            });
        }
    }
    found
}

fn is_of_firewalld(chain: &Chain) -> bool {
    chain.family == TableFamily::Inet && chain.table == "firewalld"
}

/// Whose an iptables is that has these chains, and where rules of ours go.
pub(super) fn of_iptables(
    programs: &'static [&'static str],
    has: impl Fn(&str) -> bool,
) -> (Owner, IptablesChain) {
    let ufw = ["ufw-user-forward", "ufw6-user-forward"]
        .into_iter()
        .find(|name| has(name));
    let (owner, chain) = if has("DOCKER-USER") {
        // Docker puts a jump to it ahead of all that is its own, and leaves what is in it alone.
        (Owner::Docker, "DOCKER-USER")
    } else if ufw.is_some() {
        (Owner::Ufw, "FORWARD")
    } else {
        (Owner::Iptables, "FORWARD")
    };
    let mut read = vec!["FORWARD"];
    read.extend((chain != "FORWARD").then_some(chain));
    read.extend(ufw);
    let chain = IptablesChain {
        programs,
        chain,
        read,
    };
    (owner, chain)
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    fn chain(place: &str, policy: Policy) -> Chain {
        let words: Vec<&str> = place.split(' ').collect();
        let family = match words[0] {
            "ip" => TableFamily::Ip,
            "ip6" => TableFamily::Ip6,
            _ => TableFamily::Inet,
        };
        Chain {
            family,
            table: words[1].to_owned(),
            name: words[2].to_owned(),
            handle: 1,
            hook: words.get(3).map(|_| (HOOK_FORWARD, 0)),
            policy,
        }
    }

    fn chains(dropping: &str, others: &[&str]) -> Vec<Chain> {
        let mut chains = vec![chain(dropping, Policy::Drop)];
        chains.extend(others.iter().map(|place| chain(place, Policy::Accept)));
        chains
    }

    #[rstest]
    #[case("ip filter FORWARD hook", &[], "iptables", "FORWARD")]
    #[case("ip6 filter FORWARD hook", &[], "iptables", "FORWARD")]
    #[case("ip filter FORWARD hook", &["ip filter DOCKER-USER"], "docker", "DOCKER-USER")]
    #[case("ip filter FORWARD hook", &["ip6 filter DOCKER-USER"], "iptables", "FORWARD")]
    #[case("ip filter FORWARD hook", &["ip filter ufw-user-forward"], "ufw", "FORWARD")]
    fn owners_of_iptables_are_known_by_their_chains(
        #[case] dropping: &str,
        #[case] others: &[&str],
        #[case] owner: &str,
        #[case] into: &str,
    ) {
        let found = in_nftables(&chains(dropping, others));
        let Way::Iptables(way) = &found[0].way else {
            panic!("{found:?}");
        };
        assert_eq!((found[0].owner.name(), way.chain), (owner, into));
        assert!(found[0].is_drop && found.len() == 1);
    }

    #[test]
    fn a_chain_of_nobody_we_know_is_named_by_its_place() {
        let found = in_nftables(&chains("inet mine forward hook", &[]));
        let text = found[0].to_string();
        assert_eq!(text, "nftables (table inet mine forward)");
        assert!(!found[0].can_be_told());
        let remedy = found[0].remedy(&["10.9.0.0/16".parse().unwrap()]);
        let line = "nft insert rule inet mine forward ip saddr 10.9.0.0/16 accept";
        assert!(remedy.contains(line), "{remedy}");
    }

    #[test]
    fn firewalld_drops_whatever_its_policy_says() {
        let firewalld = chain("inet firewalld filter_FORWARD hook", Policy::Accept);
        let found = in_nftables(&[firewalld]);
        assert_eq!(found.len(), 1);
        assert_eq!((found[0].owner, found[0].is_drop), (Owner::Firewalld, true));
    }

    #[test]
    fn who_forwards_everything_is_nobody_in_the_way() {
        let found = in_nftables(&[
            chain("inet mine forward hook", Policy::Accept),
            chain("inet headcni forward hook", Policy::Drop),
            chain("inet mine plain", Policy::Drop),
        ]);
        assert_eq!(found, []);
    }

    #[test]
    fn only_packets_of_its_family_get_to_a_chain() {
        let (v4, v6) = ("10.0.0.0/8".parse().unwrap(), "fd00::/8".parse().unwrap());
        for (place, expected) in [
            ("ip filter FORWARD hook", (true, false)),
            ("ip6 filter FORWARD hook", (false, true)),
            ("inet mine forward hook", (true, true)),
        ] {
            let found = in_nftables(&chains(place, &[]));
            assert_eq!((found[0].concerns(&v4), found[0].concerns(&v6)), expected);
        }
    }
}
