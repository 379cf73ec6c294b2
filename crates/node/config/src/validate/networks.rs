//! Pod, cluster and Service CIDRs: usable, nested where required, and otherwise disjoint.

use std::collections::BTreeMap;

use ipnet::IpNet;

use crate::path::KeyPath;
use crate::problem::Problem;
use crate::schema::Network;
use crate::values::{Networks, PerNode};

/// RFC 8200, section 5.
const MIN_IPV6_MTU_BYTES: u32 = 1280;

/// A CIDR and its key.
#[derive(Clone)]
pub(super) struct Named {
    pub(super) key: KeyPath,
    /// The item if the key has a list.
    pub(super) location: KeyPath,
    pub(super) net: IpNet,
}

impl Named {
    pub(super) fn problem(&self, text: String) -> Problem {
        Problem::new(self.key.clone(), text).at(self.location.clone())
    }
}

pub(super) fn named(key: &KeyPath, networks: &Networks) -> Vec<Named> {
    let all = networks.0.iter().enumerate();
    let named = all.map(|(index, net)| Named {
        key: key.clone(),
        location: key.item(index),
        net: *net,
    });
    named.collect()
}

/// The configured pod CIDRs of each node.
pub(super) fn of_nodes(network: &Network) -> Vec<Named> {
    let nodes = KeyPath::from("network.podCIDR.nodes");
    let pods = &network.pod_cidr;
    let named = |(node, networks): (&String, &Networks)| named(&nodes.key(node), networks);
    pods.nodes.iter().flat_map(named).collect()
}

pub(super) fn local(network: &Network) -> Vec<Named> {
    let key = "network.podCIDR.nodeLocal".into();
    named(&key, &network.pod_cidr.node_local)
}

pub(super) fn base(network: &Network) -> Vec<Named> {
    named(&"network.podCIDR.base".into(), &network.pod_cidr.base)
}

pub(super) fn problems(network: &Network) -> Vec<Problem> {
    let (local, nodes, base) = (local(network), of_nodes(network), base(network));
    let services = named(&"network.serviceCIDR".into(), &network.service_cidr);
    let parts: Vec<&Named> = local.iter().chain(&nodes).collect();

    let mut problems = Vec::new();
    for named in parts.iter().copied().chain(&base) {
        problems.extend(unusable(named).or_else(|| too_small(named)));
    }
    problems.extend(services.iter().filter_map(unusable));
    let of_each_node = by_key(&nodes);
    let sets = [&local, &base, &services]
        .into_iter()
        .chain(of_each_node.values());
    problems.extend(sets.filter_map(|set| two_of_a_family(set.as_slice())));
    problems.extend(parts.iter().filter_map(|part| outside(part, &base)));
    problems.extend(overlaps_of_nodes(&nodes));
    problems.extend(overlaps_with_services(&services, &base, &parts));
    problems.extend(sizes(network, &base));
    problems.extend(node_names(network));
    let pods: Vec<&Named> = parts.into_iter().chain(&base).collect();
    problems.extend(ipv6(network, &pods));
    problems
}

fn by_key(nodes: &[Named]) -> BTreeMap<&KeyPath, Vec<Named>> {
    let mut sets: BTreeMap<&KeyPath, Vec<Named>> = BTreeMap::new();
    for named in nodes {
        sets.entry(&named.key).or_default().push(named.clone());
    }
    sets
}

fn unusable(named: &Named) -> Option<Problem> {
    let net = named.net;
    let special = net::special_purpose(&net)?;
    Some(named.problem(format!(
        "{net} can't be used, {} is {}: use a private one, such as 10.244.0.0/16 or \
         fd00:10:244::/56",
        special.net, special.purpose
    )))
}

fn too_small(named: &Named) -> Option<Problem> {
    let net = named.net;
    let (smallest, longest) = if is_ipv6(net) {
        ("/126", 126)
    } else {
        ("/30", 30)
    };
    (net.prefix_len() > longest).then(|| {
        named.problem(format!(
            "{net} is too small for a gateway and a pod: use {smallest} or larger"
        ))
    })
}

fn two_of_a_family(set: &[Named]) -> Option<Problem> {
    let is_second = |(index, named): &(usize, &Named)| {
        let before = set[..*index].iter();
        before
            .clone()
            .any(|other| is_ipv6(other.net) == is_ipv6(named.net))
    };
    let (_, second) = set.iter().enumerate().find(is_second)?;
    Some(second.problem(format!(
        "{} is a second {} CIDR: keep one that is large enough",
        second.net,
        family(second.net)
    )))
}

fn outside(part: &Named, base: &[Named]) -> Option<Problem> {
    let net = part.net;
    if base.is_empty() || base.iter().any(|base| base.net.contains(&net)) {
        return None;
    }
    let of_family = base.iter().find(|base| is_ipv6(base.net) == is_ipv6(net));
    Some(part.problem(match of_family {
        Some(base) => format!(
            "{net} is outside network.podCIDR.base {}: use a part of it, or correct base",
            base.net
        ),
        None => format!(
            "{net} is {}, and network.podCIDR.base has no CIDR of that family: add the \
             cluster CIDR",
            family(net)
        ),
    }))
}

