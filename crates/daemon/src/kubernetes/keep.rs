//! Watches nodes and this node's pods, and keeps this node's object up to date, until it is told to end.

use std::path::PathBuf;
use std::pin::pin;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use futures_util::StreamExt;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::ObjectReference;
use kube::Client;
use kube::api::{Api, Patch, PatchParams};
use kube::runtime::events::{Event as ApiEvent, EventType, Recorder, Reporter};
use kube::runtime::watcher::{self, Event};
use kube::runtime::{WatchStreamExt, watcher as watch};
use tokio::sync::watch::{Receiver, Sender};
use tokio::time::{MissedTickBehavior, interval, sleep, timeout};
use tokio_util::sync::CancellationToken;

use super::node::{Node, Pod};
use super::nodes::Nodes;
use super::tell::Words;
use super::told::{News, Told};
use super::{Known, client, memory, selection};
use crate::causes::with_causes;
use crate::conditions::Condition;
use crate::config::Config;
use crate::keeper::Reports;
use crate::node_name::NodeName;
use crate::pods::Pods;
use crate::settings::Settings;

/// When a client that could not be made is made again.
const AFTER_FAILURE: Duration = Duration::from_secs(5);
/// How often it is looked whether this node's object says what it should.
const TELL: Duration = Duration::from_secs(2);
/// For all that is told at a time.
const LIMIT: Duration = Duration::from_secs(5);
/// The longest note that an Event takes, in bytes.
const LONGEST_NOTE: usize = 1024;

/// What this needs of the rest of the daemon.
pub struct Ends {
    /// What to go by, and where others find what the API says.
    pub settings: Sender<Settings>,
    /// Where to report.
    pub reports: Reports,
    /// The pods of this node.
    pub pods: Arc<Pods>,
    /// What has to be known after a restart.
    pub state_dir: PathBuf,
}

/// Watches and tells until it is told to end.
pub async fn keep(ends: Ends, end: CancellationToken) {
    // Nothing here is lost when it is dropped: the next start lists all of it.
    end.run_until_cancelled(Box::pin(ends.keep())).await;
}

impl Ends {
    async fn keep(&self) {
        let mut changes = self.settings.subscribe();
        loop {
            let (config, node) = {
                let settings = changes.borrow_and_update();
                (Arc::clone(&settings.config), settings.node.clone())
            };
            let conditions = &self.reports.conditions;
            match client::connect(&config.kubernetes).await {
                Ok(None) => {
                    self.publish(|known| known.is_asked = false);
                    let message = "the Kubernetes API is not asked";
                    conditions.holds(Condition::KubernetesReachable, message);
                    other(&mut changes, &config).await;
                }
                Ok(Some(client)) => {
                    self.publish(|known| known.is_asked = true);
                    tokio::select! {
                        () = self.watch(&client, &config, &node) => sleep(AFTER_FAILURE).await,
                        () = other(&mut changes, &config) => {}
                    }
                }
                Err(error) => {
                    self.publish(|known| known.is_asked = true);
                    conditions.fails(Condition::KubernetesReachable, with_causes(&error));
                    let _ = timeout(AFTER_FAILURE, other(&mut changes, &config)).await;
                }
            }
        }
    }

    /// Watches and tells until a watch ends, which none does by itself.
    async fn watch(&self, client: &Client, config: &Config, node: &NodeName) {
        let nodes = watch(Api::<Node>::all(client.clone()), selection::nodes());
        let own = selection::of_node(&config.kubernetes, node);
        let pods = watch(Api::<Pod>::all(client.clone()), own);
        let (mut nodes, mut pods) = (pin!(nodes.default_backoff()), pin!(pods.default_backoff()));
        let mut known = Nodes::new(self.settings.borrow().kubernetes.nodes.clone());
        let mut teller = Teller::new(client, node);
        let mut tick = interval(TELL);
        tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut is_kept = true;
        loop {
            tokio::select! {
                event = nodes.next() => match event {
                    Some(Ok(event)) => {
                        self.reached(&event);
                        if known.take(event) {
                            self.publish(|all| all.nodes = known.known().cloned());
                            is_kept = false;
                        }
                    }
                    Some(Err(error)) => self.failed(&error),
                    None => return,
                },
                event = pods.next() => match event {
                    // What becomes of pods is seen in the kernel. That something did is all that counts.
                    Some(Ok(Event::Apply(_) | Event::Delete(_) | Event::InitDone)) => self.pods.missed(),
                    Some(Ok(Event::Init | Event::InitApply(_))) => {}
                    Some(Err(error)) => self.failed(&error),
                    None => return,
                },
                _ = tick.tick() => {
                    if !is_kept {
                        self.save(&known).await;
                        is_kept = true;
                    }
                    let settings = self.settings.borrow().clone();
                    let all = self.reports.conditions.snapshot();
                    if timeout(LIMIT, teller.tell(&settings, &all)).await.is_err() {
                        tracing::debug!("the Kubernetes API takes too long to be told");
                    }
                }
            }
        }
    }

