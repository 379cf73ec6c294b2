//! Addresses that the mesh needs for itself, and others must not have.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use ipnet::{IpNet, Ipv4Net, Ipv6Net};

use super::remotes::overlap;

/// What members of a tailnet have as addresses: <https://tailscale.com/kb/1015/100.x-addresses>.
pub const TAILNET: [IpNet; 2] = [
    IpNet::V4(Ipv4Net::new_assert(Ipv4Addr::new(100, 64, 0, 0), 10)),
    IpNet::V6(Ipv6Net::new_assert(
        Ipv6Addr::new(0xfd7a, 0x115c, 0xa1e0, 0, 0, 0, 0, 0),
        48,
    )),
];

/// Where a tailscaled answers for the names of its mesh:
/// <https://tailscale.com/kb/1381/what-is-quad100>.
pub const RESOLVER: (Ipv4Addr, Ipv6Addr) = (
    Ipv4Addr::new(100, 100, 100, 100),
    Ipv6Addr::new(0xfd7a, 0x115c, 0xa1e0, 0, 0, 0, 0, 0x53),
);

/// So many members are guarded one by one. All of them fit into one message to the kernel.
pub const MOST_MEMBERS: usize = 2048;

/// Members' addresses that are guarded one by one, sorted: those of IPv4, because others have parts of
/// that network, too. Whatever the server says of its members, no address outside of it is taken
/// from anybody.
pub fn members(told: impl IntoIterator<Item = IpAddr>) -> Vec<Ipv4Addr> {
    let in_tailnet = |address: IpAddr| match address {
        IpAddr::V4(ipv4) if TAILNET[0].contains(&address) => Some(ipv4),
        _ => None,
    };
    let mut members: Vec<Ipv4Addr> = told.into_iter().filter_map(in_tailnet).collect();
    members.sort_unstable();
    members.dedup();
    members.truncate(MOST_MEMBERS);
    members
}

/// What tailscaled leads into the mesh while it runs, and what must not leave by another way while it does
/// not: its table has the same members and the resolver one by one, and all of the IPv6 network.
pub fn guarded(members: &[Ipv4Addr]) -> Vec<IpNet> {
    let alone = members.iter().chain([&RESOLVER.0]);
    let alone = alone.map(|address| IpAddr::V4(*address).into());
    alone.chain([TAILNET[1]]).collect()
}

/// What has addresses on this node and in its cluster.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Addresses {
    /// Pods: this node's networks and the whole cluster's.
    pub pods: Vec<IpNet>,
    /// Services.
    pub services: Vec<IpNet>,
    /// This node's links, each with its name.
    pub links: Vec<(String, IpAddr)>,
    /// The mesh's own: this member's, and others'.
    pub members: Vec<IpAddr>,
}

/// What has addresses that only members of the mesh may have, for a person to mend. A node whose
/// own address is its address in the mesh is as it should be.
pub fn intruders(addresses: &Addresses) -> Vec<String> {
    let in_tailnet = |network: &&IpNet| TAILNET.iter().any(|tailnet| overlap(tailnet, network));
    let mut found = Vec::new();
    for (networks, what, key) in [
        (&addresses.pods, "pods'", "network.podCIDR"),
        (&addresses.services, "services'", "network.serviceCIDR"),
    ] {
        for network in networks.iter().filter(in_tailnet) {
            found.push(format!(
                "the {what} network {network} overlaps the mesh's own addresses ({}): take another \
                 one for {key}",
                tailnet_of(network)
            ));
        }
    }
    for (link, address) in &addresses.links {
        let is_members = addresses.members.contains(address);
        if !is_members && TAILNET.iter().any(|tailnet| tailnet.contains(address)) {
            found.push(format!(
                "{link} has {address}, which is one of the mesh's own addresses ({}): tailscaled drops \
                 packets from there; give the link another address, or Headscale other prefixes",
                tailnet_of(&(*address).into())
            ));
        }
    }
    found
}

fn tailnet_of(network: &IpNet) -> IpNet {
    match network {
        IpNet::V4(_) => TAILNET[0],
        IpNet::V6(_) => TAILNET[1],
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn nets(texts: &[&str]) -> Vec<IpNet> {
        texts.iter().map(|text| text.parse().unwrap()).collect()
    }

    #[test]
    fn ordinary_addresses_are_apart() {
        let addresses = Addresses {
            pods: nets(&["10.244.0.0/16", "fd00:244::/48"]),
            services: nets(&["10.96.0.0/12"]),
            links: vec![
                ("eth0".to_owned(), "192.168.7.2".parse().unwrap()),
                ("headcni01".to_owned(), "100.64.0.1".parse().unwrap()),
                ("lo".to_owned(), "fd7a:115c:a1e0::7".parse().unwrap()),
            ],
            members: vec![
                "100.64.0.1".parse().unwrap(),
                "fd7a:115c:a1e0::7".parse().unwrap(),
            ],
        };
        assert_eq!(intruders(&addresses), [""; 0]);
    }

    #[test]
    fn only_addresses_of_the_mesh_are_guarded_and_not_too_many() {
        let told = [
            "100.64.0.7",
            "fd7a:115c:a1e0::7",
            "100.64.0.2",
            "10.99.0.1",
            "100.128.0.1",
            "8.8.8.8",
            "100.64.0.2",
            "fd00::1",
        ];
        let told = told.map(|text| text.parse().unwrap());
        let found = members(told);
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
        assert_eq!(guarded(&found), nets(&networks));
        let first = u32::from(Ipv4Addr::new(100, 65, 0, 0));
        let crowd = (first..first + 5000).map(|number| Ipv4Addr::from(number).into());
        assert_eq!(members(crowd).len(), MOST_MEMBERS);
    }

    #[test]
    fn each_intruder_is_named_with_what_to_do() {
        let addresses = Addresses {
            pods: nets(&["100.100.0.0/16"]),
            services: nets(&["fd7a::/16"]),
            links: vec![("wan".to_owned(), "100.70.0.9".parse().unwrap())],
            members: Vec::new(),
        };
        let found = intruders(&addresses);
        assert_eq!(found.len(), 3);
        assert!(found[0].starts_with("the pods' network 100.100.0.0/16 overlaps"));
        assert!(found[0].ends_with("take another one for network.podCIDR"));
        assert!(found[1].contains("fd7a:115c:a1e0::/48"));
        assert!(found[2].starts_with("wan has 100.70.0.9"));
    }
}
