//! Which networks of other members of the mesh are pods'. A member says what it likes: its word
//! counts only for networks that could be a node's, and never against this node or one that was
//! there before it.
//!
//! tailscaled sends packets by the smallest network that it was told of, whatever our routes say. So
//! somebody's larger network around another's takes nothing, and is refused rather than the other; a
//! smaller one in it takes packets, which must not leave then. Which of two is the right one, is
//! decided by what was known before (`Rank`).

use std::collections::HashMap;
use std::fmt;
use std::net::IpAddr;

use ipnet::IpNet;

use crate::peers::ownership::{Owner, Ownership};
use crate::peers::prefix_map::PrefixMap;
use node_core::OtherNodes;
use node_core::cidr::overlap;
use node_core::routing::MAX_NODE_ROUTES;

/// So many parts of other nodes' networks are refused one by one, of each family: each is a route on this
/// node.
const MOST_STOLEN: usize = 1024;

/// What another member of the mesh serves, as it was told.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Advertisement {
    /// Which member it is, by what the server calls it: names are of its own choice.
    pub id: String,
    /// The member's name.
    pub node: String,
    /// Its tags.
    pub tags: Vec<String>,
    /// Its addresses in the mesh.
    pub addresses: Vec<IpAddr>,
    /// The networks that packets are sent to it for.
    pub served: Vec<IpNet>,
}

/// By what claims are judged.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PeerPolicy<'a> {
    /// The tag that every node has.
    pub tag: String,
    /// The cluster's networks for pods.
    pub base: Vec<IpNet>,
    /// This node's.
    pub local: Vec<IpNet>,
    /// The other nodes that Kubernetes knows, if it is asked and believed.
    pub nodes: Option<OtherNodes<'a>>,
    /// The networks that counted before, the oldest first.
    pub known: &'a [IpNet],
    /// The cluster's networks for services.
    pub services: Vec<IpNet>,
    /// The networks of this node's links, each with the link's name.
    pub links: Vec<(String, IpNet)>,
}

/// A network that leads to another node.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct AcceptedRoute {
    /// The network.
    pub network: IpNet,
    /// The node's name.
    pub node: String,
    /// Which one it is, as [`Advertisement::id`] has it.
    pub id: String,
}

/// A claim that doesn't count.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rejection {
    /// The network.
    pub network: IpNet,
    /// Who claims it.
    pub node: String,
    /// LoginReason it doesn't count.
    pub reason: Reason,
}

/// LoginReason a claim doesn't count.
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
    /// It overlaps a network of this Node, which is another member.
    Anothers(String, IpNet),
    /// It is one of so many that are beyond what a node can have.
    Beyond(usize),
    /// It is of the cluster's, and who claims it has not this tag, which nodes have.
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

/// What was made of all claims.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PeerRoutes {
    /// Networks that lead to other nodes, sorted.
    pub remotes: Vec<AcceptedRoute>,
    /// Claims of nodes that don't count.
    pub rejected: Vec<Rejection>,
    /// Networks beyond what a member can have, which nobody looked at.
    pub beyond: Vec<IpNet>,
}

