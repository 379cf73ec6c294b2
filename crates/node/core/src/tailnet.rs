//! The addresses of a tailnet.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use ipnet::{IpNet, Ipv4Net, Ipv6Net};

/// The prefixes that tailnet addresses are from: <https://tailscale.com/kb/1015/100.x-addresses>.
pub const TAILNET: [IpNet; 2] = [
    IpNet::V4(Ipv4Net::new_assert(Ipv4Addr::new(100, 64, 0, 0), 10)),
    IpNet::V6(Ipv6Net::new_assert(
        Ipv6Addr::new(0xfd7a, 0x115c, 0xa1e0, 0, 0, 0, 0, 0),
        48,
    )),
];

/// Where tailscaled answers MagicDNS: <https://tailscale.com/kb/1381/what-is-quad100>.
pub const RESOLVER: (Ipv4Addr, Ipv6Addr) = (
    Ipv4Addr::new(100, 100, 100, 100),
    Ipv6Addr::new(0xfd7a, 0x115c, 0xa1e0, 0, 0, 0, 0, 0x53),
);

/// The guard knows at most this many peers one by one: they fit into one netlink message.
pub const MAX_GUARDED_PEERS: usize = 2048;

/// The peers' addresses that the guard knows one by one, sorted: IPv4 only, because others use parts
/// of 100.64.0.0/10 too. An address outside the tailnet is ignored, whatever Headscale reports.
pub fn guarded_peers(addresses: impl IntoIterator<Item = IpAddr>) -> Vec<Ipv4Addr> {
    let in_tailnet = |address: IpAddr| match address {
        IpAddr::V4(ipv4) if TAILNET[0].contains(&address) => Some(ipv4),
        _ => None,
    };
    let mut peers: Vec<Ipv4Addr> = addresses.into_iter().filter_map(in_tailnet).collect();
    peers.sort_unstable();
    peers.dedup();
    peers.truncate(MAX_GUARDED_PEERS);
    peers
}

/// The destinations that tailscaled routes into the mesh while it runs, so nothing may carry packets
/// to them by another interface while it does not: the peers, the resolver, and the IPv6 prefix.
pub fn guarded_destinations(peers: &[Ipv4Addr]) -> Vec<IpNet> {
    let single = peers.iter().chain([&RESOLVER.0]);
    let single = single.map(|address| IpAddr::V4(*address).into());
    single.chain([TAILNET[1]]).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn nets(texts: &[&str]) -> Vec<IpNet> {
        texts.iter().map(|text| text.parse().unwrap()).collect()
    }

    #[test]
    fn only_tailnet_addresses_are_guarded_and_not_too_many() {
        let reported = [
            "100.64.0.7",
            "fd7a:115c:a1e0::7",
            "100.64.0.2",
            "10.99.0.1",
            "100.128.0.1",
            "8.8.8.8",
            "100.64.0.2",
            "fd00::1",
        ];
        let reported = reported.map(|text| text.parse().unwrap());
        let found = guarded_peers(reported);
        assert_eq!(
            found,
            [[100, 64, 0, 2], [100, 64, 0, 7]].map(Ipv4Addr::from)
        );
        let networks = [
            "100.64.0.2/32",
            "100.64.0.7/32",
            "100.100.100.100/32",
            "fd7a:115c:a1e0::/48",
        ];
        assert_eq!(guarded_destinations(&found), nets(&networks));
        let first = u32::from(Ipv4Addr::new(100, 65, 0, 0));
        let crowd = (first..first + 5000).map(|number| Ipv4Addr::from(number).into());
        assert_eq!(guarded_peers(crowd).len(), MAX_GUARDED_PEERS);
    }
}
