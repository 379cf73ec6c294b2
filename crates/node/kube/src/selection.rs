//! What is watched.

use kube::runtime::watcher;

use node_config::Kubernetes;
use node_core::node_name::NodeName;

/// So many are read at a time.
const PAGE: u32 = 100;

/// This node's pods, as far as the configuration wants to know of them.
pub(super) fn of_node(config: &Kubernetes, node: &NodeName) -> watcher::Config {
    let mut watch = watcher::Config::default()
        .fields(&format!("spec.nodeName={node}"))
        .page_size(PAGE);
    if let Some(selector) = &config.pod_selector {
        watch = watch.labels(selector);
    }
    watch
}

/// All of a kind.
pub(super) fn all() -> watcher::Config {
    watcher::Config::default().page_size(PAGE)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_this_node_s_pods_are_asked_for() {
        let node = node_core::node_name::find(Some("n1"), None).unwrap();
        let mut config = Kubernetes::default();
        let watch = of_node(&config, &node);
        assert_eq!(watch.field_selector.as_deref(), Some("spec.nodeName=n1"));
        assert_eq!(watch.label_selector, None);
        config.pod_selector = Some("tier=edge".to_owned());
        let watch = of_node(&config, &node);
        assert_eq!(watch.label_selector.as_deref(), Some("tier=edge"));
    }
}
