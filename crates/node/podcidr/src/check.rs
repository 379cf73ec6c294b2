//! What networks of pods must be like, wherever they are from.

use std::net::IpAddr;

use ipnet::IpNet;

use node_config::{Network, Networks};

/// A smaller IPv4 network than this is worth a warning.
const SMALL_IPV4: u8 = 27;

/// Why networks can't be those of pods.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Unfit {
    /// The text says something else.
    #[error("{0}")]
    NotNetworks(String),
    /// Two of one IP family.
    #[error("{0} and {1} are of one IP family: there is one network per family")]
    SameFamily(IpNet, IpNet),
    /// No room for network address, gateway, a pod and broadcast.
    #[error("{0} is too small: it needs 4 addresses at least")]
    TooSmall(IpNet),
    /// Addresses that have a meaning already.
    #[error("{net} overlaps {reserved}, which is {purpose}")]
    Reserved {
        /// The network.
        net: IpNet,
        /// What it overlaps.
        reserved: IpNet,
        /// What that is for.
        purpose: &'static str,
    },
    /// Addresses of services.
    #[error("{net} overlaps network.serviceCIDR {service}: pods and services need networks apart")]
    Service {
        /// The network.
        net: IpNet,
        /// What it overlaps.
        service: IpNet,
    },
    /// A node's network that is no part of the cluster's.
    #[error("{net} is not in the cluster's network {base} (from {origin})")]
    OutsideBase {
        /// The network.
        net: IpNet,
        /// The cluster's of the same family.
        base: IpNet,
        /// Where that is from.
        origin: String,
    },
    /// A node's network that is all of the cluster's.
    #[error("{net} is the whole cluster's network (from {origin}), not this node's")]
    IsBase {
        /// The network.
        net: IpNet,
        /// Where the cluster's is from.
        origin: String,
    },
    /// `enableIPv6: true` without an IPv6 network.
    #[error("{0} has no IPv6 network, though network.enableIPv6 is true")]
    LacksIpv6(Networks),
    /// `enableIPv6: false` with an IPv6 network.
    #[error("{0} is IPv6, though network.enableIPv6 is false")]
    UnwantedIpv6(IpNet),
    /// A node's part would be larger than the whole.
    #[error("network.podCIDR.perNode /{per_node} does not fit into the cluster's network {base}")]
    PerNode {
        /// How long the prefix of a node's network is to be.
        per_node: u8,
        /// The cluster's network.
        base: IpNet,
    },
}

pub(super) fn is_same_family(a: &IpNet, b: &IpNet) -> bool {
    a.addr().is_ipv4() == b.addr().is_ipv4()
}

fn overlaps(a: &IpNet, b: &IpNet) -> bool {
    a.contains(b) || b.contains(a)
}

/// Whether networks could be pods', whatever else is known.
pub(super) fn sound(nets: &[IpNet]) -> Result<(), Unfit> {
    for (nth, net) in nets.iter().enumerate() {
        if let Some(other) = nets[..nth].iter().find(|other| is_same_family(other, net)) {
            return Err(Unfit::SameFamily(*other, *net));
        }
        if net.max_prefix_len() - net.prefix_len() < 2 {
            return Err(Unfit::TooSmall(*net));
        }
        if let Some(special) = net::special_purpose(net) {
            return Err(Unfit::Reserved {
                net: *net,
                reserved: special.net,
                purpose: special.purpose,
            });
        }
    }
    Ok(())
}

/// Whether networks are apart from those of services.
pub(super) fn apart(nets: &[IpNet], network: &Network) -> Result<(), Unfit> {
    for net in nets {
        let Networks(services) = &network.service_cidr;
        if let Some(service) = services.iter().find(|service| overlaps(service, net)) {
            return Err(Unfit::Service {
                net: *net,
                service: *service,
            });
        }
    }
    Ok(())
}

/// Whether a node's networks are what the configuration says about all nodes'.
pub(super) fn agrees(local: &[IpNet], network: &Network) -> Result<(), Unfit> {
    apart(local, network)?;
    let ipv6 = local.iter().find(|net| net.addr().is_ipv6());
    match (network.enable_ipv6, ipv6) {
        (Some(true), None) => Err(Unfit::LacksIpv6(Networks(local.to_vec()))),
        (Some(false), Some(net)) => Err(Unfit::UnwantedIpv6(*net)),
        _ => Ok(()),
    }
}

