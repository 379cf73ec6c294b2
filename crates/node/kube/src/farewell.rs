//! Takes back what daemons have said on this node's object: for `uninstall`.
//!
//! A node that is left clean counts for more than an object that is. So this takes a bounded time, and
//! what it could not do is told together with what a person can do about it.

use std::time::Duration;

use kube::Client;
use kube::api::{Api, ApiResource, DynamicObject, Patch, PatchParams};
use serde_json::{Value, json};
use tokio::time::timeout;

use super::client;
use super::node::{MESH, Node, POD_CIDRS, TAILNET_IPS};
use node_config::Kubernetes;
use node_core::error::display_chain;
use node_core::node_name::{NodeName, NodeNameError};

/// For all of it.
const LIMIT: Duration = Duration::from_secs(10);
/// The API's answer for what is not there.
const NOT_FOUND: u16 = 404;
/// What the reasons of a condition begin with that we have set. A cloud's own networks set the same one.
const OUR_REASONS: &str = "Headcni";

/// Does it if the API is asked at all, and tells what came of it; blocks.
pub fn take_back(
    config: &Kubernetes,
    node: Result<NodeName, NodeNameError>,
    tell: &mut (dyn FnMut(String) + Send),
) {
    if !client::is_asked(config) {
        return;
    }
    let node = match node {
        Ok(node) => node,
        Err(error) => return tell(format!("left at the Kubernetes API: {error}")),
    };
    match attempt(config, &node) {
        Ok(Parting::TakenBack) => tell(format!("took our words off the Node {node}")),
        Ok(Parting::NoNode) => tell(format!("there is no Node {node} to take our words off")),
        Err(why) => tell(format!(
            "left at the Kubernetes API: the Node {node} may still have our annotations and \
             NetworkUnavailable ({why}): docs/troubleshooting.md says how to take them off"
        )),
    }
}

/// What came of it.
enum Parting {
    TakenBack,
    NoNode,
}

fn attempt(config: &Kubernetes, node: &NodeName) -> Result<Parting, String> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|error| error.to_string())?;
    let work = async {
        let connected = client::connect(config).await;
        match connected.map_err(|error| display_chain(&error))? {
            None => Err("it is not asked".to_owned()),
            Some(client) => part(client, node)
                .await
                .map_err(|error| display_chain(&error)),
        }
    };
    let outcome = runtime.block_on(async { timeout(LIMIT, work).await });
    // Somebody may be looking up a name still, and is not waited for.
    runtime.shutdown_background();
    outcome.unwrap_or_else(|_| Err(format!("there was no answer within {LIMIT:?}")))
}

async fn part(client: Client, node: &NodeName) -> Result<Parting, kube::Error> {
    let nodes: Api<DynamicObject> = Api::all_with(client, &ApiResource::erase::<Node>(&()));
    let (name, params) = (node.as_str(), PatchParams::default());
    let object = match nodes.patch(name, &params, &Patch::Merge(no_words())).await {
        Err(kube::Error::Api(status)) if status.code == NOT_FOUND => return Ok(Parting::NoNode),
        outcome => outcome?,
    };
    if has_our_condition(&object.data) {
        let change = Patch::Strategic(no_condition());
        nodes.patch_status(name, &params, &change).await?;
    }
    Ok(Parting::TakenBack)
}

/// The change of the object.
fn no_words() -> Value {
    json!({"metadata": {"annotations": {POD_CIDRS: null, TAILNET_IPS: null, MESH: null}}})
}

/// The change of its status.
fn no_condition() -> Value {
    json!({"status": {"conditions": [{"$patch": "delete", "type": "NetworkUnavailable"}]}})
}

/// Whether the condition is there, and by us.
fn has_our_condition(node: &Value) -> bool {
    let conditions = node["status"]["conditions"]
        .as_array()
        .into_iter()
        .flatten();
    conditions
        .filter(|condition| condition["type"] == "NetworkUnavailable")
        .filter_map(|condition| condition["reason"].as_str())
        .any(|reason| reason.starts_with(OUR_REASONS))
}

#[cfg(test)]
mod tests {
    use jiff::Timestamp;

    use super::*;
    use crate::tell::Words;
    use node_core::MeshState;
    use node_core::conditions::{Condition, Conditions};

    #[test]
    fn every_word_is_taken_back_and_no_other() {
        let conditions = Conditions::default();
        for holds in [true, false] {
            if holds {
                conditions.holds(Condition::CniConfigWritten, "");
            } else {
                conditions.fails(Condition::CniConfigWritten, "not yet");
            }
            let words = Words::new(None, &MeshState::default(), &conditions.snapshot());
            assert!(has_our_condition(&words.status(Timestamp::UNIX_EPOCH)));
            let keys = |change: &Value| -> Vec<String> {
                let all = change["metadata"]["annotations"].as_object().unwrap();
                all.keys().cloned().collect()
            };
            assert_eq!(keys(&no_words()), keys(&words.annotations()));
        }
        let clouds = json!({"type": "NetworkUnavailable", "reason": "RouteCreated"});
        let kubelets = json!({"type": "Ready", "reason": "HeadcniIsUp"});
        let node = json!({"status": {"conditions": [clouds, kubelets]}});
        assert!(!has_our_condition(&node) && !has_our_condition(&json!({})));
    }
}
