//! Unknown nftables chains: read, never written.

use ipnet::IpNet;

use super::detect::NftChain;
use super::{FirewallError, run_ok};

/// Words of a rule that are no match expression.
const NO_MATCH: [&str; 5] = ["counter", "packets", "bytes", "accept", "comment"];

/// The networks that a chain drops.
pub(super) fn dropped(chain: &NftChain, networks: &[IpNet]) -> Result<Vec<IpNet>, FirewallError> {
    let family = chain.family.name();
    let listing = run_ok("nft", &["list", "chain", family, &chain.table, &chain.name])?;
    let accepts: Vec<(&str, IpNet)> = listing.lines().filter_map(accept).collect();
    let is_dropped = |network: &&IpNet| {
        let accepts_field = |wanted: &str| {
            let mut accepts = accepts.iter();
            accepts.any(|(field, covered)| *field == wanted && covered.contains(*network))
        };
        !(accepts_field("saddr") && accepts_field("daddr"))
    };
    Ok(networks.iter().filter(is_dropped).copied().collect())
}

/// The field and the prefix that a rule accepts.
fn accept(line: &str) -> Option<(&'static str, IpNet)> {
    // Quoted parts are comments.
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
    let is_plain = rest.all(|word| NO_MATCH.contains(&word) || word.parse::<u64>().is_ok());
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
    fn a_rule_that_accepts_a_prefix_is_parsed(#[case] line: &str, #[case] expected: Option<&str>) {
        assert_eq!(accept(line).map(|(field, _)| field), expected);
    }
}
