//! Nodes as the API writes them, with what we need of them and no more: a thousand nodes are read at each
//! start of a daemon.

use std::borrow::Cow;
use std::net::IpAddr;

use ipnet::IpNet;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::Resource;
use kube::core::ClusterResourceScope;
use serde::Deserialize;

use node_core::NodeFacts;
use node_core::routing::MAX_NODE_ROUTES;

/// The annotation by which a daemon says which networks its node's pods have.
pub(super) const POD_CIDRS: &str = "headcni.io/pod-cidrs";
/// And by which addresses its node is a member of the mesh.
pub(super) const TAILNET_IPS: &str = "headcni.io/tailnet-ips";
/// And whether the mesh serves it.
pub(super) const MESH: &str = "headcni.io/mesh";

/// So many addresses of a node in the mesh are read: it has one of each family.
const MOST_ADDRESSES: usize = 4;

/// The type of the condition that says whether a node has a network for pods.
pub(super) const NETWORK_UNAVAILABLE: &str = "NetworkUnavailable";

/// A node.
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

/// A condition in a node's status.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub(super) struct Condition {
    #[serde(rename = "type")]
    kind: String,
    pub(super) status: String,
    pub(super) message: String,
}

impl Node {
    /// What there is to know of it. What is no network is left out: whoever wrote it is told by others.
    pub(super) fn facts(&self) -> NodeFacts {
        let said = |key: &str| self.annotation(key).unwrap_or_default().split(',');
        let addresses = said(TAILNET_IPS).filter_map(|text| text.trim().parse::<IpAddr>().ok());
        NodeFacts {
            assigned: networks(self.spec.pod_cidrs.iter().map(String::as_str)),
            // An annotation has room for thousands.
            annotated: networks(said(POD_CIDRS).take(MAX_NODE_ROUTES)),
            tailnet_ips: addresses.take(MOST_ADDRESSES).collect(),
        }
    }

    /// The value of an annotation.
    pub(super) fn annotation(&self, key: &str) -> Option<&str> {
        let annotations = self.metadata.annotations.as_ref()?;
        annotations.get(key).map(String::as_str)
    }

    /// Whether it has a network, if somebody says so.
    pub(super) fn network_unavailable(&self) -> Option<&Condition> {
        let mut conditions = self.status.conditions.iter();
        conditions.find(|condition| condition.kind == NETWORK_UNAVAILABLE)
    }
}

fn networks<'a>(texts: impl Iterator<Item = &'a str>) -> Vec<IpNet> {
    let networks = texts.filter_map(|text| text.trim().parse::<IpNet>().ok());
    networks.map(|network| network.trunc()).collect()
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
    fn networks_and_addresses_are_read_and_what_is_none_is_left_out() {
        let [assigned, said, addresses] = facts(json!({
            "metadata": {"name": "n1", "annotations": {
                POD_CIDRS: "10.9.1.7/24, fd00::/64,x",
                TAILNET_IPS: "100.64.0.1, fd7a:115c:a1e0::1,,x",
            }},
            "spec": {"podCIDR": "10.244.1.0/24", "podCIDRs": ["10.244.1.0/24", "fd00:244::/64", ""]},
            "status": {"images": [{"names": ["a"]}]},
        }));
        assert_eq!(assigned, ["10.244.1.0/24", "fd00:244::/64"]);
        assert_eq!(said, ["10.9.1.0/24", "fd00::/64"]);
        assert_eq!(addresses, ["100.64.0.1", "fd7a:115c:a1e0::1"]);
        let none: [Vec<String>; 3] = Default::default();
        assert_eq!(facts(json!({"metadata": {"name": "n1"}})), none);
        assert_eq!(facts(json!({"metadata": {"name": "n1"}, "spec": {}})), none);
    }

    #[test]
    fn of_more_than_a_node_can_have_the_first_are_read() {
        let all = |one: &str, count: usize| vec![one; count].join(",");
        let [_, said, addresses] = facts(json!({"metadata": {"name": "n1", "annotations": {
            POD_CIDRS: all("10.9.1.0/24", MAX_NODE_ROUTES + 1),
            TAILNET_IPS: all("100.64.0.1", MOST_ADDRESSES + 1),
        }}}));
        assert_eq!(
            (said.len(), addresses.len()),
            (MAX_NODE_ROUTES, MOST_ADDRESSES)
        );
    }
}
