//! Starts the controllers of `crates/node` and connects their channels.

use std::net::IpAddr;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow};
use api::event::Event;
use api::paths;
use ipnet::IpNet;
use tokio::sync::{Notify, mpsc, watch};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use crate::admin::{self, AdminContext, Heartbeat};
use crate::socket::{self, ApiContext, ApiSettings, PodLabelMode, Queries};
use node_config::{Config, NodeConfig, TailscaleMode, TuneLinks};
use node_core::conditions::Condition;
use node_core::error::display_chain;
use node_core::metrics::Metrics;
use node_core::reconcile::{self, Controller, Inputs, Reconciled, Telemetry};
use node_core::{KubeNodes, MeshLink, MeshState, NodeName};
use node_hostnet::{Desired, ReconcileInput};
use node_mesh::TailscaledMode;
use node_podcidr::Discovery;
use node_podcidr::controller::PodCidrController;
use node_pods::Pods;
use node_pods::leases::{LeaseStoreLocation, LeaseStoreLocations, LeasesError};

/// Reconciles happen at this interval even without changes.
const RECONCILE_INTERVAL: Duration = Duration::from_mins(1);
const EVENT_QUEUE: usize = 256;
const NO_POD_CIDRS: &str = "waiting for the pod CIDRs of this node: see PodCIDRKnown";

/// One channel per producer.
pub struct Channels {
    /// Produced by lifecycle: at start and on SIGHUP.
    pub config: watch::Sender<Arc<Config>>,
    /// Produced by podcidr.
    pub node_config: watch::Sender<NodeConfig>,
    /// Produced by podcidr, for `/v1/podcidr`.
    pub discovery: watch::Sender<Option<Arc<Discovery>>>,
    /// Produced by kube.
    pub kube_nodes: watch::Sender<Arc<KubeNodes>>,
    /// Produced by mesh.
    pub mesh: watch::Sender<Arc<MeshState>>,
}

impl Channels {
    /// Starts with the saved state of an earlier daemon; blocks.
    pub fn load(config: Config, node: NodeName) -> Self {
        let state_dir = Path::new(paths::DAEMON_STATE_DIR);
        let kube_nodes = node_kube::load(&config.kubernetes, state_dir);
        let mesh = node_mesh::load(state_dir);
        let config = Arc::new(config);
        Self {
            config: watch::Sender::new(Arc::clone(&config)),
            node_config: watch::Sender::new(NodeConfig::new(config, node)),
            discovery: watch::Sender::new(None),
            kube_nodes: watch::Sender::new(Arc::new(kube_nodes)),
            mesh: watch::Sender::new(Arc::new(mesh)),
        }
    }
}

/// All long-running tasks of the daemon.
pub struct Tasks {
    pub channels: Channels,
    pub telemetry: Telemetry,
    shutdown: CancellationToken,
    running: JoinSet<&'static str>,
}

impl Tasks {
    pub fn new(channels: Channels, telemetry: Telemetry) -> Self {
        Self {
            channels,
            telemetry,
            shutdown: CancellationToken::new(),
            running: JoinSet::new(),
        }
    }

    /// Waits for a task to end, which none should before the shutdown. Pends if there is none.
    pub async fn ended(&mut self) -> anyhow::Error {
        match self.running.join_next().await {
            Some(Ok(name)) => anyhow!("task {name} ended: this is a bug"),
            Some(Err(error)) => anyhow!("a task panicked: this is a bug: {error}"),
            None => std::future::pending().await,
        }
    }

    /// Returns whether all tasks ended in time.
    pub async fn stop(&mut self, limit: Duration) -> bool {
        self.shutdown.cancel();
        let all = async { while self.running.join_next().await.is_some() {} };
        tokio::time::timeout(limit, all).await.is_ok()
    }

    /// Comes first, so that probes get an answer.
    pub async fn serve_admin(&mut self, heartbeat: &Arc<Heartbeat>) -> Result<()> {
        let context = AdminContext {
            heartbeat: Arc::clone(heartbeat),
            conditions: Arc::clone(&self.telemetry.conditions),
            metrics: Arc::clone(&self.telemetry.metrics),
        };
        let serving = admin::start(
            context,
            self.channels.node_config.subscribe(),
            self.shutdown.clone(),
        )
        .await?;
        self.spawn("admin", serving);
        Ok(())
    }

