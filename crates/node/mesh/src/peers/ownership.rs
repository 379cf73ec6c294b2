//! Owner a network is by the word of Kubernetes. Pure.
//!
//! What the cluster gave a Node nobody can change. What a Node's daemon says, anybody says who is root
//! there: it counts where it takes nothing from another Node.

use std::net::IpAddr;

use ipnet::IpNet;

use crate::peers::prefix_map::PrefixMap;
use node_core::cidr::overlap;
use node_core::{NodeFacts, OtherNodes};

/// A network, and which of the Nodes has it.
type Had = (IpNet, usize);

/// Other Nodes, and what they have.
pub(crate) struct Ownership<'a> {
    nodes: &'a OtherNodes<'a>,
    assigned: PrefixMap<Had>,
    said: PrefixMap<Had>,
    /// What is said against what was assigned, and to whom.
    contested: PrefixMap<Had>,
}

/// Owner a network is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Owner {
    /// No Node has it.
    None,
    /// The member's that claims it, as far as is known.
    Claimant,
    /// This Node's, which is another member, and of which it has or overlaps this network.
    Other(String, IpNet),
}

impl<'a> Ownership<'a> {
    pub(crate) fn new(nodes: &'a OtherNodes<'a>) -> Self {
        let assigned: Vec<Had> = all_of(nodes, used).collect();
        let around: PrefixMap<Had> = assigned.iter().map(|had| (had.0, *had)).collect();
        let (mut said, mut contested) = (Vec::new(), Vec::new());
        for had in all_of(nodes, |facts| facts.annotated.iter().copied()) {
            let (network, by) = had;
            // Nearly always it is what the cluster gave.
            if around.of(&network).any(|(_, owner)| *owner == by) {
                continue;
            }
            let is_against = |(one, owner): &&Had| *owner != by && overlap(one, &network);
            match assigned.iter().find(is_against) {
                Some(against) => contested.push((network, *against)),
                None => said.push((network, had)),
            }
        }
        Self {
            nodes,
            assigned: around,
            said: said.into_iter().collect(),
            contested: contested.into_iter().collect(),
        }
    }

    /// Whether the cluster gave a Node exactly this network.
    pub(crate) fn is_assigned(&self, network: &IpNet) -> bool {
        self.assigned.of(network).any(|(one, _)| one == network)
    }

    /// Owner a network is that a member with these addresses claims. ExtraHostRoutes of the base, what is said
    /// would be a way to any network.
    pub(crate) fn whose(&self, network: &IpNet, by: &[IpAddr], is_in_base: bool) -> Owner {
        let mut owners: Vec<Had> = self.assigned.of(network).copied().collect();
        if owners.is_empty() && is_in_base {
            owners = self.said.of(network).copied().collect();
        }
        if owners.iter().any(|(_, owner)| self.is_member(*owner, by)) {
            return Owner::Claimant;
        }
        let is_against = |(had, _): &&Had| is_in_base && overlap(had, network);
        let against = || self.contested.of(network).find(is_against);
        match owners.first().or_else(against) {
            None => Owner::None,
            Some((had, owner)) => {
                let name = self.nodes.get(*owner).map_or("", |(name, _)| name);
                Owner::Other(name.to_owned(), *had)
            }
        }
    }

    /// Whether a Node is the member with these addresses. One that says none may be any.
    fn is_member(&self, node: usize, by: &[IpAddr]) -> bool {
        self.nodes.get(node).is_some_and(|(_, facts)| {
            let addresses = &facts.tailnet_ips;
            addresses.is_empty() || addresses.iter().any(|address| by.contains(address))
        })
    }
}

/// What the cluster gave a Node, unless its daemon says that it has another network instead: a
/// configuration may give nodes other ones than the cluster does.
fn used(facts: &NodeFacts) -> impl Iterator<Item = IpNet> {
    let is_used = |network: &&IpNet| {
        let is_kind = |said: &&IpNet| {
            let is_pods = said.prefix_len() == said.max_prefix_len();
            said.addr().is_ipv4() == network.addr().is_ipv4() && !is_pods
        };
        let mut said = facts.annotated.iter().filter(is_kind).peekable();
        said.peek().is_none() || said.any(|said| overlap(said, network))
    };
    facts.assigned.iter().filter(is_used).copied()
}

