//! Special-purpose addresses: networks that pods and Services cannot have.

use std::net::{Ipv4Addr, Ipv6Addr};

use ipnet::{IpNet, Ipv4Net, Ipv6Net};

/// A special-purpose network (RFC 6890), or one that Tailscale uses for its nodes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SpecialPurpose {
    /// The whole network.
    pub net: IpNet,
    /// What it is; completes "10.0.0.0/8 is …".
    pub purpose: &'static str,
}

const SPECIAL: [SpecialPurpose; 12] = [
    v4([0, 0], 8, "unspecified: 0.0.0.0 stands for any address"),
    v4([127, 0], 8, "loopback, which never leaves a machine"),
    v4([169, 254], 16, "link-local, which is not routed"),
    v4([224, 0], 4, "multicast"),
    v4([240, 0], 4, "reserved, with the broadcast address"),
    // tailscaled drops these unless they come by its own interface:
    // https://tailscale.com/kb/1015/100.x-addresses
    v4([100, 64], 10, TAILNET),
    v6(
        [0; 3],
        127,
        "unspecified and loopback: :: stands for any address",
    ),
    MAPPED,
    v6([0x64, 0xff9b, 0], 96, "NAT64"),
    v6([0xfe80, 0, 0], 10, "link-local, which is not routed"),
    v6([0xff00, 0, 0], 8, "multicast"),
    v6([0xfd7a, 0x115c, 0xa1e0], 48, TAILNET),
];

const MAPPED: SpecialPurpose = SpecialPurpose {
    net: IpNet::V6(Ipv6Net::new_assert(
        Ipv4Addr::UNSPECIFIED.to_ipv6_mapped(),
        96,
    )),
    purpose: "IPv4 written as IPv6",
};
const TAILNET: &str = "the tailnet's own";

const fn v4([a, b]: [u8; 2], prefix_len: u8, purpose: &'static str) -> SpecialPurpose {
    let net = IpNet::V4(Ipv4Net::new_assert(Ipv4Addr::new(a, b, 0, 0), prefix_len));
    SpecialPurpose { net, purpose }
}

const fn v6(segments: [u16; 3], prefix_len: u8, purpose: &'static str) -> SpecialPurpose {
    let [first, second, third] = segments;
    let addr = Ipv6Addr::new(first, second, third, 0, 0, 0, 0, 0);
    let net = IpNet::V6(Ipv6Net::new_assert(addr, prefix_len));
    SpecialPurpose { net, purpose }
}

/// The first special-purpose network that overlaps this one.
pub fn special_purpose(net: &IpNet) -> Option<SpecialPurpose> {
    let overlaps =
        |special: &&SpecialPurpose| special.net.contains(net) || net.contains(&special.net);
    SPECIAL.iter().find(overlaps).copied()
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    #[rstest]
    #[case::equal("100.64.0.0/10", Some("100.64.0.0/10"))]
    #[case::within("127.1.0.0/16", Some("127.0.0.0/8"))]
    #[case::around("96.0.0.0/4", Some("100.64.0.0/10"))]
    #[case::broadcast("255.255.255.0/24", Some("240.0.0.0/4"))]
    #[case::all("::/0", Some("::/127"))]
    #[case::mapped("::ffff:10.0.0.0/104", Some("::ffff:0.0.0.0/96"))]
    #[case::tailnet("fd7a:115c:a1e0:1::/64", Some("fd7a:115c:a1e0::/48"))]
    #[case::private("10.244.0.0/16", None)]
    #[case::unique_local("fd00::/48", None)]
    fn overlaps_are_found(#[case] net: &str, #[case] special: Option<&str>) {
        let special = special.map(|special| special.parse::<IpNet>().unwrap());
        let found = special_purpose(&net.parse().unwrap());
        assert_eq!(found.map(|found| found.net), special);
    }
}
