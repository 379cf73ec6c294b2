//! Tells the API about this node: its object, and Events of it.

use std::time::SystemTime;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::ObjectReference;
use kube::Client;
use kube::api::{Api, Patch, PatchParams};
use kube::runtime::events::{Event as ApiEvent, EventType, Recorder, Reporter};
use kube::runtime::watcher::Event;
use tokio::time::timeout;

use super::ANSWER;
use super::node::Node;
use super::own::Own;
use super::tell::Words;
use super::told::{News, Told};
use node_core::conditions::{Condition, State};
use node_core::error::display_chain;
use node_core::node_name::NodeName;

/// The longest note that an Event takes, in bytes.
const LONGEST_NOTE: usize = 1024;

/// Tells what the API does not know yet.
pub(super) struct Teller {
    nodes: Api<Node>,
    recorder: Recorder,
    own: Own,
    told: Told,
    /// Why the object could not be told last.
    trouble: Option<String>,
}

impl Teller {
    pub(super) fn new(client: &Client, node: &NodeName) -> Self {
        let reporter = Reporter {
            controller: "headcni-daemon".to_owned(),
            instance: Some(node.to_string()),
        };
        Self {
            nodes: Api::all(client.clone()),
            recorder: Recorder::new(client.clone(), reporter),
            own: Own::new(node.clone()),
            told: Told::default(),
            trouble: None,
        }
    }

    /// Hears what a watch tells of nodes.
    pub(super) fn hear(&mut self, event: &Event<Node>) {
        self.own.take(event);
    }

    /// Tells what is new. What could not be told is told the next time.
    pub(super) async fn tell(&mut self, words: &Words, conditions: &[(Condition, State)]) {
        let said = timeout(ANSWER, self.say(words)).await;
        self.note(match said {
            Ok(Ok(())) => None,
            Ok(Err(error)) => Some(display_chain(&error)),
            Err(_) => Some(format!("no answer within {ANSWER:?}")),
        });
        for news in self.told.news(conditions, SystemTime::now()) {
            match timeout(ANSWER, self.announce(&news)).await {
                Ok(Ok(())) => {}
                // It would be refused again.
                Ok(Err(kube::Error::Api(error))) => tracing::debug!(%error, "an Event is refused"),
                Ok(Err(error)) => {
                    tracing::debug!(error = display_chain(&error), "an Event is not told");
                    return;
                }
                Err(_) => return,
            }
            self.told.note(&news);
        }
    }

    /// Logs what is new of it: it is tried again and again.
    fn note(&mut self, trouble: Option<String>) {
        if let Some(reason) = &trouble
            && self.trouble != trouble
        {
            tracing::warn!(reason, "the Node object is not told how this node is");
        }
        self.trouble = trouble;
    }

    /// Says what the object does not say: whoever made it anew, or changed it, did not mean us.
    async fn say(&mut self, words: &Words) -> Result<(), kube::Error> {
        let (name, params) = (self.own.name().to_string(), PatchParams::default());
        if self
            .own
            .seen()
            .is_some_and(|node| !words.are_annotated(node))
        {
            let change = Patch::Merge(words.annotations());
            let now = self.nodes.patch(&name, &params, &change).await?;
            self.own.is_now(now);
        }
        if self
            .own
            .seen()
            .is_some_and(|node| !words.are_in_status(node))
        {
            let change = Patch::Strategic(words.status(Timestamp::now()));
            let now = self.nodes.patch_status(&name, &params, &change).await?;
            self.own.is_now(now);
        }
        Ok(())
    }

    async fn announce(&self, news: &News) -> Result<(), kube::Error> {
        let name = self.own.name().to_string();
        // The kubelet names nodes so, and so does who looks for their Events.
        let reference = ObjectReference {
            kind: Some("Node".to_owned()),
            uid: Some(name.clone()),
            name: Some(name),
            ..ObjectReference::default()
        };
        let (type_, ending) = if news.holds {
            (EventType::Normal, "")
        } else {
            (EventType::Warning, "Failed")
        };
        let event = ApiEvent {
            type_,
            reason: format!("{}{ending}", news.condition.name()),
            note: Some(shortened(&news.message).to_owned()),
            action: "Reconcile".to_owned(),
            secondary: None,
        };
        self.recorder.publish(&event, &reference).await
    }
}

/// As much of a text as fits.
fn shortened(text: &str) -> &str {
    &text[..text.floor_char_boundary(LONGEST_NOTE)]
}