/// Whether a node's networks are in the cluster's. A family that the cluster has no network of is
/// let pass.
pub(super) fn within(local: &[IpNet], base: &[IpNet], origin: &str) -> Result<(), Unfit> {
    for (net, base) in pairs(local, base) {
        if !base.contains(net) {
            return Err(Unfit::OutsideBase {
                net: *net,
                base: *base,
                origin: origin.to_owned(),
            });
        }
    }
    Ok(())
}

/// As [`within`], and only a part of them.
pub(super) fn is_part(local: &[IpNet], base: &[IpNet], origin: &str) -> Result<(), Unfit> {
    within(local, base, origin)?;
    match pairs(local, base).find(|(net, base)| net == base) {
        None => Ok(()),
        Some((net, _)) => Err(Unfit::IsBase {
            net: *net,
            origin: origin.to_owned(),
        }),
    }
}

fn pairs<'a>(
    local: &'a [IpNet],
    base: &'a [IpNet],
) -> impl Iterator<Item = (&'a IpNet, &'a IpNet)> {
    local
        .iter()
        .flat_map(|net| base.iter().map(move |base| (net, base)))
        .filter(|(net, base)| is_same_family(net, base))
}

/// What is allowed, but hardly meant.
pub(super) fn warnings(local: &[IpNet], base: &[IpNet]) -> Vec<String> {
    let has =
        |nets: &[IpNet], is_kind: fn(&IpAddr) -> bool| nets.iter().any(|net| is_kind(&net.addr()));
    let mut warnings = Vec::new();
    for net in local {
        // Network address, gateway and broadcast are no pod's.
        if let IpNet::V4(v4) = net
            && v4.prefix_len() > SMALL_IPV4
        {
            let pods = (1_u32 << (32 - v4.prefix_len())) - 3;
            warnings.push(format!("{net} is small: it has room for {pods} pods"));
        }
    }
    for (family, is_kind) in [
        ("IPv4", IpAddr::is_ipv4 as fn(&IpAddr) -> bool),
        ("IPv6", IpAddr::is_ipv6),
    ] {
        match (has(local, is_kind), has(base, is_kind)) {
            (true, false) => warnings.push(format!(
                "the cluster's {family} network is not known, so that other nodes' pods count as \
                 outside of the cluster, and get no route by the mesh unless Kubernetes has assigned \
                 their networks: set network.podCIDR.base"
            )),
            (false, true) => warnings.push(format!(
                "the cluster has an {family} network, but this node has none of it"
            )),
            _ => {}
        }
    }
    warnings
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    fn nets(text: &str) -> Vec<IpNet> {
        text.parse::<Networks>().unwrap().0
    }

    #[rstest]
    #[case("10.244.1.0/24")]
    #[case("10.244.1.0/24,fd00:1::/64")]
    #[case("fd00:1::/64")]
    #[case("10.244.1.0/30,fd00:1::/126")]
    #[case("10.0.0.0/8")]
    #[case("100.128.0.0/10")]
    #[case("240.0.0.0/8")]
    fn such_networks_are_sound(#[case] text: &str) {
        assert_eq!(sound(&nets(text)), Ok(()));
    }

    #[rstest]
    #[case("10.1.0.0/24,10.2.0.0/24", "of one IP family")]
    #[case("fd00:1::/64,10.1.0.0/24,fd00:2::/64", "of one IP family")]
    #[case("10.1.0.0/31", "too small")]
    #[case("10.1.0.1/32", "too small")]
    #[case("fd00::/127", "too small")]
    #[case("0.0.0.0/0", "any address")]
    #[case("127.1.0.0/16", "loopback")]
    #[case("169.254.20.0/24", "link-local")]
    #[case("239.0.0.0/24", "multicast")]
    #[case("255.255.255.0/24", "broadcast")]
    #[case("100.64.5.0/24", "tailnet's own")]
    #[case("96.0.0.0/4", "tailnet's own")]
    #[case("::/0", "loopback")]
    #[case("::/120", "loopback")]
    #[case("::ffff:10.0.0.0/104", "IPv4")]
    #[case("fe80::/64", "link-local")]
    #[case("ff02::/64", "multicast")]
    #[case("fd7a:115c:a1e0:1::/64", "tailnet's own")]
    #[case("64:ff9b::a00:0/104", "NAT64")]
    fn such_networks_are_not(#[case] text: &str, #[case] trouble: &str) {
        let error = sound(&nets(text)).unwrap_err().to_string();
        assert!(error.contains(trouble), "{error}");
    }

    #[rstest]
    #[case("10.244.1.0/24", "10.96.0.0/12", true)]
    #[case("10.96.1.0/24", "10.96.0.0/12", false)]
    #[case("10.0.0.0/8", "10.96.0.0/12", false)]
    #[case("10.244.1.0/24,fd00:1::/64", "10.96.0.0/12,fd00:1::/112", false)]
    #[case("10.244.1.0/24", "", true)]
    fn pods_and_services_have_networks_apart(
        #[case] local: &str,
        #[case] services: &str,
        #[case] is_fit: bool,
    ) {
        let network = Network {
            service_cidr: services.parse().unwrap(),
            ..Network::default()
        };
        assert_eq!(agrees(&nets(local), &network).is_ok(), is_fit);
    }

    #[rstest]
    #[case(None, "10.244.1.0/24", None)]
    #[case(None, "10.244.1.0/24,fd00:1::/64", None)]
    #[case(Some(true), "10.244.1.0/24,fd00:1::/64", None)]
    #[case(Some(true), "fd00:1::/64", None)]
    #[case(Some(false), "10.244.1.0/24", None)]
    #[case(Some(true), "10.244.1.0/24", Some("enableIPv6 is true"))]
    #[case(Some(false), "10.244.1.0/24,fd00:1::/64", Some("enableIPv6 is false"))]
    fn enable_ipv6_must_be_true_of_the_networks(
        #[case] enable_ipv6: Option<bool>,
        #[case] local: &str,
        #[case] trouble: Option<&str>,
    ) {
        let network = Network {
            enable_ipv6,
            ..Network::default()
        };
        match (agrees(&nets(local), &network), trouble) {
            (Ok(()), None) => {}
            (Err(error), Some(trouble)) => assert!(error.to_string().contains(trouble), "{error}"),
            (result, _) => panic!("{result:?}"),
        }
    }

    #[rstest]
    #[case("10.244.1.0/24", "10.244.0.0/16", true, true)]
    #[case("10.244.0.0/16", "10.244.0.0/16", true, false)]
    #[case("10.0.0.0/8", "10.244.0.0/16", false, false)]
    #[case("10.1.1.0/24", "10.244.0.0/16", false, false)]
    #[case("10.244.1.0/24,fd01::/64", "10.244.0.0/16,fd00::/56", false, false)]
    #[case("10.244.1.0/24,fd01::/64", "10.244.0.0/16", true, true)]
    fn a_nodes_network_is_a_part_of_the_clusters(
        #[case] local: &str,
        #[case] base: &str,
        #[case] is_within: bool,
        #[case] is_only_a_part: bool,
    ) {
        let (local, base) = (nets(local), nets(base));
        assert_eq!(within(&local, &base, "a test").is_ok(), is_within);
        assert_eq!(is_part(&local, &base, "a test").is_ok(), is_only_a_part);
    }

    #[rstest]
    #[case("10.244.1.0/24", "10.244.0.0/16", &[])]
    #[case("10.244.1.0/27", "10.244.0.0/16", &[])]
    #[case("10.244.1.0/28", "10.244.0.0/16", &["room for 13 pods"])]
    #[case("10.244.1.0/30", "10.244.0.0/16", &["room for 1 pods"])]
    #[case("10.244.1.0/24", "", &["IPv4 network is not known"])]
    #[case("10.244.1.0/24,fd00::/64", "10.244.0.0/16", &["IPv6 network is not known"])]
    #[case("10.244.1.0/24", "10.244.0.0/16,fd00::/56", &["this node has none of it"])]
    fn what_is_hardly_meant_is_said(
        #[case] local: &str,
        #[case] base: &str,
        #[case] expected: &[&str],
    ) {
        let found = warnings(&nets(local), &nets(base));
        assert_eq!(found.len(), expected.len(), "{found:?}");
        for (found, expected) in found.iter().zip(expected) {
            assert!(found.contains(expected), "{found}");
        }
    }
}
