//! Watches Nodes, this node's Pods and Namespaces, and keeps this node's Node object up to date.

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
use kube::runtime::{WatchStreamExt, watcher};
use tokio::sync::Notify;
use tokio::sync::watch::{Receiver, Sender};
use tokio::time::{MissedTickBehavior, interval, sleep, timeout};
use tokio_util::sync::CancellationToken;

use super::node::Node;
use super::node_cache::NodeCache;
use super::node_patch::NodePatch;
use super::publisher::Publisher;
use super::watch_health::{WatchHealth, Watched};
use super::{REQUEST_TIMEOUT, client, state, watch_config};
use node_config::Config;
use node_config::NodeConfig;
use node_core::conditions::Condition;
use node_core::error::display_chain;
use node_core::node_name::NodeName;
use node_core::reconcile::Telemetry;
use node_core::{KubeNodes, MeshState};

const RECONNECT_INTERVAL: Duration = Duration::from_secs(5);
const PUBLISH_INTERVAL: Duration = Duration::from_secs(2);

/// Produces [`KubeNodes`], and publishes this node's state in the API.
pub struct KubeController {
    pub node_config: Receiver<NodeConfig>,
    pub mesh: Receiver<Arc<MeshState>>,
    pub kube_nodes: Sender<Arc<KubeNodes>>,
    pub telemetry: Telemetry,
    /// Requests a resync of the attached pods.
    pub resync_pods: Arc<Notify>,
    pub state_dir: PathBuf,
}

impl KubeController {
    pub async fn run(self, shutdown: CancellationToken) {
        // Cancelling loses nothing: the next start lists everything.
        let running = Box::pin(self.run_until_cancelled());
        shutdown.run_until_cancelled(running).await;
    }

    async fn run_until_cancelled(&self) {
        let mut node_config = self.node_config.clone();
        loop {
            let (config, node) = {
                let current = node_config.borrow_and_update();
                (Arc::clone(&current.config), current.node.clone())
            };
            let conditions = &self.telemetry.conditions;
            match client::connect(&config.kubernetes).await {
                Ok(None) => {
                    self.set_enabled(false);
                    let message = "the Kubernetes API is disabled";
                    conditions.holds(Condition::KubernetesReachable, message);
                    config_changed(&mut node_config, &config).await;
                }
                Ok(Some(client)) => {
                    self.set_enabled(true);
                    tokio::select! {
                        () = self.watch(&client, &config, &node) => sleep(RECONNECT_INTERVAL).await,
                        () = config_changed(&mut node_config, &config) => {}
                    }
                }
                Err(error) => {
                    self.set_enabled(true);
                    conditions.fails(Condition::KubernetesReachable, display_chain(&error));
                    let changed = config_changed(&mut node_config, &config);
                    let _ = timeout(RECONNECT_INTERVAL, changed).await;
                }
            }
        }
    }