fn all_of<'a, I: Iterator<Item = IpNet>>(
    nodes: &'a OtherNodes<'a>,
    networks: impl Fn(&'a NodeFacts) -> I,
) -> impl Iterator<Item = Had> {
    let nodes = nodes.iter().enumerate();
    nodes.flat_map(move |(nth, (_, facts))| networks(facts).map(move |network| (network, nth)))
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    fn nets(text: &str) -> Vec<IpNet> {
        let texts = text.split(' ').filter(|text| !text.is_empty());
        texts.map(|text| text.parse().unwrap()).collect()
    }

    /// A Node that is a member by one address, or does not say by which.
    fn node(assigned: &str, said: &str, address: &str) -> NodeFacts {
        NodeFacts {
            assigned: nets(assigned),
            annotated: nets(said),
            tailnet_ips: address.parse().into_iter().collect(),
        }
    }

    /// What is found for a claim of the member with 100.64.0.9.
    fn whose(nodes: &[(&str, NodeFacts)], network: &str) -> Owner {
        let nodes: OtherNodes<'_> = nodes.iter().map(|(name, facts)| (*name, facts)).collect();
        let by = ["100.64.0.9", "fd7a:115c:a1e0::9"].map(|ip| ip.parse().unwrap());
        Ownership::new(&nodes).whose(
            &network.parse().unwrap(),
            &by,
            network.starts_with("10.244."),
        )
    }

    fn anothers(name: &str, had: &str) -> Owner {
        Owner::Other(name.to_owned(), had.parse().unwrap())
    }

    const B: &str = "100.64.0.2";
    const X: &str = "100.64.0.9";

    #[rstest]
    #[case::its_own("10.244.9.0/24", Owner::Claimant)]
    #[case::a_part_of_its_own("10.244.9.7/32", Owner::Claimant)]
    #[case::said_beside("10.244.200.9/32", Owner::Claimant)]
    #[case::exactly_anothers("10.244.2.0/24", anothers("b", "10.244.2.0/24"))]
    #[case::a_part_of_anothers("10.244.2.0/25", anothers("b", "10.244.2.0/24"))]
    #[case::said_by_another("10.244.201.9/32", anothers("b", "10.244.201.9/32"))]
    #[case::outside_of_the_base("10.9.2.0/24", anothers("b", "10.9.2.0/24"))]
    #[case::of_one_who_does_not_say_who_he_is("10.244.3.0/24", Owner::Claimant)]
    #[case::nobodys("10.244.99.0/24", Owner::None)]
    fn a_network_is_the_members_that_is_its_node(#[case] network: &str, #[case] expected: Owner) {
        let nodes = [
            (
                "b",
                node(
                    "10.244.2.0/24 10.9.2.0/24",
                    "10.244.2.0/24 10.9.2.0/24 10.244.201.9/32",
                    B,
                ),
            ),
            ("c", node("10.244.3.0/24", "", "")),
            (
                "x",
                node("10.244.9.0/24", "10.244.9.0/24 10.244.200.9/32", X),
            ),
        ];
        assert_eq!(whose(&nodes, network), expected);
    }

    #[rstest]
    #[case::exactly("10.244.2.0/24", "10.244.2.0/24", anothers("b", "10.244.2.0/24"))]
    #[case::larger("10.244.0.0/17", "10.244.0.0/17", anothers("b", "10.244.2.0/24"))]
    #[case::a_free_part_of_it("10.244.0.0/17", "10.244.77.0/24", Owner::None)]
    #[case::smaller("10.244.2.9/32", "10.244.2.9/32", anothers("b", "10.244.2.0/24"))]
    #[case::beside("10.244.77.0/24", "10.244.77.0/24", Owner::Claimant)]
    fn nobody_gets_by_his_word_what_was_assigned_to_another(
        #[case] said: &str,
        #[case] claimed: &str,
        #[case] expected: Owner,
    ) {
        let said = format!("10.244.9.0/24 {said}");
        let nodes = [
            ("b", node("10.244.2.0/24", "10.244.2.0/24", B)),
            ("x", node("10.244.9.0/24", &said, X)),
        ];
        assert_eq!(whose(&nodes, claimed), expected);
    }

    #[test]
    fn nodes_may_be_configured_to_have_other_networks_than_the_cluster_gave_them() {
        let nodes = [
            ("b", node("10.244.9.0/24", "10.244.2.0/24", B)),
            ("x", node("10.244.2.0/24", "10.244.9.0/24", X)),
        ];
        assert_eq!(whose(&nodes, "10.244.9.0/24"), Owner::Claimant);
        assert_eq!(
            whose(&nodes, "10.244.2.0/24"),
            anothers("b", "10.244.2.0/24")
        );
    }

    #[test]
    fn addresses_of_pods_are_not_instead_of_a_network() {
        let nodes = [("x", node("10.244.9.0/24", "10.244.200.9/32", X))];
        assert_eq!(whose(&nodes, "10.244.9.0/24"), Owner::Claimant);
    }
}
