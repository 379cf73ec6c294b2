//! What the Kubernetes API says about nodes, as far as this one needs it, and what this node says there.
//!
//! Nothing here is needed for pods to run. What was known stays when the API is away, over restarts
//! too, and a node without an API does without.

mod client;
mod farewell;
mod keep;
mod memory;
mod node;
mod nodes;
mod own;
mod reach;
mod selection;
mod tell;
mod teller;
mod told;

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::path::Path;
use std::time::Duration;

use ipnet::IpNet;
use serde::{Deserialize, Serialize};

pub use farewell::take_back;
pub use keep::{Ends, keep};

use crate::config::Kubernetes;
use crate::node_name::NodeName;

/// For an answer to what is asked now and then. Watches and lists have more time.
const ANSWER: Duration = Duration::from_secs(5);

/// What the API said last.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Known {
    /// Whether it is asked at all.
    pub is_asked: bool,
    /// All nodes by their names; nothing until they were listed once.
    pub nodes: Option<BTreeMap<String, NodeFacts>>,
}

/// What there is to know of a node.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct NodeFacts {
    /// The networks that the cluster gave it: `spec.podCIDRs`.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub assigned: Vec<IpNet>,
    /// The networks that its own daemon says it has.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub said: Vec<IpNet>,
    /// The addresses by which its own daemon says it is a member of the mesh.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub addresses: Vec<IpAddr>,
}

/// Nodes other than this one, by their names.
pub type Others<'a> = Vec<(&'a str, &'a NodeFacts)>;

/// What the API says about this node's networks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answer<'a> {
    /// It is not asked.
    NotAsked,
    /// It has not answered yet.
    Awaited,
    /// There is no Node object for this node.
    NoNode,
    /// These; none have been assigned yet if they are none.
    Networks(&'a [IpNet]),
}

impl Known {
    /// What is known at the start, before anybody is asked; blocks.
    pub fn at_start(config: &Kubernetes, state_dir: &Path) -> Self {
        Self {
            is_asked: client::is_asked(config),
            nodes: memory::load(state_dir),
        }
    }

    /// What it says about a node's networks.
    pub fn of(&self, node: &NodeName) -> Answer<'_> {
        match (&self.nodes, self.is_asked) {
            (_, false) => Answer::NotAsked,
            (None, true) => Answer::Awaited,
            (Some(nodes), true) => match nodes.get(node.as_str()) {
                Some(facts) => Answer::Networks(&facts.assigned),
                None => Answer::NoNode,
            },
        }
    }

    /// All nodes but this one; nothing if they are not known.
    pub fn others(&self, this: &NodeName) -> Option<Others<'_>> {
        let nodes = self.nodes.as_ref().filter(|_| self.is_asked)?;
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
    fn what_is_not_known_is_told_from_what_is_not_there() {
        let node = crate::node_name::find(Some("n1"), None).unwrap();
        let mut known = Known::default();
        assert_eq!(
            (known.of(&node), known.others(&node)),
            (Answer::NotAsked, None)
        );
        known.is_asked = true;
        assert_eq!(
            (known.of(&node), known.others(&node)),
            (Answer::Awaited, None)
        );
        known.nodes = Some(BTreeMap::new());
        assert_eq!(known.of(&node), Answer::NoNode);
        assert_eq!(known.others(&node), Some(Vec::new()));
        let facts = |assigned: &[&str]| NodeFacts {
            assigned: nets(assigned),
            ..NodeFacts::default()
        };
        let other = facts(&["10.244.2.0/24"]);
        let nodes = [("n1", facts(&["10.244.1.0/24"])), ("n2", other.clone())];
        known.nodes = Some(nodes.map(|(name, facts)| (name.to_owned(), facts)).into());
        assert_eq!(known.of(&node), Answer::Networks(&nets(&["10.244.1.0/24"])));
        assert_eq!(known.others(&node), Some(vec![("n2", &other)]));
        known.is_asked = false;
        assert_eq!(
            (known.of(&node), known.others(&node)),
            (Answer::NotAsked, None)
        );
    }
}
