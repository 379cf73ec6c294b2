//! Removes this node's annotations and condition from its Node object: for `uninstall`.
//!
//! A clean host matters more than a clean Node object. So this takes a bounded time, and a failure
//! is reported with its remedy instead of failing the uninstall.

use std::time::Duration;

use kube::Client;
use kube::api::{Api, ApiResource, DynamicObject, Patch, PatchParams};
use serde_json::{Value, json};
use tokio::time::timeout;

use super::client;
use super::node::{MESH, NETWORK_UNAVAILABLE, Node, POD_CIDRS, TAILNET_IPS};
use node_config::Kubernetes;
use node_core::error::display_chain;
use node_core::node_name::{NodeName, NodeNameError};

/// For all requests together.
const TIMEOUT: Duration = Duration::from_secs(10);
const NOT_FOUND: u16 = 404;
/// The prefix of our condition's reasons. Cloud providers set the same condition.
const REASON_PREFIX: &str = "Headcni";

/// Removes what this node published, if the API is enabled; blocks.
pub fn cleanup(
    config: &Kubernetes,
    node: Result<NodeName, NodeNameError>,
    report: &mut (dyn FnMut(String) + Send),
) {
    if !client::is_enabled(config) {
        return;
    }
    let node = match node {
        Ok(node) => node,
        Err(error) => return report(format!("failed to clean up the Node object: {error}")),
    };
    match attempt(config, &node) {
        Ok(Cleanup::Done) => report(format!("removed our annotations from Node {node}")),
        Ok(Cleanup::NoNode) => report(format!("there is no Node {node} to clean up")),
        Err(reason) => report(format!(
            "failed to clean up Node {node}: {reason}; it may still have our annotations and \
             NetworkUnavailable; to remove them see docs/troubleshooting.md"
        )),
    }
}

enum Cleanup {
    Done,
    NoNode,
}

fn attempt(config: &Kubernetes, node: &NodeName) -> Result<Cleanup, String> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|error| error.to_string())?;
    let work = async {
        let connected = client::connect(config).await;
        match connected.map_err(|error| display_chain(&error))? {
            None => Err("the Kubernetes API is disabled".to_owned()),
            Some(client) => clean_node(client, node)
                .await
                .map_err(|error| display_chain(&error)),
        }
    };
    let outcome = runtime.block_on(async { timeout(TIMEOUT, work).await });
    // Does not wait for a DNS lookup that still blocks.
    runtime.shutdown_background();
    outcome.unwrap_or_else(|_| Err(format!("no answer within {TIMEOUT:?}")))
}

async fn clean_node(client: Client, node: &NodeName) -> Result<Cleanup, kube::Error> {
    let nodes: Api<DynamicObject> = Api::all_with(client, &ApiResource::erase::<Node>(&()));
    let (name, params) = (node.as_str(), PatchParams::default());
    let patch = Patch::Merge(annotations_removed());
    let object = match nodes.patch(name, &params, &patch).await {
        Err(kube::Error::Api(status)) if status.code == NOT_FOUND => return Ok(Cleanup::NoNode),
        outcome => outcome?,
    };
    if has_our_condition(&object.data) {
        let patch = Patch::Strategic(condition_removed());
        nodes.patch_status(name, &params, &patch).await?;
    }
    Ok(Cleanup::Done)
}

fn annotations_removed() -> Value {
    json!({"metadata": {"annotations": {POD_CIDRS: null, TAILNET_IPS: null, MESH: null}}})
}

fn condition_removed() -> Value {
    json!({"status": {"conditions": [{"$patch": "delete", "type": NETWORK_UNAVAILABLE}]}})
}

fn has_our_condition(node: &Value) -> bool {
    let conditions = node["status"]["conditions"]
        .as_array()
        .into_iter()
        .flatten();
    conditions
        .filter(|condition| condition["type"] == NETWORK_UNAVAILABLE)
        .filter_map(|condition| condition["reason"].as_str())
        .any(|reason| reason.starts_with(REASON_PREFIX))
}

#[cfg(test)]
mod tests {
    use jiff::Timestamp;

    use super::*;
    use crate::node_patch::NodePatch;
    use node_core::MeshState;
    use node_core::conditions::{Condition, Conditions};

    #[test]
    fn exactly_what_a_node_patch_sets_is_removed() {
        let conditions = Conditions::default();
        for holds in [true, false] {
            if holds {
                conditions.holds(Condition::CniConfigWritten, "");
            } else {
                conditions.fails(Condition::CniConfigWritten, "not yet");
            }
            let patch = NodePatch::new(None, &MeshState::default(), &conditions.snapshot());
            assert!(has_our_condition(&patch.status(Timestamp::UNIX_EPOCH)));
            let keys = |patch: &Value| -> Vec<String> {
                let all = patch["metadata"]["annotations"].as_object().unwrap();
                all.keys().cloned().collect()
            };
            assert_eq!(keys(&annotations_removed()), keys(&patch.annotations()));
        }
        let clouds = json!({"type": "NetworkUnavailable", "reason": "RouteCreated"});
        let kubelets = json!({"type": "Ready", "reason": "HeadcniReady"});
        let node = json!({"status": {"conditions": [clouds, kubelets]}});
        assert!(!has_our_condition(&node) && !has_our_condition(&json!({})));
    }
}
