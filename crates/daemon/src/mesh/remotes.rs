//! Which networks of other members of the mesh are pods'. A member says what it likes: its word
//! counts only for networks that could be a node's, and never against this node or one that was
//! there before it.

use std::fmt;

use ipnet::IpNet;

use crate::kubernetes::Owned;

/// What another member of the mesh serves, as it was told.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Claim {
    /// Which member it is, by what the server calls it: names are of its own choice.
    pub id: String,
    /// The member's name.
    pub node: String,
    /// Its tags.
    pub tags: Vec<String>,
    /// The networks that packets are sent to it for.
    pub served: Vec<IpNet>,
}

/// By what claims are judged.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Trust {
    /// The tag that every node has.
    pub tag: String,
    /// The cluster's networks for pods.
    pub base: Vec<IpNet>,
    /// This node's.
    pub local: Vec<IpNet>,
    /// The networks that Kubernetes knows other nodes to have, if it is asked and believed.
    pub owned: Option<Owned>,
    /// The cluster's networks for services.
    pub services: Vec<IpNet>,
    /// The networks of this node's links, each with the link's name.
    pub links: Vec<(String, IpNet)>,
}

/// A network that leads to another node.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Remote {
    /// The network.
    pub network: IpNet,
    /// The node's name.
    pub node: String,
    /// Which one it is, as [`Claim::id`] has it.
    pub id: String,
}

/// A claim that doesn't count.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal {
    /// The network.
    pub network: IpNet,
    /// Who claims it.
    pub node: String,
    /// Why it doesn't count.
    pub reason: Reason,
}

/// Why a claim doesn't count.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reason {
    /// It overlaps this node's own network.
    Ours(IpNet),
    /// It is all of the cluster's, or more.
    WholeCluster(IpNet),
    /// It is part of what another node has.
    Within(Remote),
    /// No Node object has it.
    Unowned,
    /// It is of the cluster's, and who claims it has not this tag, which nodes have.
    Untagged(String),
    /// It overlaps a network for services.
    Services(IpNet),
    /// It overlaps the network of a link of this node.
    Link(String, IpNet),
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { network, node, .. } = self;
        write!(f, "{node} claims {network}, ")?;
        match &self.reason {
            Reason::Ours(ours) => write!(f, "which overlaps this node's {ours}"),
            Reason::WholeCluster(base) => write!(f, "which is all of {base}"),
            Reason::Within(other) => {
                write!(f, "which is part of {}'s {}", other.node, other.network)
            }
            Reason::Unowned => f.write_str("which no Node object of Kubernetes has"),
            Reason::Untagged(tag) => write!(f, "and has not the tag of nodes ({tag})"),
            Reason::Services(services) => write!(f, "which overlaps the services' {services}"),
            Reason::Link(link, theirs) => write!(
                f,
                "which overlaps {theirs} of this node's {link}, and is not in network.podCIDR.base"
            ),
        }
    }
}

/// What was made of all claims.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Judgement {
    /// Networks that lead to other nodes, sorted.
    pub remotes: Vec<Remote>,
    /// Claims of nodes that don't count.
    pub refusals: Vec<Refusal>,
}

impl Judgement {
    /// Parts of other nodes' networks that somebody else serves. tailscaled sends packets by the
    /// smallest network that it was told of, whatever our routes say: so these must not get to it.
    pub fn stolen(&self) -> Vec<IpNet> {
        let refused = self.refusals.iter().map(|refusal| refusal.network);
        let is_part = |network: &IpNet| {
            let mut remotes = self.remotes.iter();
            remotes.any(|remote| remote.network.contains(network) && remote.network != *network)
        };
        let mut stolen: Vec<IpNet> = refused.filter(is_part).collect();
        stolen.sort();
        stolen.dedup();
        stolen
    }
}

