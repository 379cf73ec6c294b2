//! Validates pod CIDRs of any source.

use std::net::IpAddr;

use ipnet::IpNet;

use node_config::{Network, Networks};

/// Longer prefixes cause a warning.
const SMALL_IPV4: u8 = 27;

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum InvalidCidrs {
    #[error("{0}")]
    Syntax(String),
    #[error("{0} and {1} are of one IP family: there is one network per family")]
    SameFamily(IpNet, IpNet),
    /// No room for network address, gateway, a pod and broadcast.
    #[error("{0} is too small: it needs 4 addresses at least")]
    TooSmall(IpNet),
    #[error("{net} overlaps {reserved}, which is {purpose}")]
    Reserved {
        net: IpNet,
        reserved: IpNet,
        purpose: &'static str,
    },
    #[error("{net} overlaps network.serviceCIDR {service}: pods and services need networks apart")]
    Service { net: IpNet, service: IpNet },
    #[error("{net} is not in the cluster's network {base} (from {origin})")]
    OutsideBase {
        net: IpNet,
        base: IpNet,
        origin: String,
    },
    #[error("{net} is the whole cluster's network (from {origin}), not this node's")]
    IsBase { net: IpNet, origin: String },
    #[error("{0} has no IPv6 network, though network.enableIPv6 is true")]
    MissingIpv6(Networks),
    #[error("{0} is IPv6, though network.enableIPv6 is false")]
    UnexpectedIpv6(IpNet),
    #[error("network.podCIDR.perNode /{per_node} does not fit into the cluster's network {base}")]
    PerNode { per_node: u8, base: IpNet },
}

pub(super) fn is_same_family(a: &IpNet, b: &IpNet) -> bool {
    a.addr().is_ipv4() == b.addr().is_ipv4()
}

fn overlaps(a: &IpNet, b: &IpNet) -> bool {
    a.contains(b) || b.contains(a)
}

/// Checks size, family and special-purpose ranges.
pub(super) fn usable(nets: &[IpNet]) -> Result<(), InvalidCidrs> {
    for (nth, net) in nets.iter().enumerate() {
        if let Some(other) = nets[..nth].iter().find(|other| is_same_family(other, net)) {
            return Err(InvalidCidrs::SameFamily(*other, *net));
        }
        if net.max_prefix_len() - net.prefix_len() < 2 {
            return Err(InvalidCidrs::TooSmall(*net));
        }
        if let Some(special) = net::special_purpose(net) {
            return Err(InvalidCidrs::Reserved {
                net: *net,
                reserved: special.net,
                purpose: special.purpose,
            });
        }
    }
    Ok(())
}

pub(super) fn disjoint_from_services(
    nets: &[IpNet],
    network: &Network,
) -> Result<(), InvalidCidrs> {
    for net in nets {
        let Networks(services) = &network.service_cidr;
        if let Some(service) = services.iter().find(|service| overlaps(service, net)) {
            return Err(InvalidCidrs::Service {
                net: *net,
                service: *service,
            });
        }
    }
    Ok(())
}

/// Checks `serviceCIDR` and `enableIPv6`.
pub(super) fn matches_config(local: &[IpNet], network: &Network) -> Result<(), InvalidCidrs> {
    disjoint_from_services(local, network)?;
    let ipv6 = local.iter().find(|net| net.addr().is_ipv6());
    match (network.enable_ipv6, ipv6) {
        (Some(true), None) => Err(InvalidCidrs::MissingIpv6(Networks(local.to_vec()))),
        (Some(false), Some(net)) => Err(InvalidCidrs::UnexpectedIpv6(*net)),
        _ => Ok(()),
    }
}

/// Checks that pod CIDRs are within the cluster CIDR of their family, if it is known.
pub(super) fn within(local: &[IpNet], base: &[IpNet], origin: &str) -> Result<(), InvalidCidrs> {
    for (net, base) in pairs(local, base) {
        if !base.contains(net) {
            return Err(InvalidCidrs::OutsideBase {
                net: *net,
                base: *base,
                origin: origin.to_owned(),
            });
        }
    }
    Ok(())
}

/// Like [`within`], but a pod CIDR must not be the whole cluster CIDR.
pub(super) fn is_part(local: &[IpNet], base: &[IpNet], origin: &str) -> Result<(), InvalidCidrs> {
    within(local, base, origin)?;
    match pairs(local, base).find(|(net, base)| net == base) {
        None => Ok(()),
        Some((net, _)) => Err(InvalidCidrs::IsBase {
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

/// Values that are allowed but probably a mistake.
pub(super) fn warnings(local: &[IpNet], base: &[IpNet]) -> Vec<String> {
    let has =
        |nets: &[IpNet], is_kind: fn(&IpAddr) -> bool| nets.iter().any(|net| is_kind(&net.addr()));
    let mut warnings = Vec::new();
    for net in local {
        // Network address, gateway and broadcast are not available to pods.
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
    fn such_networks_are_sound(#[case] text: &str) {
        assert_eq!(usable(&nets(text)), Ok(()));
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
    fn such_networks_are_not(#[case] text: &str, #[case] problem: &str) {
        let error = usable(&nets(text)).unwrap_err().to_string();
        assert!(error.contains(problem), "{error}");
    }

    #[rstest]
    #[case("10.244.1.0/24", "10.96.0.0/12", true)]
    #[case("10.96.1.0/24", "10.96.0.0/12", false)]
    #[case("10.0.0.0/8", "10.96.0.0/12", false)]
    #[case("10.244.1.0/24,fd00:1::/64", "10.96.0.0/12,fd00:1::/112", false)]
    #[case("10.244.1.0/24", "", true)]
    fn pod_and_service_cidrs_are_disjoint(
        #[case] local: &str,
        #[case] services: &str,
        #[case] is_fit: bool,
    ) {
        let network = Network {
            service_cidr: services.parse().unwrap(),
            ..Network::default()
        };
        assert_eq!(matches_config(&nets(local), &network).is_ok(), is_fit);
    }

    #[rstest]
    #[case(None, "10.244.1.0/24", None)]
    #[case(None, "10.244.1.0/24,fd00:1::/64", None)]
    #[case(Some(true), "10.244.1.0/24,fd00:1::/64", None)]
    #[case(Some(true), "fd00:1::/64", None)]
    #[case(Some(false), "10.244.1.0/24", None)]
    #[case(Some(true), "10.244.1.0/24", Some("enableIPv6 is true"))]
    #[case(Some(false), "10.244.1.0/24,fd00:1::/64", Some("enableIPv6 is false"))]
    fn enable_ipv6_must_match_the_pod_cidrs(
        #[case] enable_ipv6: Option<bool>,
        #[case] local: &str,
        #[case] problem: Option<&str>,
    ) {
        let network = Network {
            enable_ipv6,
            ..Network::default()
        };
        match (matches_config(&nets(local), &network), problem) {
            (Ok(()), None) => {}
            (Err(error), Some(problem)) => assert!(error.to_string().contains(problem), "{error}"),
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
    fn a_pod_cidr_is_part_of_the_cluster_cidr(
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
    fn a_likely_mistake_is_a_warning(
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
