//! Selects the peer routes that lead to pods. A peer advertises what it likes: a route is accepted only
//! if it can be a node's, and never against this node or a peer that was there before.
//!
//! tailscaled sends a packet to the peer with the most specific prefix, whatever our routes are. So a
//! larger prefix around another peer's takes nothing and is rejected; a smaller one inside shadows it,
//! and packets to it must be dropped. `Rank` decides between overlapping routes.

use std::collections::HashMap;
use std::fmt;
use std::net::IpAddr;

use ipnet::IpNet;

use crate::peers::ownership::{Owner, Ownership};
use crate::peers::prefix_map::PrefixMap;
use node_core::OtherNodes;
use node_core::cidr::overlap;
use node_core::routing::MAX_NODE_ROUTES;

/// Shadowed prefixes per family, each an unreachable route on this node.
const MAX_SHADOWED: usize = 1024;

/// The routes that a peer serves.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Advertisement {
    /// Headscale's ID: a peer chooses its own name.
    pub id: String,
    pub node: String,
    pub tags: Vec<String>,
    pub addresses: Vec<IpAddr>,
    pub served: Vec<IpNet>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PeerPolicy<'a> {
    /// The tag that every node has.
    pub tag: String,
    /// The cluster's networks for pods.
    pub base: Vec<IpNet>,
    /// This node's.
    pub local: Vec<IpNet>,
    /// The other Nodes, with `kubernetes.strictPeers`.
    pub nodes: Option<OtherNodes<'a>>,
    /// Routes that were accepted before, the oldest first.
    pub known: &'a [IpNet],
    /// The cluster's networks for services.
    pub services: Vec<IpNet>,
    /// The networks of this node's links, each with the link's name.
    pub links: Vec<(String, IpNet)>,
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct AcceptedRoute {
    /// The network.
    pub network: IpNet,
    /// The node's name.
    pub node: String,
    /// [`Advertisement::id`].
    pub id: String,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rejection {
    /// The network.
    pub network: IpNet,
    pub node: String,
    pub reason: Reason,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reason {
    /// It overlaps this node's own network.
    Ours(IpNet),
    /// It is all of the cluster's, or more.
    WholeCluster(IpNet),
    /// It overlaps what another node has.
    Overlaps(AcceptedRoute),
    /// No Node object has it.
    Unowned,
    /// It overlaps a pod CIDR of this Node, which is another peer.
    Anothers(String, IpNet),
    /// The peer advertises more routes than a node can have.
    Beyond(usize),
    /// It is in the cluster CIDR, and the peer lacks the node tag.
    Untagged(String),
    /// It overlaps a network for services.
    Services(IpNet),
    /// It overlaps the network of a link of this node.
    Link(String, IpNet),
}

impl fmt::Display for Rejection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { network, node, .. } = self;
        write!(f, "{node} advertises {network}, ")?;
        match &self.reason {
            Reason::Ours(ours) => write!(f, "which overlaps this node's {ours}"),
            Reason::WholeCluster(base) => write!(f, "which covers the cluster CIDR {base}"),
            Reason::Overlaps(other) => {
                let is_part = other.network.contains(network);
                let how = if is_part { "is part of" } else { "overlaps" };
                write!(f, "which {how} {}'s {}", other.node, other.network)
            }
            Reason::Unowned => f.write_str("which no Node object has"),
            Reason::Anothers(name, theirs) => {
                let by = "by its annotation headcni.io/tailnet-ips";
                write!(
                    f,
                    "which overlaps {theirs} of Node {name}, another peer {by}"
                )
            }
            Reason::Beyond(count) => write!(
                f,
                "one of {count} above the limit of {MAX_NODE_ROUTES} routes per node"
            ),
            Reason::Untagged(tag) => write!(f, "but lacks the node tag {tag}"),
            Reason::Services(services) => write!(f, "which overlaps the service CIDR {services}"),
            Reason::Link(link, theirs) => write!(
                f,
                "which overlaps {theirs} of this node's interface {link}, and is not in network.podCIDR.base"
            ),
        }
    }
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PeerRoutes {
    /// Accepted routes, sorted.
    pub remotes: Vec<AcceptedRoute>,
    pub rejected: Vec<Rejection>,
    /// Routes above the limit per node, which were not examined.
    pub beyond: Vec<IpNet>,
}

impl PeerRoutes {
    /// Shadowed prefixes: parts of accepted routes that another peer serves. tailscaled would send their
    /// packets to that peer. Very many are aggregated to larger parts.
    pub fn shadowed(&self) -> Vec<IpNet> {
        let remotes = self.remotes.iter().map(|remote| remote.network);
        let remotes: PrefixMap<IpNet> = remotes.map(|network| (network, network)).collect();
        let refused = self.rejected.iter().map(|refusal| refusal.network);
        let refused = refused.chain(self.beyond.iter().copied());
        // Each with the size of the smallest network that it is part of.
        let of_whose = |network: IpNet| {
            let around = remotes.of(&network).filter(|around| **around != network);
            Some((network, around.last()?.prefix_len()))
        };
        let shadowed = refused.filter_map(of_whose);
        let families: (Vec<_>, Vec<_>) =
            shadowed.partition(|(network, _)| network.addr().is_ipv4());
        let mut all = Vec::new();
        for mut parts in [families.0, families.1] {
            parts.sort();
            parts.dedup();
            while parts.len() > MAX_SHADOWED && widen(&mut parts) {}
            all.extend(parts.into_iter().map(|(network, _)| network));
        }
        all
    }
}

/// Doubles the smallest of these parts that are less than half of the whole; whether there are any.
fn widen(parts: &mut Vec<(IpNet, u8)>) -> bool {
    let can_widen = |(part, whole): &&(IpNet, u8)| part.prefix_len() > whole + 1;
    let sizes = parts.iter().filter(can_widen);
    let Some(smallest) = sizes.map(|(part, _)| part.prefix_len()).max() else {
        return false;
    };
    for part in parts.iter_mut() {
        if part.0.prefix_len() == smallest && can_widen(&&*part) {
            part.0 = part.0.supernet().unwrap_or(part.0);
        }
    }
    parts.sort();
    parts.dedup();
    true
}

/// Routes outside the cluster CIDR that no Node has are ignored: they are the user's.
pub fn select_peer_routes(claims: &[Advertisement], trust: &PeerPolicy<'_>) -> PeerRoutes {
    let (nodes, others): (Vec<&Advertisement>, Vec<&Advertisement>) = claims
        .iter()
        .partition(|claim| claim.tags.contains(&trust.tag));
    let mut peer_routes = PeerRoutes::default();
    for claim in others {
        // A larger prefix is a subnet router's and takes nothing from pods.
        let is_pods = |network: &IpNet| trust.base.iter().any(|base| base.contains(network));
        let mut served = networks(claim).filter(is_pods);
        for network in served.by_ref().take(MAX_NODE_ROUTES) {
            peer_routes.rejected.push(Rejection {
                network,
                node: claim.node.clone(),
                reason: Reason::Untagged(trust.tag.clone()),
            });
        }
        peer_routes.beyond.extend(served);
    }
    let selector = RouteSelector::new(trust);
    let all = |claim| networks(claim).map(move |network| (network, claim));
    let mut found: Vec<(IpNet, &Advertisement)> = nodes.into_iter().flat_map(all).collect();
    found.sort_by_cached_key(|(network, claim)| {
        let member = (claim.node.as_str(), claim.id.as_str());
        (selector.rank(network), member)
    });
    found.dedup_by(|one, other| one.0 == other.0 && one.1.id == other.1.id);
    // Routes per peer, and those above the limit.
    let mut counts: HashMap<&str, usize> = HashMap::new();
    let mut beyond: Vec<(IpNet, &Advertisement, usize)> = Vec::new();
    for (network, claim) in found {
        let count = counts.entry(&claim.id).or_default();
        if *count >= MAX_NODE_ROUTES {
            if selector.is_in_base(&network) {
                peer_routes.beyond.push(network);
                match beyond.iter_mut().find(|(_, other, _)| other.id == claim.id) {
                    Some((_, _, count)) => *count += 1,
                    None => beyond.push((network, claim, 1)),
                }
            }
            continue;
        }
        let remote = || AcceptedRoute {
            network,
            node: claim.node.clone(),
            id: claim.id.clone(),
        };
        match selector.decide(network, claim, &peer_routes.remotes) {
            Decision::Ignore => continue,
            Decision::Accept => peer_routes.remotes.push(remote()),
            Decision::Reject(reason) => peer_routes.rejected.push(Rejection {
                network,
                node: claim.node.clone(),
                reason,
            }),
        }
        *count += 1;
    }
    let above_limit = beyond.into_iter().map(|(network, claim, count)| Rejection {
        network,
        node: claim.node.clone(),
        reason: Reason::Beyond(count),
    });
    peer_routes.rejected.extend(above_limit);
    peer_routes.remotes.sort();
    peer_routes
}

fn networks(claim: &Advertisement) -> impl Iterator<Item = IpNet> {
    claim.served.iter().map(IpNet::trunc)
}

/// The order of selection: a later route is accepted only if it overlaps no earlier one of another peer.
///
/// Routes that Kubernetes assigned come first, then routes that were accepted before, the oldest first.
/// Of new routes, those of the size of our own pod CIDR come first, because pod CIDRs nearly always have
/// one size; then larger ones; then smaller ones, which are parts of others or addresses of pods.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Rank {
    is_unassigned: bool,
    age: usize,
    is_smaller: bool,
    difference: u8,
    network: IpNet,
}

