//! Chains of nftables that somebody keeps by hand: they are read, and never written.

use ipnet::IpNet;

use super::found::NftChain;
use super::{FirewallError, run_well};

/// Words that may stand in a rule that lets through whatever it matches.
const HARMLESS: [&str; 5] = ["counter", "packets", "bytes", "accept", "comment"];

/// Which of the networks a chain drops.
pub(super) fn dropped(chain: &NftChain, networks: &[IpNet]) -> Result<Vec<IpNet>, FirewallError> {
    let family = chain.family.name();
    let listing = run_well("nft", &["list", "chain", family, &chain.table, &chain.name])?;
    let accepts: Vec<(&str, IpNet)> = listing.lines().filter_map(accept).collect();
    let is_dropped = |network: &&IpNet| {
        let lets = |wanted: &str| {
            let mut accepts = accepts.iter();
            accepts.any(|(field, covered)| *field == wanted && covered.contains(*network))
        };
        !(lets("saddr") && lets("daddr"))
    };
    Ok(networks.iter().filter(is_dropped).copied().collect())
}

/// Source or destination, and the network that a rule lets through.
fn accept(line: &str) -> Option<(&'static str, IpNet)> {
    // What is in quotes is a comment.
    let line: String = line.split('"').step_by(2).collect();
    let mut words = line.split_whitespace();
    if !["ip", "ip6"].contains(&words.next()?) {
        return None;
    }
    let field = match words.next()? {
        "saddr" => "saddr",
        "daddr" => "daddr",
        _ => return None,
    };
    let network = words.next()?.parse().ok()?;
    let mut rest = words.clone();
    let is_plain = rest.all(|word| HARMLESS.contains(&word) || word.parse::<u64>().is_ok());
    (is_plain && words.any(|word| word == "accept")).then_some((field, network))
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    #[rstest]
    #[case("\t\tip saddr 10.9.0.0/16 accept", Some("saddr"))]
    #[case(
        "ip6 daddr fd00::/64 counter packets 7 bytes 8 accept comment \"a b\"",
        Some("daddr")
    )]
    #[case("ip saddr 10.9.0.0/16 drop", None)]
    #[case("ip saddr 10.9.0.0/16 tcp dport 80 accept", None)]
    #[case("ip saddr 10.9.0.0/16 counter drop comment \"accept\"", None)]
    #[case("ip saddr @mine accept", None)]
    #[case("type filter hook forward priority filter; policy drop;", None)]
    #[case("", None)]
    fn a_rule_that_accepts_a_network_is_understood(
        #[case] line: &str,
        #[case] expected: Option<&str>,
    ) {
        assert_eq!(accept(line).map(|(field, _)| field), expected);
    }
}
