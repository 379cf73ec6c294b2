//! iptables, nft or legacy: parses accept rules, and adds or removes ours.

use std::fs;

use ipnet::IpNet;
use net::nft::TableFamily;
use net::program;

use super::detect::{Backend, DetectedFirewall, IptablesChain, iptables_owner};
use super::{FirewallError, run_ok};
use node_config::Integrate;

/// Marks our rules.
const COMMENT: &str = "headcni";

/// A rule that accepts a prefix in one direction.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Accept {
    chain: String,
    /// `None` matches everything.
    matches: Option<(Direction, IpNet)>,
    is_ours: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Direction {
    From,
    To,
}

impl Direction {
    const BOTH: [Self; 2] = [Self::From, Self::To];

    fn flag(self) -> &'static str {
        match self {
            Self::From => "-s",
            Self::To => "-d",
        }
    }
}

/// Adds or removes our rules, and returns the networks that the chain still drops.
pub(super) fn reconcile(
    chain: &IptablesChain,
    is_drop: bool,
    networks: &[IpNet],
    integrate: Integrate,
    repairs: &mut Vec<String>,
) -> Result<Vec<IpNet>, FirewallError> {
    let Some(program) = installed(chain.programs) else {
        // The tool may be in a container, or the rules were restored from a file.
        return Ok(if is_drop {
            networks.to_vec()
        } else {
            Vec::new()
        });
    };
    let mut accepts = list(program, &chain.read)?;
    let (missing, old) = changes(chain.chain, is_drop, networks, integrate, &accepts);
    for (direction, network) in missing {
        change(program, "-I", chain.chain, direction, network)?;
        let (flag, chain) = (direction.flag(), chain.chain);
        repairs.push(format!(
            "add {program} rule {flag} {network} ACCEPT to {chain}"
        ));
    }
    for accept in old {
        let Some((direction, network)) = accept.matches else {
            continue;
        };
        change(program, "-D", &accept.chain, direction, network)?;
        repairs.push(format!("remove {program} rule for {network}"));
    }
    if !repairs.is_empty() {
        accepts = list(program, &chain.read)?;
    }
    let is_dropped = |network: &&IpNet| is_drop && !is_accepted(&accepts, network);
    Ok(networks.iter().filter(is_dropped).copied().collect())
}

/// Missing rules, and rules of ours that are not desired.
fn changes(
    chain: &str,
    is_drop: bool,
    networks: &[IpNet],
    integrate: Integrate,
    accepts: &[Accept],
) -> (Vec<(Direction, IpNet)>, Vec<Accept>) {
    let wanted: Vec<(Direction, IpNet)> = match integrate {
        Integrate::Auto if is_drop => networks
            .iter()
            .flat_map(|network| Direction::BOTH.map(|direction| (direction, *network)))
            .collect(),
        Integrate::Auto | Integrate::Off => Vec::new(),
    };
    let is_there = |wanted: &(Direction, IpNet)| {
        let is_it = |accept: &Accept| {
            accept.is_ours && accept.chain == chain && accept.matches == Some(*wanted)
        };
        accepts.iter().any(is_it)
    };
    let missing = wanted.iter().filter(|wanted| !is_there(wanted)).copied();
    let is_old = |accept: &&Accept| {
        let is_wanted = |one: &(Direction, IpNet)| accept.matches == Some(*one);
        accept.is_ours && !(accept.chain == chain && wanted.iter().any(is_wanted))
    };
    let old = accepts.iter().filter(is_old).cloned();
    (missing.collect(), old.collect())
}

fn is_accepted(accepts: &[Accept], network: &IpNet) -> bool {
    Direction::BOTH.iter().all(|direction| {
        accepts.iter().any(|accept| match &accept.matches {
            None => true,
            Some((found, covered)) => found == direction && covered.contains(network),
        })
    })
}

fn change(
    program: &str,
    verb: &str,
    chain: &str,
    direction: Direction,
    network: IpNet,
) -> Result<(), FirewallError> {
    let network = network.to_string();
    #[rustfmt::skip]
    let args = [
        "-w", "5", verb, chain, direction.flag(), &network,
        "-m", "comment", "--comment", COMMENT, "-j", "ACCEPT",
    ];
    run_ok(program, &args).map(drop)
}

fn list(program: &str, chains: &[&str]) -> Result<Vec<Accept>, FirewallError> {
    let mut accepts = Vec::new();
    for chain in chains {
        let listing = run_ok(program, &["-w", "5", "-S", chain])?;
        accepts.extend(listing.lines().filter_map(accept));
    }
    Ok(accepts)
}

/// Parses a line of `iptables -S`, if it accepts one prefix without another match.
fn accept(line: &str) -> Option<Accept> {
    let mut words = words(line).into_iter();
    if words.next()? != "-A" {
        return None;
    }
    let mut accept = Accept {
        chain: words.next()?,
        matches: None,
        is_ours: false,
    };
    let mut is_accept = false;
    while let Some(option) = words.next() {
        let value = words.next()?;
        match (option.as_str(), value.as_str()) {
            ("-s", network) if accept.matches.is_none() => {
                accept.matches = Some((Direction::From, network.parse().ok()?));
            }
            ("-d", network) if accept.matches.is_none() => {
                accept.matches = Some((Direction::To, network.parse().ok()?));
            }
            ("-m", "comment") => {}
            ("--comment", comment) => accept.is_ours = comment == COMMENT,
            ("-j", "ACCEPT") => is_accept = true,
            _ => return None,
        }
    }
    is_accept.then_some(accept)
}