enum Decision {
    Accept,
    Ignore,
    Reject(Reason),
}

/// A [`PeerPolicy`] with indexes.
struct RouteSelector<'a> {
    trust: &'a PeerPolicy<'a>,
    owners: Option<Ownership<'a>>,
    ages: HashMap<IpNet, usize>,
}

impl<'a> RouteSelector<'a> {
    fn new(trust: &'a PeerPolicy<'a>) -> Self {
        let known = trust.known.iter().enumerate();
        Self {
            trust,
            owners: trust.nodes.as_ref().map(Ownership::new),
            ages: known.map(|(age, network)| (*network, age)).collect(),
        }
    }

    fn rank(&self, network: &IpNet) -> Rank {
        let is_kind = |ours: &&IpNet| ours.addr().is_ipv4() == network.addr().is_ipv4();
        let ours = self.trust.local.iter().filter(is_kind);
        let size = network.prefix_len();
        // A node has one pod CIDR per family. Without any, larger prefixes come first.
        let own = ours.map(IpNet::prefix_len).next().unwrap_or_default();
        let owners = self.owners.as_ref();
        Rank {
            is_unassigned: !owners.is_some_and(|owners| owners.is_assigned(network)),
            age: self.ages.get(network).copied().unwrap_or(usize::MAX),
            is_smaller: size > own,
            difference: size.abs_diff(own),
            network: *network,
        }
    }

