//! All Nodes, reduced to [`NodeFacts`]: a reflector would hold whole objects, some kilobytes each.

use std::collections::BTreeMap;

use kube::runtime::watcher::Event;

use super::node::Node;
use node_core::NodeFacts;

#[derive(Debug, Default)]
pub(super) struct NodeCache {
    nodes: Option<BTreeMap<String, NodeFacts>>,
    /// The list that is not complete yet.
    listing: BTreeMap<String, NodeFacts>,
}

impl NodeCache {
    pub(super) fn new(nodes: Option<BTreeMap<String, NodeFacts>>) -> Self {
        Self {
            nodes,
            listing: BTreeMap::new(),
        }
    }

    /// Returns whether the Nodes changed. Until a list is complete, the former Nodes stay.
    pub(super) fn handle(&mut self, event: Event<Node>) -> bool {
        match event {
            Event::Init => {
                self.listing.clear();
                false
            }
            Event::InitApply(node) => {
                let (name, facts) = named(&node);
                self.listing.insert(name, facts);
                false
            }
            Event::InitDone => {
                let new = Some(std::mem::take(&mut self.listing));
                let is_changed = new != self.nodes;
                self.nodes = new;
                is_changed
            }
            // Most changes are heartbeats of the kubelet, which change no facts.
            Event::Apply(node) => {
                let (name, facts) = named(&node);
                let nodes = self.nodes.get_or_insert_default();
                nodes.insert(name, facts.clone()) != Some(facts)
            }
            Event::Delete(node) => {
                let (name, _) = named(&node);
                let nodes = self.nodes.get_or_insert_default();
                nodes.remove(&name).is_some()
            }
        }
    }

    /// `None` until they were listed once.
    pub(super) fn nodes(&self) -> Option<&BTreeMap<String, NodeFacts>> {
        self.nodes.as_ref()
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

    fn names(cache: &NodeCache) -> Vec<String> {
        let nodes = cache.nodes().into_iter();
        nodes.flat_map(BTreeMap::keys).cloned().collect()
    }

    #[test]
    fn a_list_replaces_the_nodes_when_it_is_complete() {
        let mut cache = NodeCache::default();
        cache.handle(Event::Init);
        cache.handle(Event::InitApply(node("a")));
        assert!(cache.nodes().is_none());
        cache.handle(Event::InitApply(node("b")));
        assert!(cache.handle(Event::InitDone));
        assert_eq!(names(&cache), ["a", "b"]);
        assert!(cache.handle(Event::Apply(node("c"))));
        assert!(!cache.handle(Event::Apply(node("c"))));
        assert!(cache.handle(Event::Delete(node("a"))));
        assert_eq!(names(&cache), ["b", "c"]);
        // "b" was deleted while the API was unreachable.
        cache.handle(Event::Init);
        cache.handle(Event::InitApply(node("c")));
        assert_eq!(names(&cache), ["b", "c"]);
        assert!(cache.handle(Event::InitDone));
        assert_eq!(names(&cache), ["c"]);
    }
}