impl PeerRoutes {
    /// Parts of other nodes' networks that somebody else serves. tailscaled sends packets by the
    /// smallest network that it was told of, whatever our routes say: so these must not get to it. If
    /// there are very many, they are taken together to larger parts.
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
            while parts.len() > MOST_STOLEN && widen(&mut parts) {}
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

/// Judges what other members say. What is no pod's network at all, because it is outside the
/// cluster's, is somebody else's business and left out.
pub fn select_peer_routes(claims: &[Advertisement], trust: &PeerPolicy<'_>) -> PeerRoutes {
    let (nodes, others): (Vec<&Advertisement>, Vec<&Advertisement>) = claims
        .iter()
        .partition(|claim| claim.tags.contains(&trust.tag));
    let mut peer_routes = PeerRoutes::default();
    for claim in others {
        // A larger one is a way to somewhere else, and takes nothing from pods.
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
    let select_peer_routes = RouteSelector::new(trust);
    let all = |claim| networks(claim).map(move |network| (network, claim));
    let mut found: Vec<(IpNet, &Advertisement)> = nodes.into_iter().flat_map(all).collect();
    found.sort_by_cached_key(|(network, claim)| {
        let member = (claim.node.as_str(), claim.id.as_str());
        (select_peer_routes.rank(network), member)
    });
    found.dedup_by(|one, other| one.0 == other.0 && one.1.id == other.1.id);
    // How many of each member's were looked at, and what there is beyond.
    let mut counts: HashMap<&str, usize> = HashMap::new();
    let mut beyond: Vec<(IpNet, &Advertisement, usize)> = Vec::new();
    for (network, claim) in found {
        let count = counts.entry(&claim.id).or_default();
        if *count >= MAX_NODE_ROUTES {
            if select_peer_routes.is_in_base(&network) {
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
        match select_peer_routes.verdict(network, claim, &peer_routes.remotes) {
            ConditionState::Foreign => continue,
            ConditionState::Counts => peer_routes.remotes.push(remote()),
            ConditionState::RefusedActions(reason) => peer_routes.rejected.push(Rejection {
                network,
                node: claim.node.clone(),
                reason,
            }),
        }
        *count += 1;
    }
    let told = beyond.into_iter().map(|(network, claim, count)| Rejection {
        network,
        node: claim.node.clone(),
        reason: Reason::Beyond(count),
    });
    peer_routes.rejected.extend(told);
    peer_routes.remotes.sort();
    peer_routes
}

fn networks(claim: &Advertisement) -> impl Iterator<Item = IpNet> {
    claim.served.iter().map(IpNet::trunc)
}

/// In which order networks are judged: what comes later counts only where it overlaps nothing of
/// another member that came before.
///
/// What the cluster gave a Node comes first. Then what counted before, the oldest first: whoever comes
/// into a node's network or around it comes later. Of networks that are all new to this node, those come
/// first that have the size of its own, because nodes' networks are nearly always alike; then larger
/// ones, and then smaller ones, which are parts of others or addresses of pods.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Rank {
    is_unassigned: bool,
    age: usize,
    is_smaller: bool,
    difference: u8,
    network: IpNet,
}

enum ConditionState {
    Counts,
    Foreign,
    RefusedActions(Reason),
}

/// What claims are judged by, in a form that many can be judged by.
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
        // A node has one network of a family. Without any, larger ones come first.
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

    fn verdict(
        &self,
        network: IpNet,
        claim: &Advertisement,
        accepted: &[AcceptedRoute],
    ) -> ConditionState {
        let trust = self.trust;
        if let Some(ours) = trust.local.iter().find(|local| overlap(local, &network)) {
            return ConditionState::RefusedActions(Reason::Ours(*ours));
        }
        if let Some(base) = trust.base.iter().find(|base| network.contains(*base)) {
            return ConditionState::RefusedActions(Reason::WholeCluster(*base));
        }
        let is_in_base = self.is_in_base(&network);
        let owners = self.owners.as_ref();
        let whose = owners.map(|owners| owners.whose(&network, &claim.addresses, is_in_base));
        match whose {
            Some(Owner::Claimant) => {}
            Some(Owner::Other(name, theirs)) => {
                return ConditionState::RefusedActions(Reason::Anothers(name, theirs));
            }
            Some(Owner::None) if is_in_base => {
                return ConditionState::RefusedActions(Reason::Unowned);
            }
            None if is_in_base => {}
            Some(Owner::None) | None => return ConditionState::Foreign,
        }
        if let Some(services) = trust.services.iter().find(|net| overlap(net, &network)) {
            return ConditionState::RefusedActions(Reason::Services(*services));
        }
        // What the base says to be pods' is theirs, also where the network of a link is so large that
        // it has the base in it.
        let is_links = |(_, net): &&(String, IpNet)| !is_in_base && overlap(net, &network);
        if let Some((link, net)) = trust.links.iter().find(is_links) {
            return ConditionState::RefusedActions(Reason::Link(link.clone(), *net));
        }
        let is_anothers =
            |other: &&AcceptedRoute| other.id != claim.id && overlap(&other.network, &network);
        match accepted.iter().find(is_anothers) {
            Some(other) => ConditionState::RefusedActions(Reason::Overlaps(other.clone())),
            None => ConditionState::Counts,
        }
    }
}

#[cfg(test)]
mod tests;
