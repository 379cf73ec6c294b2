//! All nodes, from what a watch tells one by one.

use std::collections::BTreeMap;

use kube::runtime::watcher::Event;

use super::node::Node;
use node_core::NodeFacts;

/// The nodes, and those of a list that is not complete yet.
#[derive(Debug, Default)]
pub(super) struct Nodes {
    known: Option<BTreeMap<String, NodeFacts>>,
    coming: BTreeMap<String, NodeFacts>,
}

impl Nodes {
    /// Begins with what was known before.
    pub(super) fn new(known: Option<BTreeMap<String, NodeFacts>>) -> Self {
        Self {
            known,
            coming: BTreeMap::new(),
        }
    }

    /// Takes what a watch tells; whether that is news. Until a list is complete, what was known before
    /// holds.
    pub(super) fn take(&mut self, event: Event<Node>) -> bool {
        match event {
            Event::Init => {
                self.coming.clear();
                false
            }
            Event::InitApply(node) => {
                let (name, facts) = named(&node);
                self.coming.insert(name, facts);
                false
            }
            Event::InitDone => {
                let new = Some(std::mem::take(&mut self.coming));
                let is_other = new != self.known;
                self.known = new;
                is_other
            }
            // Most changes of a node are its kubelet's heartbeats.
            Event::Apply(node) => {
                let (name, facts) = named(&node);
                let known = self.known.get_or_insert_default();
                known.insert(name, facts.clone()) != Some(facts)
            }
            Event::Delete(node) => {
                let (name, _) = named(&node);
                let known = self.known.get_or_insert_default();
                known.remove(&name).is_some()
            }
        }
    }

    /// All of them; nothing until they were listed once.
    pub(super) fn known(&self) -> Option<&BTreeMap<String, NodeFacts>> {
        self.known.as_ref()
    }
}

fn named(node: &Node) -> (String, NodeFacts) {
    let name = node.metadata.name.clone().unwrap_or_default();
    (name, node.facts())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn node(name: &str) -> Node {
        let mut node = Node::default();
        node.metadata.name = Some(name.to_owned());
        node
    }

    fn names(nodes: &Nodes) -> Vec<String> {
        let known = nodes.known().into_iter();
        known.flat_map(BTreeMap::keys).cloned().collect()
    }

    #[test]
    fn a_list_counts_when_it_is_complete() {
        let mut nodes = Nodes::default();
        nodes.take(Event::Init);
        nodes.take(Event::InitApply(node("a")));
        assert!(nodes.known().is_none());
        nodes.take(Event::InitApply(node("b")));
        assert!(nodes.take(Event::InitDone));
        assert_eq!(names(&nodes), ["a", "b"]);
        assert!(nodes.take(Event::Apply(node("c"))));
        assert!(!nodes.take(Event::Apply(node("c"))));
        assert!(nodes.take(Event::Delete(node("a"))));
        assert_eq!(names(&nodes), ["b", "c"]);
        // The API was away, and "b" went in that time.
        nodes.take(Event::Init);
        nodes.take(Event::InitApply(node("c")));
        assert_eq!(names(&nodes), ["b", "c"]);
        assert!(nodes.take(Event::InitDone));
        assert_eq!(names(&nodes), ["c"]);
    }
}