/// Splits at white space; a quoted part is one word.
fn words(line: &str) -> Vec<String> {
    let mut words = Vec::new();
    for (index, part) in line.split('"').enumerate() {
        if index % 2 == 1 {
            words.push(part.to_owned());
        } else {
            words.extend(part.split_whitespace().map(str::to_owned));
        }
    }
    words
}

fn installed(programs: &'static [&'static str]) -> Option<&'static str> {
    programs.iter().copied().find(|name| {
        let is_of_one_form = name.ends_with("-nft") || name.ends_with("-legacy");
        program::find(name).is_some() && (is_of_one_form || uses_nftables(name))
    })
}

/// For a tool without `-nft` or `-legacy` in its name.
fn uses_nftables(program: &str) -> bool {
    run_ok(program, &["--version"]).is_ok_and(|version| version.contains("nf_tables"))
}

/// iptables-legacy rules do not appear in nftables.
pub(super) fn detect_legacy() -> Result<Vec<DetectedFirewall>, FirewallError> {
    let mut found = Vec::new();
    for (family, names, programs) in [
        (TableFamily::Ip, "ip_tables_names", &["iptables-legacy"]),
        (TableFamily::Ip6, "ip6_tables_names", &["ip6tables-legacy"]),
    ] {
        // Listing would create the table.
        let tables = fs::read_to_string(format!("/proc/thread-self/net/{names}"));
        let has_filter = tables.is_ok_and(|tables| tables.lines().any(|name| name == "filter"));
        let Some(program) = installed(programs).filter(|_| has_filter) else {
            continue;
        };
        let listing = run_ok(program, &["-w", "5", "-S"])?;
        let has = |name: &str| listing.lines().any(|line| line == format!("-N {name}"));
        let (owner, backend) = iptables_owner(programs, has);
        found.push(DetectedFirewall {
            owner,
            backend: Backend::Iptables(backend),
            family,
            is_drop: listing.lines().any(|line| line == "-P FORWARD DROP"),
        });
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    fn net(text: &str) -> IpNet {
        text.parse().unwrap()
    }

    fn parsed(lines: &[&str]) -> Vec<Accept> {
        lines.iter().filter_map(|line| accept(line)).collect()
    }

    #[rstest]
    #[case(&["-A FORWARD -s 10.9.0.0/16 -j ACCEPT", "-A FORWARD -d 10.9.0.0/16 -j ACCEPT"], true)]
    #[case(&["-A FORWARD -s 10.0.0.0/8 -j ACCEPT", "-A X -d 10.9.0.0/16 -j ACCEPT"], true)]
    #[case(&["-A FORWARD -j ACCEPT"], true)]
    #[case(&["-A FORWARD -s 10.9.0.0/16 -j ACCEPT"], false)]
    #[case(&["-A FORWARD -s 10.9.0.0/24 -j ACCEPT", "-A FORWARD -d 10.9.0.0/16 -j ACCEPT"], false)]
    #[case(&["-A FORWARD -s 10.9.0.0/16 -p tcp -j ACCEPT", "-A FORWARD -d 10.9.0.0/16 -j ACCEPT"], false)]
    #[case(&["-A FORWARD -i eth0 -j ACCEPT"], false)]
    #[case(&["-A FORWARD -s 10.9.0.0/16 -d 10.9.0.0/16 -j ACCEPT"], false)]
    #[case(&["-P FORWARD ACCEPT", "-N FORWARD"], false)]
    #[case(&["-A FORWARD -s 10.9.0.0/16 -m comment --comment \"let it be\" -j ACCEPT",
             "-A FORWARD -d 10.9.0.0/16 -m comment --comment it -j ACCEPT"], true)]
    fn a_network_is_accepted_if_both_directions_are(
        #[case] lines: &[&str],
        #[case] expected: bool,
    ) {
        assert_eq!(is_accepted(&parsed(lines), &net("10.9.0.0/16")), expected);
    }

    #[test]
    fn missing_rules_are_added_and_undesired_ones_removed() {
        let accepts = parsed(&[
            "-A FORWARD -s 10.9.0.0/16 -m comment --comment headcni -j ACCEPT",
            "-A FORWARD -s 10.8.0.0/16 -m comment --comment headcni -j ACCEPT",
            "-A FORWARD -s 10.7.0.0/16 -j ACCEPT",
        ]);
        let networks = [net("10.9.0.0/16")];
        let (missing, old) = changes("FORWARD", true, &networks, Integrate::Auto, &accepts);
        assert_eq!(missing, [(Direction::To, networks[0])]);
        assert_eq!(old, [accepts[1].clone()]);
        let (missing, old) = changes("FORWARD", true, &networks, Integrate::Off, &accepts);
        assert!(missing.is_empty());
        assert_eq!(old, accepts[..2]);
        // The policy accepts anyway.
        let (missing, _) = changes("FORWARD", false, &networks, Integrate::Auto, &[]);
        assert!(missing.is_empty());
    }

    #[test]
    fn rules_move_to_the_new_chain() {
        let accepts = parsed(&[
            "-A FORWARD -s 10.9.0.0/16 -m comment --comment headcni -j ACCEPT",
            "-A FORWARD -d 10.9.0.0/16 -m comment --comment headcni -j ACCEPT",
        ]);
        let networks = [net("10.9.0.0/16")];
        let (missing, old) = changes("DOCKER-USER", true, &networks, Integrate::Auto, &accepts);
        assert_eq!((missing.len(), old), (2, accepts));
    }
}
