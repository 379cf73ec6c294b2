//! Nodes and pods as the API writes them, with what we need of them and no more: a thousand nodes are
//! read at each start of a daemon.

use std::borrow::Cow;

use ipnet::IpNet;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::Resource;
use kube::core::{ClusterResourceScope, NamespaceResourceScope};
use serde::Deserialize;

use super::NodeFacts;

/// The annotation by which a daemon says which networks its node's pods have.
pub(super) const POD_CIDRS: &str = "headcni.io/pod-cidrs";
/// And by which addresses its node is a member of the mesh.
pub(super) const TAILNET_IPS: &str = "headcni.io/tailnet-ips";
/// And whether the mesh serves it.
pub(super) const MESH: &str = "headcni.io/mesh";

/// A node.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Node {
    pub(super) metadata: ObjectMeta,
    spec: Spec,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
struct Spec {
    #[serde(rename = "podCIDRs")]
    pod_cidrs: Vec<String>,
}

/// A pod: that there is one is all.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Pod {
    pub(super) metadata: ObjectMeta,
}

impl Node {
    /// What there is to know of it. What is no network is left out: whoever wrote it is told by others.
    pub(super) fn facts(&self) -> NodeFacts {
        let annotations = self.metadata.annotations.as_ref();
        let said = annotations.and_then(|all| all.get(POD_CIDRS));
        let said = said.map_or("", String::as_str).split(',');
        NodeFacts {
            assigned: networks(self.spec.pod_cidrs.iter().map(String::as_str)),
            said: networks(said),
        }
    }
}

fn networks<'a>(texts: impl Iterator<Item = &'a str>) -> Vec<IpNet> {
    let networks = texts.filter_map(|text| text.trim().parse::<IpNet>().ok());
    networks.map(|network| network.trunc()).collect()
}

/// Makes it an object of the API's core.
macro_rules! core_resource {
    ($type:ty, $kind:literal, $plural:literal, $scope:ty) => {
        impl Resource for $type {
            type DynamicType = ();
            type Scope = $scope;

            fn kind((): &()) -> Cow<'_, str> {
                $kind.into()
            }

            fn group((): &()) -> Cow<'_, str> {
                "".into()
            }

            fn version((): &()) -> Cow<'_, str> {
                "v1".into()
            }

            fn plural((): &()) -> Cow<'_, str> {
                $plural.into()
            }

            fn meta(&self) -> &ObjectMeta {
                &self.metadata
            }

            fn meta_mut(&mut self) -> &mut ObjectMeta {
                &mut self.metadata
            }
        }
    };
}

core_resource!(Node, "Node", "nodes", ClusterResourceScope);
core_resource!(Pod, "Pod", "pods", NamespaceResourceScope);

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn facts(text: serde_json::Value) -> (Vec<String>, Vec<String>) {
        let node: Node = serde_json::from_value(text).unwrap();
        let facts = node.facts();
        let texts = |nets: &[IpNet]| nets.iter().map(IpNet::to_string).collect();
        (texts(&facts.assigned), texts(&facts.said))
    }

    #[test]
    fn networks_are_read_and_what_is_none_is_left_out() {
        let (assigned, said) = facts(json!({
            "metadata": {"name": "n1", "annotations": {POD_CIDRS: "10.9.1.7/24, fd00::/64,x"}},
            "spec": {"podCIDR": "10.244.1.0/24", "podCIDRs": ["10.244.1.0/24", "fd00:244::/64", ""]},
            "status": {"images": [{"names": ["a"]}]},
        }));
        assert_eq!(assigned, ["10.244.1.0/24", "fd00:244::/64"]);
        assert_eq!(said, ["10.9.1.0/24", "fd00::/64"]);
        assert_eq!(facts(json!({"metadata": {"name": "n1"}})), (vec![], vec![]));
        assert_eq!(
            facts(json!({"metadata": {"name": "n1"}, "spec": {}})),
            (vec![], vec![])
        );
    }
}
