//! The parts of a Node object that we need. Each start of the daemon lists all Nodes, maybe a thousand.

use std::borrow::Cow;
use std::net::IpAddr;

use ipnet::IpNet;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::Resource;
use kube::core::ClusterResourceScope;
use serde::Deserialize;

use node_core::NodeFacts;
use node_core::routing::MAX_NODE_ROUTES;

/// Annotation with the pod CIDRs and extra host routes of a node.
pub(super) const POD_CIDRS: &str = "headcni.io/pod-cidrs";
/// Annotation with a node's tailnet IPs.
pub(super) const TAILNET_IPS: &str = "headcni.io/tailnet-ips";
/// Annotation with `Ready`, or the mesh condition that fails.
pub(super) const MESH: &str = "headcni.io/mesh";

/// A node has one per family; more are ignored.
const MAX_TAILNET_IPS: usize = 4;

/// The scheduler's taint follows this condition type.
pub(super) const NETWORK_UNAVAILABLE: &str = "NetworkUnavailable";

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Node {
    pub(super) metadata: ObjectMeta,
    spec: Spec,
    status: Status,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
struct Spec {
    #[serde(rename = "podCIDRs")]
    pod_cidrs: Vec<String>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
struct Status {
    conditions: Vec<Condition>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub(super) struct Condition {
    #[serde(rename = "type")]
    kind: String,
    pub(super) status: String,
    pub(super) message: String,
}

impl Node {
    /// Leaves out what does not parse: the node that wrote it reports that.
    pub(super) fn facts(&self) -> NodeFacts {
        let annotated = |key: &str| self.annotation(key).unwrap_or_default().split(',');
        let addresses =
            annotated(TAILNET_IPS).filter_map(|text| text.trim().parse::<IpAddr>().ok());
        NodeFacts {
            assigned: prefixes(self.spec.pod_cidrs.iter().map(String::as_str)),
            // The size limit of annotations allows for thousands.
            annotated: prefixes(annotated(POD_CIDRS).take(MAX_NODE_ROUTES)),
            tailnet_ips: addresses.take(MAX_TAILNET_IPS).collect(),
        }
    }

    pub(super) fn annotation(&self, key: &str) -> Option<&str> {
        let annotations = self.metadata.annotations.as_ref()?;
        annotations.get(key).map(String::as_str)
    }

    pub(super) fn network_unavailable(&self) -> Option<&Condition> {
        let mut conditions = self.status.conditions.iter();
        conditions.find(|condition| condition.kind == NETWORK_UNAVAILABLE)
    }
}

fn prefixes<'a>(texts: impl Iterator<Item = &'a str>) -> Vec<IpNet> {
    let prefixes = texts.filter_map(|text| text.trim().parse::<IpNet>().ok());
    prefixes.map(|prefix| prefix.trunc()).collect()
}

impl Resource for Node {
    type DynamicType = ();
    type Scope = ClusterResourceScope;

    fn kind((): &()) -> Cow<'_, str> {
        "Node".into()
    }

    fn group((): &()) -> Cow<'_, str> {
        "".into()
    }

    fn version((): &()) -> Cow<'_, str> {
        "v1".into()
    }

    fn plural((): &()) -> Cow<'_, str> {
        "nodes".into()
    }

    fn meta(&self) -> &ObjectMeta {
        &self.metadata
    }

    fn meta_mut(&mut self) -> &mut ObjectMeta {
        &mut self.metadata
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn facts(text: serde_json::Value) -> [Vec<String>; 3] {
        let node: Node = serde_json::from_value(text).unwrap();
        let facts = node.facts();
        let texts = |nets: &[IpNet]| nets.iter().map(IpNet::to_string).collect();
        let addresses = facts.tailnet_ips.iter().map(IpAddr::to_string).collect();
        [texts(&facts.assigned), texts(&facts.annotated), addresses]
    }

    #[test]
    fn pod_cidrs_and_tailnet_ips_are_read_and_invalid_ones_ignored() {
        let [assigned, annotated, addresses] = facts(json!({
            "metadata": {"name": "n1", "annotations": {
                POD_CIDRS: "10.9.1.7/24, fd00::/64,x",
                TAILNET_IPS: "100.64.0.1, fd7a:115c:a1e0::1,,x",
            }},
            "spec": {"podCIDR": "10.244.1.0/24", "podCIDRs": ["10.244.1.0/24", "fd00:244::/64", ""]},
            "status": {"images": [{"names": ["a"]}]},
        }));
        assert_eq!(assigned, ["10.244.1.0/24", "fd00:244::/64"]);
        assert_eq!(annotated, ["10.9.1.0/24", "fd00::/64"]);
        assert_eq!(addresses, ["100.64.0.1", "fd7a:115c:a1e0::1"]);
        let none: [Vec<String>; 3] = Default::default();
        assert_eq!(facts(json!({"metadata": {"name": "n1"}})), none);
        assert_eq!(facts(json!({"metadata": {"name": "n1"}, "spec": {}})), none);
    }

    #[test]
    fn annotations_with_too_many_entries_are_truncated() {
        let all = |one: &str, count: usize| vec![one; count].join(",");
        let [_, annotated, addresses] = facts(json!({"metadata": {"name": "n1", "annotations": {
            POD_CIDRS: all("10.9.1.0/24", MAX_NODE_ROUTES + 1),
            TAILNET_IPS: all("100.64.0.1", MAX_TAILNET_IPS + 1),
        }}}));
        assert_eq!(
            (annotated.len(), addresses.len()),
            (MAX_NODE_ROUTES, MAX_TAILNET_IPS)
        );
    }
}
