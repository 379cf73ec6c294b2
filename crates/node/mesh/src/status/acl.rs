//! What the mesh's packet filter lets through from other nodes' pods to this node's. Pure.

use std::collections::BTreeSet;

use ipnet::IpNet;
use tailscaled::localapi::{Coverage, PacketFilter};

/// What gets through, as far as it is not all.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AclPaths {
    /// Networks between which nothing does.
    pub blocked: Vec<(IpNet, IpNet)>,
    /// Networks from which some does.
    pub partly: BTreeSet<IpNet>,
    /// What that is, in words like the policy's.
    pub passing: BTreeSet<String>,
}

impl AclPaths {
    /// Looks at what comes to `local` from the cluster's networks, and from those of `others` that are
    /// known to be nodes'.
    pub fn look(filter: &PacketFilter, local: &[IpNet], base: &[IpNet], others: &[IpNet]) -> Self {
        let mut found = Self::default();
        for to in local {
            let whole = base.iter().find(|base| base.contains(to)).unwrap_or(to);
            let is_shut = !filter.allows_any(whole, to);
            let others = others.iter().filter(|other| is_same_family(other, to));
            let mut sources: Vec<&IpNet> = others.collect();
            if is_shut {
                found.blocked.push((*whole, *to));
                sources.retain(|from| !whole.contains(*from));
            } else if sources.is_empty() {
                // A policy may name nodes' networks only: what nobody has is not missed.
                sources.push(whole);
            }
            for from in sources {
                match filter.coverage(from, to) {
                    Coverage::Full => {}
                    Coverage::Partial => {
                        found.partly.insert(*from);
                        found.passing.extend(filter.allowed(from, to));
                    }
                    Coverage::None => found.blocked.push((*from, *to)),
                }
            }
        }
        found
    }
}

fn is_same_family(one: &IpNet, other: &IpNet) -> bool {
    one.addr().is_ipv4() == other.addr().is_ipv4()
}

#[cfg(test)]
mod tests {
    use rstest::rstest;
    use serde_json::{Value, json};

    use super::*;

    const BASE: &[&str] = &["10.244.0.0/16", "fd00:244::/48"];
    const NODES: &[&str] = &["10.244.2.0/24", "10.244.3.0/24"];

    fn nets(texts: &[&str]) -> Vec<IpNet> {
        texts.iter().map(|text| text.parse().unwrap()).collect()
    }

    fn rule(from: &[&str], to: &str, [first, last]: [u16; 2]) -> Value {
        let ports = json!({ "First": first, "Last": last });
        json!({ "SrcIPs": from, "DstPorts": [{ "IP": to, "Ports": ports }] })
    }

    /// What is blocked, and what passes where that is a part, for a node with 10.244.1.0/24.
    fn look(rules: &[Value], others: &[&str]) -> [String; 2] {
        let filter = PacketFilter::parse(&json!(rules));
        let local = nets(&["10.244.1.0/24"]);
        let found = AclPaths::look(&filter, &local, &nets(BASE), &nets(others));
        let blocked = found.blocked.iter().map(|(from, _)| from.to_string());
        let passing = found.passing.into_iter();
        let joined = |all: Vec<String>| all.join("; ");
        [joined(blocked.collect()), joined(passing.collect())]
    }

    #[rstest]
    #[case::all(&[rule(&["*"], "*", [0, 65535])], NODES, ["", ""])]
    #[case::all_pods(&[rule(&["10.244.0.0/16"], "10.244.0.0/16", [0, 65535])], NODES, ["", ""])]
    #[case::every_node(&[rule(NODES, "10.244.1.0/24", [0, 65535])], NODES, ["", ""])]
    #[case::no_pods(&[rule(&["100.64.0.0/10"], "*", [0, 65535])], NODES, ["10.244.0.0/16", ""])]
    #[case::no_pods_and_no_nodes(&[], &[], ["10.244.0.0/16", ""])]
    #[case::one_of_two_nodes(
        &[rule(&["10.244.2.0/24"], "10.244.1.0/24", [0, 65535])], NODES, ["10.244.3.0/24", ""]
    )]
    #[case::nodes_nobody_knows(
        &[rule(&["10.244.2.0/24"], "10.244.1.0/24", [0, 65535])], &[],
        ["", "10.244.2.0/24 to 10.244.1.0/24:*"]
    )]
    #[case::one_port(
        &[rule(&["10.244.0.0/16"], "10.244.1.0/24", [80, 80])], NODES,
        ["", "10.244.0.0/16 to 10.244.1.0/24:80"]
    )]
    #[case::one_port_of_one_node(
        &[rule(&["10.244.2.0/24"], "*", [80, 80])], NODES,
        ["10.244.3.0/24", "10.244.2.0/24 to *:80"]
    )]
    #[case::half_of_a_node(
        &[rule(&["10.244.2.0/24", "10.244.3.0/25"], "*", [0, 65535])], NODES,
        ["", "10.244.3.0/25 to *:*"]
    )]
    #[case::outside_the_base(
        &[rule(&["10.244.0.0/16"], "*", [0, 65535])], &["10.9.0.0/24"], ["10.9.0.0/24", ""]
    )]
    #[case::another_familys_node(
        &[rule(&["10.244.0.0/16"], "*", [0, 65535])], &["fd00:244:0:2::/64"], ["", ""]
    )]
    fn what_does_not_get_through_is_found(
        #[case] rules: &[Value],
        #[case] others: &[&str],
        #[case] expected: [&str; 2],
    ) {
        assert_eq!(look(rules, others), expected);
    }

    #[test]
    fn each_family_is_looked_at() {
        let filter = json!([rule(&["10.244.0.0/16"], "*", [0, 65535])]);
        let local = nets(&["10.244.1.0/24", "fd00:244:0:1::/64"]);
        let others = nets(&["10.244.2.0/24", "fd00:244:0:2::/64"]);
        let found = AclPaths::look(&PacketFilter::parse(&filter), &local, &nets(BASE), &others);
        assert_eq!(found.blocked, [(nets(BASE)[1], local[1])]);
        assert_eq!(found.partly, BTreeSet::new());
    }
}
