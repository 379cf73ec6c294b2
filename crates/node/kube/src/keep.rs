//! Watches nodes, this node's pods and namespaces, and keeps this node's object up to date, until it is
//! told to end.

use std::path::PathBuf;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use futures_util::StreamExt;
use k8s_openapi::api::core::v1::{Namespace, Pod};
use kube::Client;
use kube::api::Api;
use kube::core::PartialObjectMeta;
use kube::runtime::watcher::Event;
use kube::runtime::{WatchStreamExt, watcher as watch};
use tokio::sync::Notify;
use tokio::sync::watch::{Receiver, Sender};
use tokio::time::{MissedTickBehavior, interval, sleep, timeout};
use tokio_util::sync::CancellationToken;

use super::node::Node;
use super::nodes::Nodes;
use super::reach::{Reach, Watched};
use super::tell::Words;
use super::teller::Teller;
use super::{ANSWER, client, memory, selection};
use node_config::Config;
use node_config::NodeConfig;
use node_core::conditions::Condition;
use node_core::error::display_chain;
use node_core::node_name::NodeName;
use node_core::reconcile::Telemetry;
use node_core::{KubeNodes, MeshState};

/// When a client that could not be made is made again.
const AFTER_FAILURE: Duration = Duration::from_secs(5);
/// How often it is looked whether this node's object says what it should.
const TELL: Duration = Duration::from_secs(2);
/// What this needs of the rest of the daemon.
pub struct Ends {
    pub node_config: Receiver<NodeConfig>,
    pub mesh: Receiver<Arc<MeshState>>,
    /// Where the rest of the agent finds the Nodes.
    pub kube_nodes: Sender<Arc<KubeNodes>>,
    pub telemetry: Telemetry,
    /// Requests a resync of the attached pods.
    pub resync_pods: Arc<Notify>,
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
        let mut changes = self.node_config.clone();
        loop {
            let (config, node) = {
                let current = changes.borrow_and_update();
                (Arc::clone(&current.config), current.node.clone())
            };
            let conditions = &self.telemetry.conditions;
            match client::connect(&config.kubernetes).await {
                Ok(None) => {
                    self.is_asked(false);
                    let message = "the Kubernetes API is not asked";
                    conditions.holds(Condition::KubernetesReachable, message);
                    other(&mut changes, &config).await;
                }
                Ok(Some(client)) => {
                    self.is_asked(true);
                    tokio::select! {
                        () = self.watch(&client, &config, &node) => sleep(AFTER_FAILURE).await,
                        () = other(&mut changes, &config) => {}
                    }
                }
                Err(error) => {
                    self.is_asked(true);
                    conditions.fails(Condition::KubernetesReachable, display_chain(&error));
                    let _ = timeout(AFTER_FAILURE, other(&mut changes, &config)).await;
                }
            }
        }
    }

    /// Watches and tells until a watch ends, which none does by itself.
    async fn watch(&self, client: &Client, config: &Config, node: &NodeName) {
        let nodes = watch(Api::<Node>::all(client.clone()), selection::all());
        let own = selection::of_node(&config.kubernetes, node);
        let pods = watch(Api::<PartialObjectMeta<Pod>>::all(client.clone()), own);
        let spaces = Api::<PartialObjectMeta<Namespace>>::all(client.clone());
        let spaces = watch(spaces, selection::all());
        let mut nodes = pin!(nodes.default_backoff());
        let mut pods = pin!(pods.default_backoff());
        let mut spaces = pin!(spaces.default_backoff());
        let mut known = Nodes::new(self.kube_nodes.borrow().nodes.clone());
        let mut teller = Teller::new(client, node);
        let mut reach = Reach::default();
        let mut tick = interval(TELL);
        tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut is_kept = true;
        loop {
            tokio::select! {
                event = nodes.next() => {
                    let Some(event) = event else { return };
                    self.note(&mut reach, Watched::Nodes, &event);
                    let Ok(event) = event else { continue };
                    teller.hear(&event);
                    if known.take(event) {
                        self.publish(&known);
                        is_kept = false;
                    }
                }
                event = pods.next() => {
                    let Some(event) = event else { return };
                    self.note(&mut reach, Watched::Pods, &event);
                    // What becomes of pods is seen in the kernel. That something did is all that counts.
                    if matches!(event, Ok(Event::Apply(_) | Event::Delete(_) | Event::InitDone)) {
                        self.resync_pods.notify_one();
                    }
                }
                event = spaces.next() => {
                    let Some(event) = event else { return };
                    self.note(&mut reach, Watched::Namespaces, &event);
                    // Its pods are gone, and their events may have been missed.
                    if matches!(event, Ok(Event::Delete(_))) {
                        self.resync_pods.notify_one();
                    }
                }
                _ = tick.tick() => {
                    if !is_kept {
                        self.save(&known).await;
                        is_kept = true;
                    }
                    if reach.is_silent() && is_there(client).await {
                        reach.lives();
                        self.report(&reach);
                    }
                    let pod_cidrs = self.node_config.borrow().pod_cidrs.clone();
                    let mesh = Arc::clone(&self.mesh.borrow());
                    let all = self.telemetry.conditions.snapshot();
                    let words = Words::new(pod_cidrs.as_deref(), &mesh, &all);
                    teller.tell(&words, &all).await;
                }
            }
        }
    }

    fn is_asked(&self, is_asked: bool) {
        self.kube_nodes.send_if_modified(|nodes| {
            let is_other = nodes.is_enabled != is_asked;
            if is_other {
                Arc::make_mut(nodes).is_enabled = is_asked;
            }
            is_other
        });
    }

    fn publish(&self, nodes: &Nodes) {
        self.kube_nodes.send_replace(Arc::new(KubeNodes {
            is_enabled: true,
            nodes: nodes.known().cloned(),
        }));
    }

    /// Notes how a watch fares.
    fn note<K>(&self, reach: &mut Reach, watched: Watched, event: &watch::Result<Event<K>>) {
        match event {
            // Nobody has answered yet.
            Ok(Event::Init) => return,
            Ok(_) => reach.works(watched),
            Err(error) => reach.fails(watched, error),
        }
        self.report(reach);
    }

    fn report(&self, reach: &Reach) {
        let conditions = &self.telemetry.conditions;
        match reach.trouble() {
            None => {
                conditions.holds(Condition::KubernetesReachable, "the Kubernetes API answers");
            }
            Some(trouble) => {
                let message = format!("{trouble}: pods run on; what the API said last holds");
                conditions.fails(Condition::KubernetesReachable, message);
            }
        }
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
async fn other(changes: &mut Receiver<NodeConfig>, config: &Config) {
    loop {
        if changes.changed().await.is_err() {
            return std::future::pending().await;
        }
        if changes.borrow_and_update().config.kubernetes != config.kubernetes {
            return;
        }
    }
}

/// Whether the API answers: a watch that goes on after it was away has nothing to tell for minutes.
async fn is_there(client: &Client) -> bool {
    let answer = timeout(ANSWER, client.apiserver_version()).await;
    matches!(answer, Ok(Ok(_) | Err(kube::Error::Api(_))))
}