/// Judges what other members say. What is no pod's network at all, because it is outside the
/// cluster's, is somebody else's business and left out.
pub fn judge(claims: &[Claim], trust: &Trust) -> Judgement {
    let (nodes, others): (Vec<&Claim>, Vec<&Claim>) = claims
        .iter()
        .partition(|claim| claim.tags.contains(&trust.tag));
    let mut judgement = Judgement::default();
    for Remote { network, node, .. } in all_of(&others) {
        // A larger one is a way to somewhere else, and takes nothing from pods.
        if trust.base.iter().any(|base| base.contains(&network)) {
            judgement.refusals.push(Refusal {
                network,
                node,
                reason: Reason::Untagged(trust.tag.clone()),
            });
        }
    }
    let mut found = all_of(&nodes);
    // The larger network is judged first: a smaller one in it is another's.
    found.sort_by_key(|remote| (remote.network.prefix_len(), remote.clone()));
    found.dedup();
    for remote in found {
        match verdict(&remote, &judgement.remotes, trust) {
            Verdict::Counts => judgement.remotes.push(remote),
            Verdict::Foreign => {}
            Verdict::Refused(reason) => judgement.refusals.push(Refusal {
                network: remote.network,
                node: remote.node,
                reason,
            }),
        }
    }
    judgement.remotes.sort();
    judgement
}

fn all_of(claims: &[&Claim]) -> Vec<Remote> {
    let of_one = |claim: &&Claim| -> Vec<Remote> {
        let served = claim.served.iter().map(|network| Remote {
            network: network.trunc(),
            node: claim.node.clone(),
            id: claim.id.clone(),
        });
        served.collect()
    };
    claims.iter().flat_map(of_one).collect()
}

enum Verdict {
    Counts,
    Foreign,
    Refused(Reason),
}

fn verdict(remote: &Remote, accepted: &[Remote], trust: &Trust) -> Verdict {
    let network = remote.network;
    if let Some(ours) = trust.local.iter().find(|local| overlap(local, &network)) {
        return Verdict::Refused(Reason::Ours(*ours));
    }
    if let Some(base) = trust.base.iter().find(|base| network.contains(*base)) {
        return Verdict::Refused(Reason::WholeCluster(*base));
    }
    let is_in_base = trust.base.iter().any(|base| base.contains(&network));
    match &trust.owned {
        Some(owned) if is_owned(&network, owned, is_in_base) => {}
        Some(_) if is_in_base => return Verdict::Refused(Reason::Unowned),
        None if is_in_base => {}
        _ => return Verdict::Foreign,
    }
    if let Some(services) = trust.services.iter().find(|net| overlap(net, &network)) {
        return Verdict::Refused(Reason::Services(*services));
    }
    // What the base says to be pods' is theirs, also where the network of a link is so large that it
    // has the base in it.
    let is_links = |(_, net): &&(String, IpNet)| !is_in_base && overlap(net, &network);
    if let Some((link, net)) = trust.links.iter().find(is_links) {
        return Verdict::Refused(Reason::Link(link.clone(), *net));
    }
    let is_anothers = |other: &&Remote| other.id != remote.id && overlap(&other.network, &network);
    match accepted.iter().find(is_anothers) {
        Some(other) => Verdict::Refused(Reason::Within(other.clone())),
        None => Verdict::Counts,
    }
}

/// Whether some Node has this network. What its daemon says, anybody says who is root there: outside of
/// the base it would be a way to any network.
fn is_owned(network: &IpNet, owned: &Owned, is_in_base: bool) -> bool {
    let has = |all: &[IpNet]| all.iter().any(|one| one.contains(network));
    has(&owned.assigned) || (is_in_base && has(&owned.said))
}

