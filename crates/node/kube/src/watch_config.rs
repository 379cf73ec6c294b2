//! Selectors and page size of the watches.

use kube::runtime::watcher;

use node_config::Kubernetes;
use node_core::node_name::NodeName;

const PAGE_SIZE: u32 = 100;

/// This node's Pods that match `kubernetes.podSelector`.
pub(super) fn pods_of_node(config: &Kubernetes, node: &NodeName) -> watcher::Config {
    let watch = all().fields(&format!("spec.nodeName={node}"));
    match &config.pod_selector {
        Some(selector) => watch.labels(selector),
        None => watch,
    }
}

pub(super) fn all() -> watcher::Config {
    watcher::Config::default().page_size(PAGE_SIZE)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_this_node_s_pods_are_watched() {
        let node = node_core::node_name::find(Some("n1"), None).unwrap();
        let mut config = Kubernetes::default();
        let watch = pods_of_node(&config, &node);
        assert_eq!(watch.field_selector.as_deref(), Some("spec.nodeName=n1"));
        assert_eq!(watch.label_selector, None);
        config.pod_selector = Some("tier=edge".to_owned());
        let watch = pods_of_node(&config, &node);
        assert_eq!(watch.label_selector.as_deref(), Some("tier=edge"));
    }
}
