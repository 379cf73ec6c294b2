//! Addresses that the mesh needs for itself, and others must not have.

use std::net::IpAddr;

use ipnet::IpNet;
use node_core::cidr::overlap;
use node_core::tailnet::TAILNET;

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
        (&addresses.pods, "pod CIDR", "network.podCIDR"),
        (&addresses.services, "service CIDR", "network.serviceCIDR"),
    ] {
        for network in networks.iter().filter(in_tailnet) {
            found.push(format!(
                "the {what} {network} overlaps the tailnet's addresses ({}): choose another {key}",
                tailnet_of(network)
            ));
        }
    }
    for (link, address) in &addresses.links {
        let is_members = addresses.members.contains(address);
        if !is_members && TAILNET.iter().any(|tailnet| tailnet.contains(address)) {
            found.push(format!(
                "{link} has {address}, which is in the tailnet's range ({}): tailscaled drops packets from \
                 there; give the link another address, or Headscale other prefixes",
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
    fn each_intruder_is_named_with_what_to_do() {
        let addresses = Addresses {
            pods: nets(&["100.100.0.0/16"]),
            services: nets(&["fd7a::/16"]),
            links: vec![("wan".to_owned(), "100.70.0.9".parse().unwrap())],
            members: Vec::new(),
        };
        let found = intruders(&addresses);
        assert_eq!(found.len(), 3);
        assert!(found[0].starts_with("the pod CIDR 100.100.0.0/16 overlaps"));
        assert!(found[0].ends_with("choose another network.podCIDR"));
        assert!(found[1].contains("fd7a:115c:a1e0::/48"));
        assert!(found[2].starts_with("wan has 100.70.0.9"));
    }
}