    /// Returns when a watch ends, which none does unless it has a bug.
    async fn watch(&self, client: &Client, config: &Config, node: &NodeName) {
        let nodes = watcher(Api::<Node>::all(client.clone()), watch_config::all());
        let pods = watcher(
            Api::<PartialObjectMeta<Pod>>::all(client.clone()),
            watch_config::pods_of_node(&config.kubernetes, node),
        );
        let namespaces = watcher(
            Api::<PartialObjectMeta<Namespace>>::all(client.clone()),
            watch_config::all(),
        );
        let mut nodes = pin!(nodes.default_backoff());
        let mut pods = pin!(pods.default_backoff());
        let mut namespaces = pin!(namespaces.default_backoff());
        let mut cache = NodeCache::new(self.kube_nodes.borrow().nodes.clone());
        let mut publisher = Publisher::new(client, node);
        let mut health = WatchHealth::default();
        let mut tick = interval(PUBLISH_INTERVAL);
        tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut is_saved = true;
        loop {
            tokio::select! {
                event = nodes.next() => {
                    let Some(event) = event else { return };
                    self.update_health(&mut health, Watched::Nodes, &event);
                    let Ok(event) = event else { continue };
                    publisher.handle(&event);
                    if cache.handle(event) {
                        self.publish_nodes(&cache);
                        is_saved = false;
                    }
                }
                event = pods.next() => {
                    let Some(event) = event else { return };
                    self.update_health(&mut health, Watched::Pods, &event);
                    // The resync observes the pods in the kernel: an event is only its trigger.
                    if matches!(event, Ok(Event::Apply(_) | Event::Delete(_) | Event::InitDone)) {
                        self.resync_pods.notify_one();
                    }
                }
                event = namespaces.next() => {
                    let Some(event) = event else { return };
                    self.update_health(&mut health, Watched::Namespaces, &event);
                    // Its pods are deleted, and the Pod watch may have missed that.
                    if matches!(event, Ok(Event::Delete(_))) {
                        self.resync_pods.notify_one();
                    }
                }
                _ = tick.tick() => {
                    if !is_saved {
                        self.save(&cache).await;
                        is_saved = true;
                    }
                    if health.needs_probe() && is_reachable(client).await {
                        health.probe_succeeded();
                        self.report_health(&health);
                    }
                    let pod_cidrs = self.node_config.borrow().pod_cidrs.clone();
                    let mesh = Arc::clone(&self.mesh.borrow());
                    let conditions = self.telemetry.conditions.snapshot();
                    let patch = NodePatch::new(pod_cidrs.as_deref(), &mesh, &conditions);
                    publisher.publish(&patch, &conditions).await;
                }
            }
        }
    }

    fn set_enabled(&self, is_enabled: bool) {
        self.kube_nodes.send_if_modified(|nodes| {
            let is_changed = nodes.is_enabled != is_enabled;
            if is_changed {
                Arc::make_mut(nodes).is_enabled = is_enabled;
            }
            is_changed
        });
    }

    fn publish_nodes(&self, cache: &NodeCache) {
        self.kube_nodes.send_replace(Arc::new(KubeNodes {
            is_enabled: true,
            nodes: cache.nodes().cloned(),
        }));
    }

    fn update_health<K>(
        &self,
        health: &mut WatchHealth,
        watched: Watched,
        event: &watcher::Result<Event<K>>,
    ) {
        match event {
            // Comes before the request is sent.
            Ok(Event::Init) => return,
            Ok(_) => health.succeeded(watched),
            Err(error) => health.failed(watched, error),
        }
        self.report_health(health);
    }

    fn report_health(&self, health: &WatchHealth) {
        let conditions = &self.telemetry.conditions;
        match health.failure() {
            None => {
                conditions.holds(Condition::KubernetesReachable, "the Kubernetes API answers");
            }
            Some(failure) => {
                let message = format!("{failure}: the last known Nodes stay in force");
                conditions.fails(Condition::KubernetesReachable, message);
            }
        }
    }

    async fn save(&self, cache: &NodeCache) {
        let (dir, nodes) = (self.state_dir.clone(), cache.nodes().cloned());
        let saved = tokio::task::spawn_blocking(move || {
            nodes.map_or(Ok(()), |nodes| state::save(&dir, &nodes))
        });
        if let Ok(Err(error)) = saved.await {
            tracing::warn!(%error, "failed to save the Nodes");
        }
    }
}

/// Waits for another `kubernetes` section.
async fn config_changed(node_config: &mut Receiver<NodeConfig>, config: &Config) {
    loop {
        if node_config.changed().await.is_err() {
            return std::future::pending().await;
        }
        if node_config.borrow_and_update().config.kubernetes != config.kubernetes {
            return;
        }
    }
}

/// A watch that resumes after an outage may have no event for minutes, so only a request shows that it is back.
async fn is_reachable(client: &Client) -> bool {
    let answer = timeout(REQUEST_TIMEOUT, client.apiserver_version()).await;
    matches!(answer, Ok(Ok(_) | Err(kube::Error::Api(_))))
}
