//! The Nodes of the cluster, as the Kubernetes API listed them last.

use std::collections::BTreeMap;
use std::net::IpAddr;

use ipnet::IpNet;
use serde::{Deserialize, Serialize};

use crate::NodeName;

/// All Nodes of the cluster.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct KubeNodes {
    /// Whether the configuration enables the Kubernetes API at all.
    pub is_enabled: bool,
    /// By name; nothing until they were listed once.
    pub nodes: Option<BTreeMap<String, NodeFacts>>,
}

/// What other nodes need of a Node object.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct NodeFacts {
    /// `spec.podCIDRs`.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub assigned: Vec<IpNet>,
    /// The prefixes in the annotation of the node's own daemon.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub annotated: Vec<IpNet>,
    /// The tailnet addresses in the annotation of the node's own daemon.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub tailnet_ips: Vec<IpAddr>,
}

/// Nodes other than this one, by name.
pub type OtherNodes<'a> = Vec<(&'a str, &'a NodeFacts)>;

/// What the API assigned to a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AssignedCidrs<'a> {
    /// The Kubernetes API is not used.
    Disabled,
    /// Nodes were never listed.
    Pending,
    NoNode,
    /// `spec.podCIDRs`; empty if none are assigned yet.
    Cidrs(&'a [IpNet]),
}

impl KubeNodes {
    pub fn assigned(&self, node: &NodeName) -> AssignedCidrs<'_> {
        match (&self.nodes, self.is_enabled) {
            (_, false) => AssignedCidrs::Disabled,
            (None, true) => AssignedCidrs::Pending,
            (Some(nodes), true) => match nodes.get(node.as_str()) {
                Some(facts) => AssignedCidrs::Cidrs(&facts.assigned),
                None => AssignedCidrs::NoNode,
            },
        }
    }

    /// All nodes but this one; nothing if they are unknown.
    pub fn others(&self, this: &NodeName) -> Option<OtherNodes<'_>> {
        let nodes = self.nodes.as_ref().filter(|_| self.is_enabled)?;
        let others = nodes.iter().filter(|(name, _)| *name != this.as_str());
        Some(others.map(|(name, facts)| (name.as_str(), facts)).collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn nets(texts: &[&str]) -> Vec<IpNet> {
        texts.iter().map(|text| text.parse().unwrap()).collect()
    }

    #[test]
    fn an_unlisted_cluster_differs_from_an_empty_one() {
        let node = crate::node_name::find(Some("n1"), None).unwrap();
        let mut known = KubeNodes::default();
        let disabled = (AssignedCidrs::Disabled, None);
        assert_eq!((known.assigned(&node), known.others(&node)), disabled);
        known.is_enabled = true;
        let pending = (AssignedCidrs::Pending, None);
        assert_eq!((known.assigned(&node), known.others(&node)), pending);
        known.nodes = Some(BTreeMap::new());
        assert_eq!(known.assigned(&node), AssignedCidrs::NoNode);
        assert_eq!(known.others(&node), Some(Vec::new()));
        let facts = |assigned: &[&str]| NodeFacts {
            assigned: nets(assigned),
            ..NodeFacts::default()
        };
        let other = facts(&["10.244.2.0/24"]);
        let nodes = [("n1", facts(&["10.244.1.0/24"])), ("n2", other.clone())];
        known.nodes = Some(nodes.map(|(name, facts)| (name.to_owned(), facts)).into());
        let own = nets(&["10.244.1.0/24"]);
        assert_eq!(known.assigned(&node), AssignedCidrs::Cidrs(&own));
        assert_eq!(known.others(&node), Some(vec![("n2", &other)]));
        known.is_enabled = false;
        assert_eq!((known.assigned(&node), known.others(&node)), disabled);
    }
}