    /// Starts all other tasks.
    pub async fn start(&mut self, pods: &Arc<Pods>) -> Result<()> {
        let dirs = self.channels.node_config.borrow().dirs();
        let known = Arc::clone(pods);
        tokio::task::spawn_blocking(move || {
            match node_cniconf::restore_after_boot(&dirs) {
                Ok(node_cniconf::Restored::Nothing) => {}
                Ok(node_cniconf::Restored::Subnets(_)) => {
                    tracing::info!("restored subnet.env after a reboot");
                }
                // The first reconcile reports the cause as a condition.
                Err(error) => {
                    tracing::warn!(error = error.explained(), "failed to restore subnet.env");
                }
            }
            // Before hostnet reconciles: it must not take pod interfaces for orphans.
            for error in known.resync() {
                tracing::warn!(%error, "failed to list attached pods");
            }
        })
        .await
        .context("restore the state of this node")?;

        let mut pod_cidrs = PodCidrController {
            node: self.channels.node_config.borrow().node.clone(),
            conditions: Arc::clone(&self.telemetry.conditions),
            config: self.channels.config.subscribe(),
            kube_nodes: self.channels.kube_nodes.subscribe(),
            node_config: self.channels.node_config.clone(),
            discovery: self.channels.discovery.clone(),
        };
        // Once before the other controllers start, so that they start with pod CIDRs if possible.
        pod_cidrs.reconcile().await;
        self.spawn("podcidr", pod_cidrs.run(self.shutdown.clone()));
        self.start_kube(pods);
        let signals = node_hostnet::Signals::default();
        self.start_mesh(pods, &signals);
        self.start_cniconf(pods);
        self.start_hostnet(pods, signals);
        self.start_pods(pods);
        self.start_socket(pods);
        Ok(())
    }

    fn start_kube(&mut self, pods: &Arc<Pods>) {
        let controller = node_kube::KubeController {
            node_config: self.channels.node_config.subscribe(),
            mesh: self.channels.mesh.subscribe(),
            kube_nodes: self.channels.kube_nodes.clone(),
            telemetry: self.telemetry.clone(),
            resync_pods: pods.resync_request(),
            state_dir: paths::DAEMON_STATE_DIR.into(),
        };
        self.spawn("kube", controller.run(self.shutdown.clone()));
    }

    fn start_mesh(&mut self, pods: &Arc<Pods>, signals: &node_hostnet::Signals) {
        let controller = node_mesh::MeshController {
            channels: node_mesh::MeshChannels {
                node_config: self.channels.node_config.subscribe(),
                kube_nodes: self.channels.kube_nodes.subscribe(),
                pod_ips: pods.pod_ips(),
            },
            mesh: self.channels.mesh.clone(),
            telemetry: self.telemetry.clone(),
            state_dir: paths::DAEMON_STATE_DIR.into(),
            own_network: Arc::clone(&signals.mesh),
        };
        self.spawn("mesh", controller.run(self.shutdown.clone()));
    }

    fn start_cniconf(&mut self, pods: &Arc<Pods>) {
        let known = Arc::clone(pods);
        let changed = Arc::new(Notify::new());
        let controller = Controller {
            name: "cniconf",
            condition: Condition::CniConfigWritten,
            changed: Arc::clone(&changed),
            interval: RECONCILE_INTERVAL,
        };
        let inputs = self.node_and_mesh();
        self.run(controller, inputs, move |(node, mesh)| {
            let outcome = write_cni_files(&node, &mesh, &known)?;
            if !outcome.repairs.is_empty() {
                // The pool size is read from these files.
                known.request_resync();
            }
            Ok(outcome)
        });
        let mut node_config = self.channels.node_config.subscribe();
        let shutdown = self.shutdown.clone();
        self.spawn("cniconf watch", async move {
            loop {
                let dirs = node_config.borrow_and_update().dirs();
                let _watch = match node_cniconf::watch(&dirs, Arc::clone(&changed)) {
                    Ok(watch) => Some(watch),
                    Err(error) => {
                        tracing::warn!(%error, "failed to watch the CNI files");
                        None
                    }
                };
                tokio::select! {
                    () = shutdown.cancelled() => return,
                    changed = node_config.changed() => if changed.is_err() { return },
                }
            }
        });
    }

    fn start_hostnet(&mut self, pods: &Arc<Pods>, signals: node_hostnet::Signals) {
        let controller = Controller {
            name: "hostnet",
            condition: Condition::NetworkReady,
            changed: Arc::clone(&signals.hostnet),
            interval: RECONCILE_INTERVAL,
        };
        let known = Arc::clone(pods);
        let awaiting = signals.clone();
        let inputs = self.node_and_mesh();
        self.run(controller, inputs, move |(node, mesh)| {
            reconcile_hostnet(&node, &mesh, &known, &awaiting)
        });
        let controller = Controller {
            name: "firewall",
            condition: Condition::ForwardingAllowed,
            changed: Arc::clone(&signals.firewall),
            interval: RECONCILE_INTERVAL,
        };
        let inputs = self.node_and_mesh();
        self.run(controller, inputs, |(node, mesh)| {
            reconcile_firewalls(&node, &mesh)
        });
        let monitoring = node_hostnet::monitor(signals, self.shutdown.clone());
        self.spawn("hostnet monitor", monitoring);
    }