/// Whether two networks have an address in common: then one is part of the other.
pub fn overlap(one: &IpNet, other: &IpNet) -> bool {
    one.contains(other) || other.contains(one)
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    const TAG: &str = "tag:k8s-node";

    fn net(text: &str) -> IpNet {
        text.parse().unwrap()
    }

    fn claim(node: &str, tag: &str, served: &[&str]) -> Claim {
        Claim {
            id: format!("id of {node}"),
            node: node.to_owned(),
            tags: vec!["tag:other".to_owned(), tag.to_owned()],
            served: served.iter().copied().map(net).collect(),
        }
    }

    fn trust() -> Trust {
        Trust {
            tag: TAG.to_owned(),
            base: vec![net("10.244.0.0/16"), net("fd00:244::/48")],
            local: vec![net("10.244.1.0/24"), net("fd00:244:0:1::/64")],
            owned: None,
            services: vec![net("10.96.0.0/12")],
            links: vec![
                ("eth0".to_owned(), net("192.168.7.0/24")),
                ("eth1".to_owned(), net("10.240.0.0/12")),
            ],
        }
    }

    /// With what the cluster gave other nodes, and what their daemons say.
    fn strict(assigned: &[&str], said: &[&str]) -> Trust {
        let nets = |texts: &[&str]| texts.iter().copied().map(net).collect();
        Trust {
            owned: Some(Owned {
                assigned: nets(assigned),
                said: nets(said),
            }),
            ..trust()
        }
    }

    fn words(refusals: &[Refusal]) -> Vec<String> {
        refusals.iter().map(Refusal::to_string).collect()
    }

    fn accepted(claims: &[Claim]) -> Vec<(String, String)> {
        let remotes = judge(claims, &trust()).remotes.into_iter();
        remotes
            .map(|remote| (remote.network.to_string(), remote.node))
            .collect()
    }

    #[test]
    fn nodes_of_the_cluster_count() {
        let claims = [
            claim("b", TAG, &["10.244.2.0/24", "fd00:244:0:2::/64"]),
            claim("c", TAG, &["10.244.3.0/24", "192.168.7.0/24", "0.0.0.0/0"]),
        ];
        let judged = judge(&claims, &trust());
        let networks: Vec<String> = judged
            .remotes
            .iter()
            .map(|r| r.network.to_string())
            .collect();
        assert_eq!(
            networks,
            ["10.244.2.0/24", "10.244.3.0/24", "fd00:244:0:2::/64"]
        );
    }

    #[test]
    fn who_has_not_the_tag_is_no_node() {
        let served = ["10.244.2.0/24", "192.168.7.0/24", "10.0.0.0/8", "0.0.0.0/0"];
        let judged = judge(&[claim("laptop", "tag:laptop", &served)], &trust());
        assert_eq!(judged.remotes, []);
        let refusals: Vec<String> = judged.refusals.iter().map(Refusal::to_string).collect();
        let words = "laptop claims 10.244.2.0/24, and has not the tag of nodes (tag:k8s-node)";
        assert_eq!(refusals, [words]);
    }

    #[rstest]
    #[case(
        "10.244.1.0/24",
        "b claims 10.244.1.0/24, which overlaps this node's 10.244.1.0/24"
    )]
    #[case(
        "10.244.1.7/32",
        "b claims 10.244.1.7/32, which overlaps this node's 10.244.1.0/24"
    )]
    #[case(
        "10.244.0.0/20",
        "b claims 10.244.0.0/20, which overlaps this node's 10.244.1.0/24"
    )]
    #[case(
        "fd00:244::/48",
        "b claims fd00:244::/48, which overlaps this node's fd00:244:0:1::/64"
    )]
    fn nobody_gets_what_is_ours(#[case] network: &str, #[case] words: &str) {
        let judged = judge(&[claim("b", TAG, &[network])], &trust());
        assert_eq!(judged.remotes, []);
        assert_eq!(judged.refusals[0].to_string(), words);
    }

    #[test]
    fn a_whole_cluster_is_nobodys() {
        let elsewhere = Trust {
            local: vec![net("fd00:244:0:1::/64")],
            ..trust()
        };
        for network in ["10.244.0.0/16", "10.0.0.0/8"] {
            let judged = judge(&[claim("b", TAG, &[network])], &elsewhere);
            let words = format!("b claims {network}, which is all of 10.244.0.0/16");
            assert_eq!(judged.refusals[0].to_string(), words);
            assert_eq!(judged.remotes, []);
        }
    }

    #[test]
    fn a_part_of_another_nodes_network_can_t_be_taken() {
        let claims = [
            claim("thief", TAG, &["10.244.2.9/32", "10.244.2.0/25"]),
            claim("b", TAG, &["10.244.2.0/24"]),
        ];
        let judged = judge(&claims, &trust());
        assert_eq!(
            accepted(&claims),
            [("10.244.2.0/24".to_owned(), "b".to_owned())]
        );
        assert_eq!(judged.refusals.len(), 2);
        assert_eq!(
            judged.refusals[0].to_string(),
            "thief claims 10.244.2.0/25, which is part of b's 10.244.2.0/24"
        );
        assert_eq!(
            judged.stolen(),
            [net("10.244.2.0/25"), net("10.244.2.9/32")]
        );
    }

    #[test]
    fn who_is_no_node_can_t_take_a_part_either() {
        let claims = [
            claim("laptop", "tag:laptop", &["10.244.2.9/32", "10.244.7.0/24"]),
            claim("b", TAG, &["10.244.2.0/24"]),
        ];
        let judged = judge(&claims, &trust());
        assert_eq!(judged.stolen(), [net("10.244.2.9/32")]);
        let ours = judge(&[claim("b", TAG, &["10.244.1.7/32"])], &trust());
        assert_eq!(ours.stolen(), [], "what is ours does not leave this node");
    }

    #[test]
    fn a_node_may_have_addresses_of_pods_beside_its_network() {
        let claims = [claim(
            "b",
            TAG,
            &["10.244.2.0/24", "10.244.2.9/32", "10.244.200.9/32"],
        )];
        assert_eq!(accepted(&claims).len(), 3);
    }

    #[test]
    fn where_kubernetes_is_believed_only_what_a_node_has_counts() {
        let strict = strict(&["10.9.0.0/24"], &["10.244.2.0/24"]);
        let claims = [
            claim("b", TAG, &["10.244.2.0/24", "10.244.2.9/32"]),
            // Outside what is known of the cluster's networks, but a node's.
            claim("c", TAG, &["10.9.0.0/24"]),
            claim("thief", TAG, &["10.244.3.0/24", "192.168.7.0/24"]),
            claim("laptop", "tag:laptop", &["10.9.0.0/24"]),
        ];
        let judged = judge(&claims, &strict);
        let networks: Vec<String> = judged
            .remotes
            .iter()
            .map(|remote| format!("{} {}", remote.node, remote.network))
            .collect();
        assert_eq!(
            networks,
            ["c 10.9.0.0/24", "b 10.244.2.0/24", "b 10.244.2.9/32"]
        );
        assert_eq!(
            words(&judged.refusals),
            ["thief claims 10.244.3.0/24, which no Node object of Kubernetes has"]
        );
    }

    #[test]
    fn outside_the_base_only_what_the_cluster_assigned_counts() {
        let said = strict(&[], &["172.16.0.0/12", "10.244.2.0/24"]);
        let claims = [claim("b", TAG, &["172.16.5.0/24", "10.244.2.0/24"])];
        let judged = judge(&claims, &said);
        assert_eq!(judged.remotes.len(), 1);
        assert_eq!(judged.remotes[0].network, net("10.244.2.0/24"));
        assert_eq!(judged.refusals, []);
        let assigned = strict(&["172.16.5.0/24"], &[]);
        let judged = judge(&claims[..1], &assigned);
        assert_eq!(judged.remotes[0].network, net("172.16.5.0/24"));
    }

    #[test]
    fn services_and_this_nodes_links_are_never_anothers() {
        let all = ["10.97.0.0/16", "192.168.0.0/16", "192.168.7.128/25"];
        let judged = judge(&[claim("b", TAG, &all)], &strict(&all, &all));
        assert_eq!(judged.remotes, []);
        let link = "192.168.7.0/24 of this node's eth0, and is not in network.podCIDR.base";
        assert_eq!(
            words(&judged.refusals),
            [
                "b claims 10.97.0.0/16, which overlaps the services' 10.96.0.0/12".to_owned(),
                format!("b claims 192.168.0.0/16, which overlaps {link}"),
                format!("b claims 192.168.7.128/25, which overlaps {link}"),
            ]
        );
        // A user's own subnet router is nobody's business.
        let judged = judge(&[claim("b", TAG, &all)], &strict(&[], &[]));
        assert_eq!(judged, Judgement::default());
    }

    #[test]
    fn services_in_the_base_are_not_pods() {
        let overlapping = Trust {
            services: vec![net("10.244.96.0/20")],
            ..trust()
        };
        let judged = judge(&[claim("b", TAG, &["10.244.100.0/24"])], &overlapping);
        assert_eq!(
            words(&judged.refusals),
            ["b claims 10.244.100.0/24, which overlaps the services' 10.244.96.0/20"]
        );
    }

    #[test]
    fn who_takes_anothers_name_is_not_that_one() {
        let thief = Claim {
            id: "id of the thief".to_owned(),
            ..claim("b", TAG, &["10.244.2.9/32"])
        };
        let judged = judge(&[thief, claim("b", TAG, &["10.244.2.0/24"])], &trust());
        assert_eq!(judged.remotes.len(), 1);
        assert_eq!(
            words(&judged.refusals),
            ["b claims 10.244.2.9/32, which is part of b's 10.244.2.0/24"]
        );
    }

    #[test]
    fn nobody_counts_while_the_clusters_networks_are_not_known() {
        let unknown = Trust {
            base: Vec::new(),
            ..trust()
        };
        let judged = judge(&[claim("b", TAG, &["10.244.2.0/24"])], &unknown);
        assert_eq!(judged, Judgement::default());
    }
}