    fn publish(&self, change: impl FnOnce(&mut Known)) {
        self.settings.send_if_modified(|settings| {
            let mut known = Known::clone(&settings.kubernetes);
            change(&mut known);
            let is_other = known != *settings.kubernetes;
            if is_other {
                settings.kubernetes = Arc::new(known);
            }
            is_other
        });
    }

    fn reached(&self, event: &Event<Node>) {
        if !matches!(event, Event::Init) {
            let conditions = &self.reports.conditions;
            conditions.holds(Condition::KubernetesReachable, "the Kubernetes API answers");
        }
    }

    fn failed(&self, error: &watcher::Error) {
        let message = format!(
            "{}: pods run on; what the API said last holds",
            with_causes(error)
        );
        let conditions = &self.reports.conditions;
        conditions.fails(Condition::KubernetesReachable, message);
    }

    async fn save(&self, nodes: &Nodes) {
        let (dir, nodes) = (self.state_dir.clone(), nodes.known().cloned());
        let saved = tokio::task::spawn_blocking(move || {
            nodes.map_or(Ok(()), |nodes| memory::save(&dir, &nodes))
        });
        if let Ok(Err(error)) = saved.await {
            tracing::warn!(%error, "what the Kubernetes API said can't be kept");
        }
    }
}

/// Waits until another configuration asks the API in another way.
async fn other(changes: &mut Receiver<Settings>, config: &Config) {
    loop {
        if changes.changed().await.is_err() {
            return std::future::pending().await;
        }
        if changes.borrow_and_update().config.kubernetes != config.kubernetes {
            return;
        }
    }
}

/// Tells the API about this node.
struct Teller {
    node: NodeName,
    nodes: Api<Node>,
    recorder: Recorder,
    /// What the object says by now.
    said: Option<Words>,
    told: Told,
}

impl Teller {
    fn new(client: &Client, node: &NodeName) -> Self {
        let reporter = Reporter {
            controller: "headcni-daemon".to_owned(),
            instance: Some(node.to_string()),
        };
        Self {
            node: node.clone(),
            nodes: Api::all(client.clone()),
            recorder: Recorder::new(client.clone(), reporter),
            said: None,
            told: Told::default(),
        }
    }

    /// Tells what is new. What could not be told is told the next time.
    async fn tell(
        &mut self,
        settings: &Settings,
        conditions: &[(Condition, crate::conditions::State)],
    ) {
        let words = Words::new(settings, conditions);
        if let Err(error) = self.say(&words).await {
            tracing::debug!(error = with_causes(&error), "the Node object is not told");
        } else {
            self.said = Some(words);
        }
        for news in self.told.news(conditions, SystemTime::now()) {
            if let Err(error) = self.announce(&news).await {
                tracing::debug!(error = with_causes(&error), "an Event is not told");
            }
        }
    }

    async fn say(&self, words: &Words) -> Result<(), kube::Error> {
        let (name, params) = (self.node.as_str(), PatchParams::default());
        let before = self.said.as_ref();
        if words.has_other_annotations(before) {
            let change = Patch::Merge(words.annotations());
            self.nodes.patch(name, &params, &change).await?;
        }
        if words.has_other_status(before) {
            let change = Patch::Strategic(words.status(Timestamp::now()));
            self.nodes.patch_status(name, &params, &change).await?;
        }
        Ok(())
    }

    async fn announce(&self, news: &News) -> Result<(), kube::Error> {
        let name = self.node.to_string();
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