    fn start_pods(&mut self, pods: &Arc<Pods>) {
        let viewing = Arc::clone(pods).run(self.shutdown.clone());
        self.spawn("pods", viewing);
        let controller = Controller {
            name: "orphans",
            condition: Condition::OrphansCollected,
            changed: Arc::new(Notify::new()),
            interval: self
                .channels
                .node_config
                .borrow()
                .config
                .pods
                .orphan_interval
                .0,
        };
        let collecting = Arc::clone(pods);
        let inputs = self.channels.node_config.subscribe();
        self.run(controller, inputs, move |node: NodeConfig| {
            let pods = &node.config.pods;
            collecting.collect(node_pods::Limits {
                grace: pods.orphan_grace.0,
                interval: pods.orphan_interval.0,
            })
        });
    }

    /// Serves the API on the Unix socket, and handles the plugin's events.
    fn start_socket(&mut self, pods: &Arc<Pods>) {
        let (events, incoming) = mpsc::channel(EVENT_QUEUE);
        let events_lost = Arc::new(Notify::new());
        let context = ApiContext {
            events,
            events_lost: Arc::clone(&events_lost),
            queries: Queries {
                started: Instant::now(),
                node_config: self.channels.node_config.subscribe(),
                discovery: self.channels.discovery.subscribe(),
                conditions: Arc::clone(&self.telemetry.conditions),
                pods: Arc::clone(pods),
            },
            metrics: Arc::clone(&self.telemetry.metrics),
            conditions: Arc::clone(&self.telemetry.conditions),
        };
        let serving = socket::run(ApiSettings::default(), context, self.shutdown.clone());
        self.spawn("socket", serving);
        let handling = handle_events(
            incoming,
            events_lost,
            Arc::clone(pods),
            Arc::clone(&self.telemetry.metrics),
            self.channels.node_config.subscribe(),
        );
        let shutdown = self.shutdown.clone();
        self.spawn("events", async move {
            shutdown.run_until_cancelled(handling).await;
        });
    }

    fn node_and_mesh(&self) -> (watch::Receiver<NodeConfig>, watch::Receiver<Arc<MeshState>>) {
        let Channels {
            node_config, mesh, ..
        } = &self.channels;
        (node_config.subscribe(), mesh.subscribe())
    }

    fn run<I: Inputs + 'static>(
        &mut self,
        controller: Controller,
        inputs: I,
        reconcile: impl Fn(I::Value) -> Result<Reconciled, String> + Clone + Send + Sync + 'static,
    ) {
        let (name, telemetry) = (controller.name, self.telemetry.clone());
        let shutdown = self.shutdown.clone();
        self.spawn(
            name,
            reconcile::run(controller, telemetry, inputs, shutdown, reconcile),
        );
    }

    /// The task must run until the shutdown.
    fn spawn(
        &mut self,
        name: &'static str,
        work: impl std::future::Future<Output = ()> + Send + 'static,
    ) {
        self.running.spawn(async move {
            work.await;
            name
        });
    }
}

fn write_cni_files(node: &NodeConfig, mesh: &MeshState, pods: &Pods) -> Result<Reconciled, String> {
    let config = &node.config;
    let pod_cidrs = node.pod_cidrs.as_ref().ok_or(NO_POD_CIDRS)?;
    first_time_gate(config, mesh)?;
    let dirs = node.dirs();
    let explained = |error: node_cniconf::CniConfError| error.explained();
    let desired = node_cniconf::desired(config, &pod_cidrs.local, &pod_cidrs.base, &dirs)
        .map_err(explained)?;
    let location = LeaseStoreLocation::of(config);
    let users = |location: &LeaseStoreLocation| pods.lease_users(location);
    let refused = |error: LeasesError| display_chain(&error);
    let mut locations = LeaseStoreLocations::load(&dirs);
    locations.check(&location, users).map_err(refused)?;
    locations.add(&location).map_err(refused)?;
    let outcome = node_cniconf::ensure(&desired).map_err(explained)?;
    locations.forget_unused(&location, users).map_err(refused)?;
    Ok(outcome.into())
}

/// No pod may start before the mesh served this node once: it could not reach other nodes.
fn first_time_gate(config: &Config, mesh: &MeshState) -> Result<(), String> {
    // The netns of tailscaled makes no difference here.
    if mesh.has_served || TailscaledMode::choose(config, false) == TailscaledMode::Disabled {
        return Ok(());
    }
    Err(
        "waiting until Headscale serves this node's pod CIDRs for the first time: see RoutesServed \
         and MeshJoined"
            .to_owned(),
    )
}

