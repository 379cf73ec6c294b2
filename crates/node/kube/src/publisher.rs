//! Patches this node's Node object and creates its Events.

use std::time::SystemTime;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::ObjectReference;
use kube::Client;
use kube::api::{Api, Patch, PatchParams};
use kube::runtime::events::{Event as ApiEvent, EventType, Recorder, Reporter};
use kube::runtime::watcher::Event;
use tokio::time::timeout;

use super::REQUEST_TIMEOUT;
use super::events::{ConditionEvent, ReportedFailures};
use super::node::Node;
use super::node_patch::NodePatch;
use super::own_node::OwnNode;
use node_core::conditions::{Condition, ConditionReport};
use node_core::error::display_chain;
use node_core::node_name::NodeName;

/// The API's limit for the note of an Event, in bytes.
const MAX_NOTE_LEN: usize = 1024;

pub(super) struct Publisher {
    nodes: Api<Node>,
    recorder: Recorder,
    own_node: OwnNode,
    reported: ReportedFailures,
    last_error: Option<String>,
}

impl Publisher {
    pub(super) fn new(client: &Client, node: &NodeName) -> Self {
        let reporter = Reporter {
            controller: "headcni-daemon".to_owned(),
            instance: Some(node.to_string()),
        };
        Self {
            nodes: Api::all(client.clone()),
            recorder: Recorder::new(client.clone(), reporter),
            own_node: OwnNode::new(node.clone()),
            reported: ReportedFailures::default(),
            last_error: None,
        }
    }

    pub(super) fn handle(&mut self, event: &Event<Node>) {
        self.own_node.handle(event);
    }

    /// Publishes what differs. The next call retries what failed.
    pub(super) async fn publish(
        &mut self,
        patch: &NodePatch,
        conditions: &[(Condition, ConditionReport)],
    ) {
        let patched = timeout(REQUEST_TIMEOUT, self.patch_node(patch)).await;
        self.log_patch_error(match patched {
            Ok(Ok(())) => None,
            Ok(Err(error)) => Some(display_chain(&error)),
            Err(_) => Some(format!("no answer within {REQUEST_TIMEOUT:?}")),
        });
        for event in self.reported.due(conditions, SystemTime::now()) {
            match timeout(REQUEST_TIMEOUT, self.create_event(&event)).await {
                Ok(Ok(())) => {}
                // The API would reject it again.
                Ok(Err(kube::Error::Api(error))) => {
                    tracing::debug!(%error, "Kubernetes API rejected an Event");
                }
                Ok(Err(error)) => {
                    tracing::debug!(error = display_chain(&error), "failed to create an Event");
                    return;
                }
                Err(_) => return,
            }
            self.reported.mark_published(&event);
        }
    }

    /// Logs an error once, however often it is retried.
    fn log_patch_error(&mut self, error: Option<String>) {
        if let Some(reason) = &error
            && self.last_error != error
        {
            tracing::warn!(reason, "failed to patch the Node");
        }
        self.last_error = error;
    }

    /// Compares with the object instead of the last patch: the object may have been recreated or edited.
    async fn patch_node(&mut self, patch: &NodePatch) -> Result<(), kube::Error> {
        let (name, params) = (self.own_node.name().to_string(), PatchParams::default());
        let observed = self.own_node.observed();
        if observed.is_some_and(|node| !patch.matches_annotations(node)) {
            let patch = Patch::Merge(patch.annotations());
            let patched = self.nodes.patch(&name, &params, &patch).await?;
            self.own_node.set(patched);
        }
        let observed = self.own_node.observed();
        if observed.is_some_and(|node| !patch.matches_status(node)) {
            let patch = Patch::Strategic(patch.status(Timestamp::now()));
            let patched = self.nodes.patch_status(&name, &params, &patch).await?;
            self.own_node.set(patched);
        }
        Ok(())
    }

    async fn create_event(&self, event: &ConditionEvent) -> Result<(), kube::Error> {
        let name = self.own_node.name().to_string();
        // The kubelet uses the name as uid too, and `kubectl describe node` searches by it.
        let reference = ObjectReference {
            kind: Some("Node".to_owned()),
            uid: Some(name.clone()),
            name: Some(name),
            ..ObjectReference::default()
        };
        let (type_, suffix) = if event.is_true {
            (EventType::Normal, "")
        } else {
            (EventType::Warning, "Failed")
        };
        let note = &event.message[..event.message.floor_char_boundary(MAX_NOTE_LEN)];
        let event = ApiEvent {
            type_,
            reason: format!("{}{suffix}", event.condition.name()),
            note: Some(note.to_owned()),
            action: "Reconcile".to_owned(),
            secondary: None,
        };
        self.recorder.publish(&event, &reference).await
    }
}
