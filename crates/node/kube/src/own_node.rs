//! This node's own Node object, from the watch of all Nodes.

use kube::runtime::watcher::Event;

use super::node::Node;
use node_core::node_name::NodeName;

#[derive(Debug)]
pub(super) struct OwnNode {
    name: NodeName,
    observed: Option<Node>,
    /// From a list that is not complete yet.
    listed: Option<Node>,
}

impl OwnNode {
    pub(super) fn new(name: NodeName) -> Self {
        Self {
            name,
            observed: None,
            listed: None,
        }
    }

    pub(super) fn name(&self) -> &NodeName {
        &self.name
    }

    pub(super) fn observed(&self) -> Option<&Node> {
        self.observed.as_ref()
    }

    /// The object as a patch returned it.
    pub(super) fn set(&mut self, node: Node) {
        self.observed = Some(node);
    }

    pub(super) fn handle(&mut self, event: &Event<Node>) {
        match event {
            Event::Init => self.listed = None,
            Event::InitApply(node) if self.is_own(node) => self.listed = Some(node.clone()),
            Event::InitDone => self.observed = self.listed.take(),
            Event::Apply(node) if self.is_own(node) => self.observed = Some(node.clone()),
            Event::Delete(node) if self.is_own(node) => self.observed = None,
            Event::InitApply(_) | Event::Apply(_) | Event::Delete(_) => {}
        }
    }

    fn is_own(&self, node: &Node) -> bool {
        node.metadata.name.as_deref() == Some(self.name.as_str())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn node(name: &str, version: &str) -> Node {
        let mut node = Node::default();
        node.metadata.name = Some(name.to_owned());
        node.metadata.resource_version = Some(version.to_owned());
        node
    }

    #[test]
    fn only_this_node_s_object_is_observed_until_it_is_deleted() {
        let mut own = OwnNode::new(node_core::node_name::find(Some("n1"), None).unwrap());
        let mut version = |events: &[Event<Node>]| {
            for event in events {
                own.handle(event);
            }
            own.observed()
                .and_then(|node| node.metadata.resource_version.clone())
        };
        let is = |text: &str| Some(text.to_owned());
        assert_eq!(
            version(&[Event::Init, Event::InitApply(node("n1", "1"))]),
            None
        );
        assert_eq!(
            version(&[Event::InitApply(node("n2", "2")), Event::InitDone]),
            is("1")
        );
        assert_eq!(version(&[Event::Apply(node("n2", "3"))]), is("1"));
        assert_eq!(version(&[Event::Apply(node("n1", "4"))]), is("4"));
        assert_eq!(version(&[Event::Delete(node("n2", "5"))]), is("4"));
        assert_eq!(version(&[Event::Delete(node("n1", "6"))]), None);
        assert_eq!(version(&[Event::Apply(node("n1", "7"))]), is("7"));
        // The object was deleted while the API was unreachable.
        assert_eq!(
            version(&[Event::Init, Event::InitApply(node("n2", "8"))]),
            is("7")
        );
        assert_eq!(version(&[Event::InitDone]), None);
    }
}