fn reconcile_hostnet(
    node: &NodeConfig,
    mesh: &MeshState,
    pods: &Pods,
    signals: &node_hostnet::Signals,
) -> Result<Reconciled, String> {
    let pod_cidrs = node.pod_cidrs.as_ref().ok_or(NO_POD_CIDRS)?;
    let mesh = mesh_routes(&node.config, mesh);
    let (local, base) = (&pod_cidrs.local, &pod_cidrs.base);
    let desired = Desired::new(&node.config, local, base, mesh.as_ref())
        .map_err(|error| display_chain(&error))?;
    signals.set_desired(&desired);
    let links = pods.pod_links().into_iter();
    let input = ReconcileInput {
        desired,
        pods: Some(node_hostnet::DesiredPods {
            links: links
                .map(|link| node_hostnet::DesiredPodLink {
                    name: link.host_link,
                    pod_mac: link.pod_mac,
                    addresses: link.addresses,
                })
                .collect(),
            ports: pods.host_ports(),
        }),
    };
    node_hostnet::reconcile(&node_hostnet::HostPaths::default(), &input)
        .map_err(|error| display_chain(&error))
}

fn mesh_routes(config: &Config, mesh: &MeshState) -> Option<node_hostnet::MeshRoutes> {
    let link = mesh.link.as_ref()?;
    let via_ipv4 = link.via.iter().find_map(|address| match address {
        IpAddr::V4(ipv4) => Some(*ipv4),
        IpAddr::V6(_) => None,
    });
    let via_ipv6 = link.via.iter().find_map(|address| match address {
        IpAddr::V4(_) => None,
        IpAddr::V6(ipv6) => Some(*ipv6),
    });
    Some(node_hostnet::MeshRoutes {
        link: link.name.clone(),
        via_ipv4,
        via_ipv6,
        peer_routes: mesh.peer_routes.clone(),
        shadowed: mesh.shadowed.clone(),
        peer_ips: mesh.peer_ips.clone(),
        extra_host_routes: mesh.extra_host_routes.clone(),
        is_managed: is_managed(config, link),
        tune_links: config.tailscale.tune_links == TuneLinks::Auto,
    })
}

/// Whether the managed tailscaled owns the interface. After a reload, [`MeshState`] may still have the
/// former one.
fn is_managed(config: &Config, link: &MeshLink) -> bool {
    let tailscale = &config.tailscale;
    tailscale.mode != TailscaleMode::Host && link.name == tailscale.interface
}

fn reconcile_firewalls(node: &NodeConfig, mesh: &MeshState) -> Result<Reconciled, String> {
    let pod_cidrs = node.pod_cidrs.as_ref().ok_or(NO_POD_CIDRS)?;
    // The host forwards for a tailscaled in a netns of its own.
    let link = mesh.link.iter();
    let forwarded = link.flat_map(|link| link.via.iter().copied().map(IpNet::from));
    let wanted = node_hostnet::firewall::FirewallSettings {
        networks: pod_cidrs.local.iter().copied().chain(forwarded).collect(),
        integrate: node.config.firewall.integrate,
    };
    node_hostnet::firewall::reconcile(&node_hostnet::HostPaths::default(), &wanted)
        .map_err(|error| display_chain(&error))
}

/// Counts each event and updates its pod. Lost events cause a resync of all pods.
async fn handle_events(
    mut events: mpsc::Receiver<Box<Event>>,
    events_lost: Arc<Notify>,
    pods: Arc<Pods>,
    metrics: Arc<Metrics>,
    node_config: watch::Receiver<NodeConfig>,
) {
    loop {
        tokio::select! {
            event = events.recv() => {
                let Some(event) = event else { return };
                let pod_labels = if node_config.borrow().config.monitoring.pod_labels {
                    PodLabelMode::On
                } else {
                    PodLabelMode::Off
                };
                socket::count(&metrics, &event, pod_labels);
                pods.handle_event(*event).await;
            }
            () = events_lost.notified() => pods.request_resync(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pods_wait_until_the_mesh_has_served_the_node() {
        let mut config = Config::default();
        let mut mesh = MeshState::default();
        assert_eq!(first_time_gate(&config, &mesh), Ok(()));
        config.headscale.url = Some("https://10.99.0.1".to_owned());
        assert!(first_time_gate(&config, &mesh).is_err());
        mesh.has_served = true;
        assert_eq!(first_time_gate(&config, &mesh), Ok(()));
    }
}
