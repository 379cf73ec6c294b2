//! iptables, in either of its two forms: what its chains let through, and rules of ours in them.

use std::fs;

use ipnet::IpNet;
use net::nft::TableFamily;
use net::program;

use super::found::{Found, IptablesChain, Way, of_iptables};
use super::{FirewallError, run_well};
use node_config::Integrate;

/// What tells our rules from those of others.
const COMMENT: &str = "headcni";

/// A rule that lets packets of a network through, in one direction.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Accept {
    chain: String,
    /// From or to; neither means everything.
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

/// Tells a chain to let these networks through, or no longer, as the configuration says. Which of
/// them it drops after that.
pub(super) fn settle(
    chain: &IptablesChain,
    is_drop: bool,
    networks: &[IpNet],
    integrate: Integrate,
    repairs: &mut Vec<String>,
) -> Result<Vec<IpNet>, FirewallError> {
    let Some(program) = installed(chain.programs) else {
        // Somebody's container has it, or the rules were put back from a file.
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
            "{program} lets {flag} {network} through in {chain}"
        ));
    }
    for accept in old {
        let Some((direction, network)) = accept.matches else {
            continue;
        };
        change(program, "-D", &accept.chain, direction, network)?;
        repairs.push(format!(
            "{program} has no rule for {network} of ours any more"
        ));
    }
    if !repairs.is_empty() {
        accepts = list(program, &chain.read)?;
    }
    let is_dropped = |network: &&IpNet| is_drop && !lets_through(&accepts, network);
    Ok(networks.iter().filter(is_dropped).copied().collect())
}

/// Which rules are missing, and which of ours are too much.
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

fn lets_through(accepts: &[Accept], network: &IpNet) -> bool {
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
    run_well(program, &args).map(drop)
}

fn list(program: &str, chains: &[&str]) -> Result<Vec<Accept>, FirewallError> {
    let mut accepts = Vec::new();
    for chain in chains {
        let listing = run_well(program, &["-w", "5", "-S", chain])?;
        accepts.extend(listing.lines().filter_map(accept));
    }
    Ok(accepts)
}

/// The rule in a line of `iptables -S`, if it lets packets of one network through and asks for
/// nothing else.
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

/// The words of a line, with what is in quotes as one.
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

/// The first of these programs that is there.
fn installed(programs: &'static [&'static str]) -> Option<&'static str> {
    programs.iter().copied().find(|name| {
        let is_of_one_form = name.ends_with("-nft") || name.ends_with("-legacy");
        program::find(name).is_some() && (is_of_one_form || is_of_nftables(name))
    })
}

/// Whether a program without a form in its name keeps its rules in nftables.
fn is_of_nftables(program: &str) -> bool {
    run_well(program, &["--version"]).is_ok_and(|version| version.contains("nf_tables"))
}

/// The firewalls in the form of iptables that nftables knows nothing about.
pub(super) fn find_legacy() -> Result<Vec<Found>, FirewallError> {
    let mut found = Vec::new();
    for (family, names, programs) in [
        (TableFamily::Ip, "ip_tables_names", &["iptables-legacy"]),
        (TableFamily::Ip6, "ip6_tables_names", &["ip6tables-legacy"]),
    ] {
        // The kernel makes the table when it is asked for, so it is asked only if it is there.
        let tables = fs::read_to_string(format!("/proc/thread-self/net/{names}"));
        let has_filter = tables.is_ok_and(|tables| tables.lines().any(|name| name == "filter"));
        let Some(program) = installed(programs).filter(|_| has_filter) else {
            continue;
        };
        let listing = run_well(program, &["-w", "5", "-S"])?;
        let has = |name: &str| listing.lines().any(|line| line == format!("-N {name}"));
        let (owner, way) = of_iptables(programs, has);
        found.push(Found {
            owner,
            way: Way::Iptables(way),
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
    fn whatever_lets_a_network_through_both_ways_counts(
        #[case] lines: &[&str],
        #[case] expected: bool,
    ) {
        assert_eq!(lets_through(&parsed(lines), &net("10.9.0.0/16")), expected);
    }

    #[test]
    fn missing_rules_are_added_and_old_ones_of_ours_removed() {
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
        // Nothing is dropped, so nothing needs to be let through.
        let (missing, _) = changes("FORWARD", false, &networks, Integrate::Auto, &[]);
        assert!(missing.is_empty());
    }

    #[test]
    fn rules_move_when_their_chain_does() {
        let accepts = parsed(&[
            "-A FORWARD -s 10.9.0.0/16 -m comment --comment headcni -j ACCEPT",
            "-A FORWARD -d 10.9.0.0/16 -m comment --comment headcni -j ACCEPT",
        ]);
        let networks = [net("10.9.0.0/16")];
        let (missing, old) = changes("DOCKER-USER", true, &networks, Integrate::Auto, &accepts);
        assert_eq!((missing.len(), old), (2, accepts));
    }
}
