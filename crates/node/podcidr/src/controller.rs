//! Keeps this node's pod CIDRs up to date: files may appear and change, and so may the Node object.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use ipnet::IpNet;
use node_config::{Config, NodeConfig};
use node_core::conditions::{Condition, Conditions};
use node_core::pod_cidrs::VARIABLE;
use node_core::{KubeNodes, NodeName};
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use crate::{Discovery, DiscoveryInput, discover};

/// How soon the sources are read again if the pod CIDRs are unknown.
const RETRY: Duration = Duration::from_secs(5);
/// How often they are read if the pod CIDRs are known.
const RESYNC: Duration = Duration::from_mins(1);

/// Discovers the pod CIDRs by the configuration and the Nodes of the cluster, and publishes both the
/// configuration and the pod CIDRs at once: no consumer sees a new configuration with old pod CIDRs.
pub struct PodCidrController {
    pub node: NodeName,
    pub conditions: Arc<Conditions>,
    pub config: watch::Receiver<Arc<Config>>,
    pub kube_nodes: watch::Receiver<Arc<KubeNodes>>,
    pub node_config: watch::Sender<NodeConfig>,
    /// How the pod CIDRs were discovered last.
    pub discovery: watch::Sender<Option<Arc<Discovery>>>,
}

/// Reads all sources now; blocks.
pub fn discover_now(node: &NodeName, config: &Config, kube_nodes: &KubeNodes) -> Discovery {
    discover(&DiscoveryInput {
        root: Path::new("/"),
        node,
        network: &config.network,
        variable: std::env::var_os(VARIABLE).as_deref(),
        kubernetes: kube_nodes.assigned(node),
    })
}

impl PodCidrController {
    /// Discovers and publishes once. Whether the pod CIDRs are known.
    pub async fn reconcile(&mut self) -> bool {
        let config = Arc::clone(&self.config.borrow_and_update());
        let kube_nodes = Arc::clone(&self.kube_nodes.borrow_and_update());
        let (node, by) = (self.node.clone(), Arc::clone(&config));
        let work = move || discover_now(&node, &by, &kube_nodes);
        let Ok(found) = tokio::task::spawn_blocking(work).await else {
            // A panic ends the process.
            return false;
        };
        report_conditions(&found, &self.conditions);
        let is_known = found.outcome.is_ok();
        self.node_config
            .send_if_modified(|current| update(current, config, &found));
        self.discovery.send_replace(Some(Arc::new(found)));
        is_known
    }

    pub async fn run(mut self, shutdown: CancellationToken) {
        loop {
            let is_known = self.reconcile().await;
            let wait = if is_known { RESYNC } else { RETRY };
            tokio::select! {
                () = shutdown.cancelled() => return,
                alive = self.config.changed() => if alive.is_err() { return },
                alive = self.kube_nodes.changed() => if alive.is_err() { return },
                () = tokio::time::sleep(wait) => {}
            }
        }
    }
}

/// Takes over what was discovered; whether anything changed. Known pod CIDRs stay while they can't be
/// discovered.
fn update(current: &mut NodeConfig, config: Arc<Config>, found: &Discovery) -> bool {
    let is_reloaded = !Arc::ptr_eq(&current.config, &config);
    current.config = config;
    let Ok(pod_cidrs) = &found.outcome else {
        return is_reloaded;
    };
    if current.pod_cidrs.as_deref() == Some(pod_cidrs) {
        return is_reloaded;
    }
    if let Some(known) = &current.pod_cidrs
        && known.local != pod_cidrs.local
    {
        tracing::warn!(
            before = %list(&known.local),
            now = %list(&pod_cidrs.local),
            "pod CIDRs of this node changed: running pods keep their addresses until they are recreated"
        );
    }
    current.pod_cidrs = Some(Arc::new(pod_cidrs.clone()));
    true
}

fn report_conditions(found: &Discovery, conditions: &Conditions) {
    match &found.outcome {
        Ok(pod_cidrs) => {
            let mut message = format!("{} by {}", list(&pod_cidrs.local), pod_cidrs.source);
            for warning in &found.warnings {
                message = format!("{message}; {warning}");
            }
            conditions.holds(Condition::PodCidrKnown, message);
        }
        Err(error) => conditions.fails(Condition::PodCidrKnown, error),
    }
}

fn list(networks: &[IpNet]) -> String {
    let texts: Vec<String> = networks.iter().map(ToString::to_string).collect();
    texts.join(", ")
}
