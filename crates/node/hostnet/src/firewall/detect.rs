//! Detects firewalls by their nftables chains.

use std::fmt;

use ipnet::IpNet;
use net::nft::{Chain, HOOK_FORWARD, Policy, TableFamily};
use ruleset::{PORTS_TABLE, TABLE};

/// A firewall with a forward chain.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct DetectedFirewall {
    pub(super) owner: Owner,
    pub(super) backend: Backend,
    pub(super) family: TableFamily,
    /// It drops forwarded packets without an accept rule.
    pub(super) is_drop: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Owner {
    Docker,
    Ufw,
    Firewalld,
    /// An unknown user of iptables.
    Iptables,
    /// An unknown user of nft.
    Unknown,
}

/// The tool that adds accept rules.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Backend {
    Iptables(IptablesChain),
    Firewalld,
    /// Only its owner may change it.
    Nft(NftChain),
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct IptablesChain {
    /// Tools that list the chain; the first installed one is used.
    pub(super) programs: &'static [&'static str],
    /// For our rules.
    pub(super) chain: &'static str,
    /// Chains to search for accept rules.
    pub(super) read: Vec<&'static str>,
}

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

impl DetectedFirewall {
    /// Whether packets of a prefix reach the chain.
    pub(super) fn handles(&self, network: &IpNet) -> bool {
        match self.family {
            TableFamily::Ip => network.addr().is_ipv4(),
            TableFamily::Ip6 => network.addr().is_ipv6(),
            TableFamily::Inet | TableFamily::Other(_) => true,
        }
    }

    pub(super) fn is_configurable(&self) -> bool {
        !matches!(self.backend, Backend::Nft(_))
    }

