//! Derives a pod CIDR from the node name.
//!
//! The lowest bits of the 64-bit FNV-1a hash select the subnet of the cluster CIDR. The hash must
//! never change, or nodes would get other addresses. Numbered names collide less often than by
//! chance, because the lowest bits of FNV-1a mix little. docs/podcidr.md has figures.

use std::net::{Ipv4Addr, Ipv6Addr};

use ipnet::{IpNet, Ipv4Net, Ipv6Net};

use super::check::InvalidCidrs;
use node_config::PerNode;
use node_core::hash::fnv1a;
use node_core::node_name::NodeName;

/// The pod CIDR if not even the cluster CIDR is known.
pub(super) fn default_network() -> IpNet {
    Ipv4Net::new_assert(Ipv4Addr::new(10, 244, 0, 0), 24).into()
}

/// The subnet with the same number in each cluster CIDR.
pub(super) fn from_name(
    node: &NodeName,
    base: &[IpNet],
    per_node: PerNode,
) -> Result<Vec<IpNet>, InvalidCidrs> {
    let lengths = |base: &IpNet| match base {
        IpNet::V4(_) => per_node.ipv4,
        IpNet::V6(_) => per_node.ipv6,
    };
    let mut bits = u64::BITS;
    for net in base {
        let per_node = lengths(net);
        let own = per_node.checked_sub(net.prefix_len());
        let own = own.ok_or(InvalidCidrs::PerNode {
            per_node,
            base: *net,
        })?;
        bits = bits.min(u32::from(own));
    }
    // A shift by 64 would overflow.
    let mask = 1_u64.checked_shl(bits).map_or(u64::MAX, |count| count - 1);
    let number = fnv1a(node.as_str().as_bytes()) & mask;
    let parts = base.iter().map(|net| part(net, lengths(net), number));
    Ok(parts.collect())
}

/// The subnet with this prefix length and number.
fn part(base: &IpNet, length: u8, number: u64) -> IpNet {
    match base {
        IpNet::V4(base) => {
            let shift = u32::from(32 - length);
            let offset = u32::try_from(number << shift)
                .expect("the number is less than the count of subnets");
            let address = Ipv4Addr::from_bits(base.network().to_bits() | offset);
            Ipv4Net::new_assert(address, length).into()
        }
        IpNet::V6(base) => {
            let offset = u128::from(number) << (128 - length);
            let address = Ipv6Addr::from_bits(base.network().to_bits() | offset);
            Ipv6Net::new_assert(address, length).into()
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;
    use rstest::rstest;

    use super::*;
    use node_config::Networks;

    fn name(text: &str) -> NodeName {
        node_core::node_name::find(Some(text), None).unwrap()
    }

    fn guess(node: &str, base: &str, per_node: &str) -> Result<String, String> {
        let base = base.parse::<Networks>().unwrap().0;
        let guessed = from_name(&name(node), &base, per_node.parse().unwrap());
        guessed
            .map(|nets| Networks(nets).to_string())
            .map_err(|error| error.to_string())
    }

    /// The published vectors.
    #[rstest]
    #[case("", 0xcbf2_9ce4_8422_2325)]
    #[case("a", 0xaf63_dc4c_8601_ec8c)]
    #[case("foobar", 0x8594_4171_f739_67e8)]
    fn the_hash_is_fnv_1a(#[case] text: &str, #[case] expected: u64) {
        assert_eq!(fnv1a(text.as_bytes()), expected);
    }

    /// These must never change.
    #[rstest]
    #[case("worker-1", "10.244.0.0/16", "/24", "10.244.237.0/24")]
    #[case("worker-2", "10.244.0.0/16", "/24", "10.244.212.0/24")]
    #[case("node-1", "10.244.0.0/16", "/24", "10.244.195.0/24")]
    #[case("worker-1", "10.244.0.0/16", "/26", "10.244.251.64/26")]
    #[case("worker-1", "10.244.0.0/16", "/16", "10.244.0.0/16")]
    #[case("worker-1", "10.0.0.0/8", "/30", "10.159.175.180/30")]
    #[case(
        "worker-1",
        "10.244.0.0/16,fd00:244::/56",
        "/24,/64",
        "10.244.237.0/24,fd00:244:0:ed::/64"
    )]
    #[case(
        "worker-1",
        "fd00:244::/48,10.244.0.0/16",
        "/24,/64",
        "fd00:244:0:ed::/64,10.244.237.0/24"
    )]
    #[case("worker-1", "fd00:244::/48", "/64", "fd00:244:0:ebed::/64")]
    #[case("worker-1", "fd00::/8", "/126", "fd00::9244:fb16:409f:afb4/126")]
    fn a_name_always_gets_the_same_subnet(
        #[case] node: &str,
        #[case] base: &str,
        #[case] per_node: &str,
        #[case] expected: &str,
    ) {
        assert_eq!(guess(node, base, per_node).unwrap(), expected);
    }

    #[test]
    fn a_subnet_larger_than_the_cluster_cidr_is_refused() {
        let error = guess("a", "10.244.0.0/16,fd00::/72", "/24,/64").unwrap_err();
        assert_eq!(
            error,
            "network.podCIDR.perNode /64 does not fit into the cluster's network fd00::/72"
        );
    }

    #[test]
    fn twenty_numbered_nodes_do_not_collide() {
        let parts: BTreeSet<_> = (1..=20)
            .map(|number| guess(&format!("worker-{number:02}"), "10.244.0.0/16", "/24").unwrap())
            .collect();
        assert_eq!(parts.len(), 20);
    }

    proptest! {
        #[test]
        fn a_subnet_is_within_the_cluster_cidr(
            node in "[a-z0-9]([-a-z0-9]{0,20}[a-z0-9])?",
            address in any::<(u32, u128)>(),
            lengths in (1_u8..=30, 1_u8..=126),
            longer in (0_u8..=29, 0_u8..=125),
            families in 1_u8..=3,
        ) {
            let per_node = PerNode {
                ipv4: (lengths.0 + longer.0).min(30),
                ipv6: (lengths.1 + longer.1).min(126),
            };
            let v4 = Ipv4Net::new_assert(address.0.into(), lengths.0).trunc();
            let v6 = Ipv6Net::new_assert(address.1.into(), lengths.1).trunc();
            let mut base = Vec::new();
            if families & 1 != 0 {
                base.push(IpNet::V4(v4));
            }
            if families & 2 != 0 {
                base.push(IpNet::V6(v6));
            }
            let parts = from_name(&name(&node), &base, per_node).unwrap();
            prop_assert_eq!(parts.len(), base.len());
            for (part, base) in parts.iter().zip(&base) {
                let length = if part.addr().is_ipv4() { per_node.ipv4 } else { per_node.ipv6 };
                prop_assert!(base.contains(part), "{part} is not in {base}");
                prop_assert_eq!(part.prefix_len(), length);
                prop_assert_eq!(part.addr(), part.network());
            }
        }

        #[test]
        fn both_families_use_the_same_subnet_number(node in "[a-z][a-z0-9]{0,20}") {
            let base = "10.0.0.0/8,fd00::/48".parse::<Networks>().unwrap().0;
            let parts = from_name(&name(&node), &base, PerNode::default()).unwrap();
            let [IpNet::V4(v4), IpNet::V6(v6)] = parts[..] else { panic!("{parts:?}") };
            let number = u128::from((v4.addr().to_bits() >> 8) & 0xffff);
            prop_assert_eq!(number, (v6.addr().to_bits() >> 64) & 0xffff);
        }
    }
}