fn overlaps_of_nodes(nodes: &[Named]) -> Vec<Problem> {
    let mut sorted: Vec<&Named> = nodes.iter().collect();
    // A CIDR sorts after those that contain it.
    sorted.sort_by_key(|named| (named.net.network(), named.net.prefix_len()));
    let mut problems = Vec::new();
    let mut widest: Option<&Named> = None;
    for named in sorted {
        match widest {
            Some(other) if overlap(other.net, named.net) => {
                // Two CIDRs of one node are reported already.
                if other.key != named.key {
                    problems.push(named.problem(format!(
                        "{} overlaps with {} ({}): pods of one of them would be unreachable, give \
                         each node its own",
                        named.net, other.key, other.net
                    )));
                }
            }
            _ => widest = Some(named),
        }
    }
    problems
}

fn overlaps_with_services(services: &[Named], base: &[Named], parts: &[&Named]) -> Vec<Problem> {
    let mut problems = Vec::new();
    for service in services {
        let overlaps = |pods: &&Named| overlap(pods.net, service.net);
        let first = base.iter().find(overlaps);
        let first = first.or_else(|| parts.iter().copied().find(overlaps));
        if let Some(pods) = first {
            problems.push(service.problem(format!(
                "{} overlaps with {} {}: Services and pods need separate CIDRs, set both to the CIDRs \
                 of the cluster",
                service.net, pods.key, pods.net
            )));
        }
    }
    problems
}

/// Prefix lengths matter only if they are set or used.
fn sizes(network: &Network, base: &[Named]) -> Vec<Problem> {
    let (set, default) = (network.pod_cidr.per_node, PerNode::default());
    let too_large = base.iter().filter_map(|base| {
        let (length, standard) = match base.net {
            IpNet::V4(_) => (set.ipv4, default.ipv4),
            IpNet::V6(_) => (set.ipv6, default.ipv6),
        };
        let counts = length != standard || network.pod_cidr.allow_guess;
        (counts && length < base.net.prefix_len()).then(|| {
            let text = format!(
                "/{length} is larger than the cluster CIDR {}: use /{} or longer",
                base.net,
                base.net.prefix_len()
            );
            Problem::new("network.podCIDR.perNode", text)
                .at("network.podCIDR.perNode")
                .at(base.location.clone())
                .at(base.key.clone())
        })
    });
    too_large.collect()
}

fn node_names(network: &Network) -> Vec<Problem> {
    let nodes = KeyPath::from("network.podCIDR.nodes");
    let mut problems = Vec::new();
    for (name, networks) in &network.pod_cidr.nodes {
        if !is_node_name(name) {
            problems.push(Problem::new(
                nodes.key(name),
                "not a node name: use lower-case letters, digits, \"-\" and \".\"; see kubectl get \
                 nodes",
            ));
        } else if networks.0.is_empty() {
            problems.push(Problem::new(
                nodes.key(name),
                "has no CIDR: add one, or remove the node",
            ));
        }
    }
    problems
}

/// RFC 1123, as Kubernetes requires.
pub(super) fn is_node_name(name: &str) -> bool {
    let is_lower = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit();
    name.len() <= 253
        && name.split('.').all(|label| {
            label.len() <= 63
                && label.starts_with(is_lower)
                && label.ends_with(is_lower)
                && label.chars().all(|c| is_lower(c) || c == '-')
        })
}

fn ipv6(network: &Network, pods: &[&Named]) -> Vec<Problem> {
    let first = pods.iter().find(|named| is_ipv6(named.net));
    let mut problems = Vec::new();
    match (network.enable_ipv6, first) {
        (Some(true), None) if !pods.is_empty() => problems.push(Problem::new(
            "network.enableIPv6",
            "true, but no IPv6 pod CIDR is configured: add one to network.podCIDR, or remove the key",
        )),
        (Some(false), Some(named)) => problems.push(Problem::new(
            "network.enableIPv6",
            format!(
                "false, but {} has {}: remove one of them",
                named.key, named.net
            ),
        )),
        _ => {}
    }
    let uses_ipv6 = first.is_some() || network.enable_ipv6 == Some(true);
    if uses_ipv6 && network.mtu < MIN_IPV6_MTU_BYTES {
        problems.push(Problem::new(
            "network.mtu",
            format!(
                "{} is too small for IPv6: use {MIN_IPV6_MTU_BYTES} or more",
                network.mtu
            ),
        ));
    }
    problems
}

pub(super) fn overlap(one: IpNet, other: IpNet) -> bool {
    one.contains(&other) || other.contains(&one)
}

pub(super) fn is_ipv6(net: IpNet) -> bool {
    matches!(net, IpNet::V6(_))
}

fn family(net: IpNet) -> &'static str {
    if is_ipv6(net) { "IPv6" } else { "IPv4" }
}
