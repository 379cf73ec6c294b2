//! This node's own object, from what a watch of all nodes tells.

use kube::runtime::watcher::Event;

use super::node::Node;
use node_core::node_name::NodeName;

/// The object as it was seen last, if there is one.
#[derive(Debug)]
pub(super) struct Own {
    name: NodeName,
    seen: Option<Node>,
    /// From a list that is not complete yet.
    coming: Option<Node>,
}

impl Own {
    /// Not seen yet.
    pub(super) fn new(name: NodeName) -> Self {
        Self {
            name,
            seen: None,
            coming: None,
        }
    }

    /// Its name.
    pub(super) fn name(&self) -> &NodeName {
        &self.name
    }

    /// The object; nothing if there is none, or none was seen yet.
    pub(super) fn seen(&self) -> Option<&Node> {
        self.seen.as_ref()
    }

    /// It was changed, and is so now.
    pub(super) fn is_now(&mut self, node: Node) {
        self.seen = Some(node);
    }

    /// Takes what the watch tells.
    pub(super) fn take(&mut self, event: &Event<Node>) {
        match event {
            Event::Init => self.coming = None,
            Event::InitApply(node) if self.is(node) => self.coming = Some(node.clone()),
            Event::InitDone => self.seen = self.coming.take(),
            Event::Apply(node) if self.is(node) => self.seen = Some(node.clone()),
            Event::Delete(node) if self.is(node) => self.seen = None,
            Event::InitApply(_) | Event::Apply(_) | Event::Delete(_) => {}
        }
    }

    fn is(&self, node: &Node) -> bool {
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
    fn only_what_is_this_node_s_is_seen_and_what_is_gone_is_not() {
        let mut own = Own::new(node_core::node_name::find(Some("n1"), None).unwrap());
        let mut version = |events: &[Event<Node>]| {
            for event in events {
                own.take(event);
            }
            own.seen()
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
        // The API was away, and the object went in that time.
        assert_eq!(
            version(&[Event::Init, Event::InitApply(node("n2", "8"))]),
            is("7")
        );
        assert_eq!(version(&[Event::InitDone]), None);
    }
}