    fn is_in_base(&self, network: &IpNet) -> bool {
        self.trust.base.iter().any(|base| base.contains(network))
    }

    fn decide(
        &self,
        network: IpNet,
        claim: &Advertisement,
        accepted: &[AcceptedRoute],
    ) -> Decision {
        let trust = self.trust;
        if let Some(ours) = trust.local.iter().find(|local| overlap(local, &network)) {
            return Decision::Reject(Reason::Ours(*ours));
        }
        if let Some(base) = trust.base.iter().find(|base| network.contains(*base)) {
            return Decision::Reject(Reason::WholeCluster(*base));
        }
        let is_in_base = self.is_in_base(&network);
        let owners = self.owners.as_ref();
        let whose = owners.map(|owners| owners.whose(&network, &claim.addresses, is_in_base));
        match whose {
            Some(Owner::Claimant) => {}
            Some(Owner::Other(name, theirs)) => {
                return Decision::Reject(Reason::Anothers(name, theirs));
            }
            Some(Owner::None) if is_in_base => {
                return Decision::Reject(Reason::Unowned);
            }
            None if is_in_base => {}
            Some(Owner::None) | None => return Decision::Ignore,
        }
        if let Some(services) = trust.services.iter().find(|net| overlap(net, &network)) {
            return Decision::Reject(Reason::Services(*services));
        }
        // A prefix in the cluster CIDR is pods', even if an interface's prefix contains the cluster CIDR.
        let is_links = |(_, net): &&(String, IpNet)| !is_in_base && overlap(net, &network);
        if let Some((link, net)) = trust.links.iter().find(is_links) {
            return Decision::Reject(Reason::Link(link.clone(), *net));
        }
        let is_anothers =
            |other: &&AcceptedRoute| other.id != claim.id && overlap(&other.network, &network);
        match accepted.iter().find(is_anothers) {
            Some(other) => Decision::Reject(Reason::Overlaps(other.clone())),
            None => Decision::Accept,
        }
    }
}

#[cfg(test)]
mod tests;