    pub(super) fn remedy(&self, networks: &[IpNet]) -> String {
        let Some(network) = networks.first() else {
            return String::new();
        };
        match (&self.backend, self.owner) {
            (_, Owner::Ufw) => format!(
                "allow it by `ufw route allow from {network}` and `ufw route allow to {network}`"
            ),
            (Backend::Iptables(chain), _) => {
                let (program, chain) = (chain.programs[0], chain.chain);
                format!(
                    "allow it by `{program} -I {chain} -s {network} -j ACCEPT` and \
                     `{program} -I {chain} -d {network} -j ACCEPT`"
                )
            }
            (Backend::Firewalld, _) => format!(
                "allow it by `firewall-cmd --permanent --zone=trusted --add-source={network}` and \
                 `firewall-cmd --reload`"
            ),
            (Backend::Nft(chain), _) => {
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

impl fmt::Display for DetectedFirewall {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let owner = self.owner.name();
        match &self.backend {
            Backend::Iptables(chain) => {
                write!(f, "{owner} (chain FORWARD of {})", chain.programs[0])
            }
            Backend::Firewalld => f.write_str(owner),
            Backend::Nft(chain) => write!(f, "{owner} (table {chain})"),
        }
    }
}

/// The firewalls among these chains. iptables is always included: our rules may be in it.
pub(super) fn detect(chains: &[Chain]) -> Vec<DetectedFirewall> {
    let mut found = Vec::new();
    if chains.iter().any(is_firewalld) {
        found.push(DetectedFirewall {
            owner: Owner::Firewalld,
            backend: Backend::Firewalld,
            family: TableFamily::Inet,
            // Its last rule rejects, whatever the policy is.
            is_drop: true,
        });
    }
    for chain in chains {
        let is_forward = matches!(chain.hook, Some((HOOK_FORWARD, _)));
        let is_ours = [TABLE, PORTS_TABLE].contains(&chain.table.as_str());
        let is_ip = !matches!(chain.family, TableFamily::Other(_));
        if !is_forward || is_ours || !is_ip || is_firewalld(chain) {
            continue;
        }
        let is_drop = chain.policy == Policy::Drop;
        let family = chain.family;
        let programs: &[&str] = match family {
            TableFamily::Ip => &["iptables-nft", "iptables"],
            _ => &["ip6tables-nft", "ip6tables"],
        };
        let is_iptables =
            family != TableFamily::Inet && chain.table == "filter" && chain.name == "FORWARD";
        if is_iptables {
            let has = |name: &str| {
                let mut of_table = chains
                    .iter()
                    .filter(|other| (other.family, &other.table) == (family, &chain.table));
                of_table.any(|other| other.name == name)
            };
            let (owner, backend) = iptables_owner(programs, has);
            found.push(DetectedFirewall {
                owner,
                backend: Backend::Iptables(backend),
                family,
                is_drop,
            });
        } else if is_drop {
            found.push(DetectedFirewall {
                owner: Owner::Unknown,
                backend: Backend::Nft(NftChain {
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

fn is_firewalld(chain: &Chain) -> bool {
    chain.family == TableFamily::Inet && chain.table == "firewalld"
}

/// The owner of an iptables table with these chains, and the chain for our rules.
pub(super) fn iptables_owner(
    programs: &'static [&'static str],
    has: impl Fn(&str) -> bool,
) -> (Owner, IptablesChain) {
    let ufw = ["ufw-user-forward", "ufw6-user-forward"]
        .into_iter()
        .find(|name| has(name));
    let (owner, chain) = if has("DOCKER-USER") {
        // Docker jumps to it before its own rules, and never changes it.
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

    fn chain(spec: &str, policy: Policy) -> Chain {
        let words: Vec<&str> = spec.split(' ').collect();
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
        chains.extend(others.iter().map(|spec| chain(spec, Policy::Accept)));
        chains
    }

    #[rstest]
    #[case("ip filter FORWARD hook", &[], "iptables", "FORWARD")]
    #[case("ip6 filter FORWARD hook", &[], "iptables", "FORWARD")]
    #[case("ip filter FORWARD hook", &["ip filter DOCKER-USER"], "docker", "DOCKER-USER")]
    #[case("ip filter FORWARD hook", &["ip6 filter DOCKER-USER"], "iptables", "FORWARD")]
    #[case("ip filter FORWARD hook", &["ip filter ufw-user-forward"], "ufw", "FORWARD")]
    fn the_owner_of_iptables_is_detected_by_its_chains(
        #[case] dropping: &str,
        #[case] others: &[&str],
        #[case] owner: &str,
        #[case] into: &str,
    ) {
        let found = detect(&chains(dropping, others));
        let Backend::Iptables(backend) = &found[0].backend else {
            panic!("{found:?}");
        };
        assert_eq!((found[0].owner.name(), backend.chain), (owner, into));
        assert!(found[0].is_drop && found.len() == 1);
    }

    #[test]
    fn an_unknown_nft_chain_is_named_by_table_and_chain() {
        let found = detect(&chains("inet mine forward hook", &[]));
        let text = found[0].to_string();
        assert_eq!(text, "nftables (table inet mine forward)");
        assert!(!found[0].is_configurable());
        let remedy = found[0].remedy(&["10.9.0.0/16".parse().unwrap()]);
        let line = "nft insert rule inet mine forward ip saddr 10.9.0.0/16 accept";
        assert!(remedy.contains(line), "{remedy}");
    }

    #[test]
    fn firewalld_drops_whatever_its_policy_is() {
        let firewalld = chain("inet firewalld filter_FORWARD hook", Policy::Accept);
        let found = detect(&[firewalld]);
        assert_eq!(found.len(), 1);
        assert_eq!((found[0].owner, found[0].is_drop), (Owner::Firewalld, true));
    }

    #[test]
    fn accepting_own_and_non_base_chains_are_ignored() {
        let found = detect(&[
            chain("inet mine forward hook", Policy::Accept),
            chain("inet headcni forward hook", Policy::Drop),
            chain("inet mine plain", Policy::Drop),
        ]);
        assert_eq!(found, []);
    }

    #[test]
    fn a_chain_handles_only_packets_of_its_family() {
        let (v4, v6) = ("10.0.0.0/8".parse().unwrap(), "fd00::/8".parse().unwrap());
        for (spec, expected) in [
            ("ip filter FORWARD hook", (true, false)),
            ("ip6 filter FORWARD hook", (false, true)),
            ("inet mine forward hook", (true, true)),
        ] {
            let found = detect(&chains(spec, &[]));
            assert_eq!((found[0].handles(&v4), found[0].handles(&v6)), expected);
        }
    }
}
