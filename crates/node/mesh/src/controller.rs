//! Keeps this node a member of the mesh until it is told to end: a pass at start, after every sign
//! of a change, and from time to time all the same.

use std::net::IpAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use ipnet::IpNet;
use tailscaled::localapi::{BusEvent, BusWatcher, LocalApi};
use tailscaled::supervisor::{Drift, ProcessOrigin, RunningProcess, Supervisor, SupervisorEvent};
use tokio::sync::watch::error::RecvError;
use tokio::sync::{Notify, watch};
use tokio::time::{Instant, sleep, sleep_until, timeout};
use tokio_util::sync::CancellationToken;

use crate::coexistence::{self, HostTailscaledWatch};
use crate::extra_host_routes::ExtraHostRoutes;
use crate::inputs::MeshInputs;
use crate::membership::{Membership, ReconcileInputs};
use crate::state::MeshStateFile;
use crate::{TailscaledMode, managed, report_disabled};
use node_config::NodeConfig;
use node_config::{Config, TailscaleMode};
use node_core::conditions::Condition;
use node_core::metrics::ByRepair;
use node_core::reconcile::Telemetry;
use node_core::{KubeNodes, MeshState, PodIps};

/// More may come after a sign of a change, and is looked at with it.
const PAUSE: Duration = Duration::from_millis(100);
/// Until something happens. The clock can't add more.
const FOREVER: Duration = Duration::from_hours(24 * 365);
/// Addresses of pods that need a route of their own are collected for so long.
const COLLECT: Duration = Duration::from_secs(1);
/// When what could not be made is tried again.
const AFTER_FAILURE: Duration = Duration::from_secs(5);
/// How often it is looked whether anything is heard of other nodes.
const LISTEN: Duration = Duration::from_secs(3);

/// The channels that the mesh controller consumes.
#[derive(Clone)]
pub struct MeshChannels {
    pub node_config: watch::Receiver<NodeConfig>,
    pub kube_nodes: watch::Receiver<Arc<KubeNodes>>,
    pub pod_ips: watch::Receiver<Arc<PodIps>>,
}

impl MeshChannels {
    fn latest(&mut self, published: Arc<MeshState>) -> MeshInputs {
        let node_config = self.node_config.borrow_and_update().clone();
        let kube_nodes = Arc::clone(&self.kube_nodes.borrow_and_update());
        MeshInputs::new(node_config, kube_nodes, published)
    }

    /// Waits for another configuration, other pod CIDRs or other Nodes.
    async fn changed(
        node_config: &mut watch::Receiver<NodeConfig>,
        kube_nodes: &mut watch::Receiver<Arc<KubeNodes>>,
    ) -> Result<(), RecvError> {
        tokio::select! {
            changed = node_config.changed() => changed,
            changed = kube_nodes.changed() => changed,
        }
    }
}

/// What the mesh needs of the rest of the daemon.
pub struct MeshController {
    pub channels: MeshChannels,
    /// Where the rest of the agent finds the mesh.
    pub mesh: watch::Sender<Arc<MeshState>>,
    pub telemetry: Telemetry,
    /// What has to be known after a restart.
    pub state_dir: PathBuf,
    /// Who tells that something of the network that our tailscaled has for itself may be gone.
    pub own_network: Arc<Notify>,
}

impl MeshController {
    /// Keeps this node in the tailnet until shutdown.
    pub async fn run(self, shutdown: CancellationToken) {
        // Nothing is lost when it is dropped: the next start observes all of it.
        shutdown.run_until_cancelled(self.reconcile_forever()).await;
    }

    async fn reconcile_forever(&self) {
        let mut changes = self.channels.clone();
        let mut former = None;
        loop {
            let config = Arc::clone(&changes.node_config.borrow_and_update().config);
            let has_another = coexistence::has_another(&config).await;
            let mode = self.choose(&config, has_another).await;
            if former.replace(mode).is_some_and(|former| former != mode) {
                let conditions = &self.telemetry.conditions;
                conditions.fails(Condition::MeshJoined, "switching to another tailscaled");
            }
            if let Err(message) = self.end_other_ways(mode, &config).await {
                tracing::warn!(message, "failed to leave the previous tailscaled mode");
                let conditions = &self.telemetry.conditions;
                conditions.fails(Condition::MeshJoined, message);
                sleep(AFTER_FAILURE).await;
                continue;
            }
            if mode == TailscaledMode::Disabled {
                report_disabled(&self.telemetry.conditions);
                self.leave().await;
                while Arc::ptr_eq(&config, &changes.node_config.borrow_and_update().config) {
                    if changes.node_config.changed().await.is_err() {
                        return;
                    }
                }
            } else {
                self.be_member(mode, has_another, &config, &mut changes)
                    .await;
            }
        }
    }

    /// Is a member in one way until the configuration says otherwise, or another tailscaled comes.
    async fn be_member(
        &self,
        mode: TailscaledMode,
        has_another: bool,
        config: &Arc<Config>,
        changes: &mut MeshChannels,
    ) {
        let is_kept_by_us = config.tailscale.mode != TailscaleMode::Container;
        let mut supervisor = match mode {
            TailscaledMode::Managed | TailscaledMode::ManagedNetns if is_kept_by_us => {
                Some(Supervisor::new(managed::settings(config, mode)))
            }
            _ => None,
        };
        let tailscaled = match mode {
            TailscaledMode::Disabled | TailscaledMode::Host => {
                LocalApi::new(&config.tailscale.socket)
            }
            TailscaledMode::Managed | TailscaledMode::ManagedNetns => {
                LocalApi::new(managed::socket())
            }
        };
        let Some(mut session) = self.session(mode, tailscaled.clone(), config).await else {
            return;
        };
        let mut bus = tailscaled.watch_bus();
        let mut is_running = supervisor.is_none();
        let mut intruder = HostTailscaledWatch::new(mode, config);
        loop {
            let current = changes.latest(Arc::clone(&self.mesh.borrow()));
            if is_other(config, &current.config) {
                return;
            }
            let outside = pods_outside(&current, &changes.pod_ips.borrow_and_update());
            let inputs = ReconcileInputs {
                settings: &current,
                outside: &outside,
            };
            let mut wait = FOREVER;
            let mut is_placed = true;
            if mode == TailscaledMode::ManagedNetns {
                match self.keep_apart(&current, &outside.routed).await {
                    // Whoever runs is in one that has no name any more.
                    Ok(is_new) if is_new && is_running => {
                        is_running = self.restart(&mut supervisor, Ending::Orderly).await;
                    }
                    Ok(_) => {}
                    Err(message) => {
                        let conditions = &self.telemetry.conditions;
                        conditions.fails(Condition::MeshJoined, message);
                        (is_placed, wait) = (false, AFTER_FAILURE);
                    }
                }
            }
            if is_running && is_placed {
                let (view, due) = session.pass(&inputs).await;
                wait = due;
                if let Some(view) = view {
                    self.publish(view);
                }
                is_running = self.mend(&mut session, &mut supervisor, config).await;
            }
            // What is of no matter must not put the next pass off.
            let due = Instant::now() + wait;
            let mut listen = Instant::now() + LISTEN;
            loop {
                tokio::select! {
                    alive = MeshChannels::changed(&mut changes.node_config, &mut changes.kube_nodes) => {
                        if alive.is_err() {
                            return;
                        }
                        break;
                    }
                    event = bus.recv() => {
                        if is_news(&event) {
                            break;
                        }
                    }
                    event = next(&mut supervisor) => {
                        is_running = self.note(event, &mut supervisor, has_another).await;
                        if is_running && mode == TailscaledMode::Managed {
                            // Only now nobody is in it any more.
                            self.clear_apart().await;
                        }
                        break;
                    }
                    alive = changes.pod_ips.changed() => {
                        if alive.is_err() {
                            return;
                        }
                        let now = pods_outside(&current, &changes.pod_ips.borrow_and_update());
                        if now != outside {
                            sleep(COLLECT).await;
                            break;
                        }
                    }
                    () = self.own_network_changes(mode) => break,
                    () = intruder.comes() => return,
                    () = sleep_until(listen), if is_running => {
                        if session.is_unheard().await {
                            break;
                        }
                        listen = Instant::now() + LISTEN;
                    }
                    () = sleep_until(due) => break,
                }
            }
            settle(&mut bus).await;
        }
    }

    async fn session(
        &self,
        mode: TailscaledMode,
        tailscaled: LocalApi,
        config: &Arc<Config>,
    ) -> Option<Membership> {
        let (config, dir) = (Arc::clone(config), self.state_dir.clone());
        let telemetry = self.telemetry.clone();
        let made = tokio::task::spawn_blocking(move || {
            Membership::new(
                mode,
                tailscaled,
                &config,
                MeshStateFile::load(&dir),
                telemetry,
            )
        });
        // It fails only if the process ends.
        made.await.ok()
    }

    /// Tells the other parts what there is of the mesh.
    fn publish(&self, view: MeshState) {
        self.mesh.send_if_modified(|mesh| {
            let is_other = view != **mesh;
            if is_other {
                *mesh = Arc::new(view);
            }
            is_other
        });
    }

    /// Forgets the way to other nodes: there is none any more.
    async fn leave(&self) {
        let dir = self.state_dir.clone();
        let left = tokio::task::spawn_blocking(move || {
            let mut kept = MeshStateFile::load(&dir);
            let outcome = kept.change(|memory| {
                memory.link = None;
                memory.remotes.clear();
                memory.shadowed.clear();
                memory.known.clear();
                memory.members.clear();
            });
            if let Err(error) = outcome {
                tracing::warn!(%error, "failed to write the mesh state file");
            }
            let mut view = kept.memory().view();
            (view.link, view.peer_routes) = (None, Vec::new());
            (view.shadowed, view.peer_ips) = (Vec::new(), Vec::new());
            view
        });
        // It fails only if the process ends.
        if let Ok(view) = left.await {
            self.publish(view);
        }
    }

    /// Notes what happened to our tailscaled; whether it runs.
    async fn note(
        &self,
        event: SupervisorEvent,
        supervisor: &mut Option<Supervisor>,
        has_another: bool,
    ) -> bool {
        let conditions = &self.telemetry.conditions;
        match event {
            SupervisorEvent::Running(ensured) => {
                let RunningProcess { pid, origin, drift } = ensured;
                match origin {
                    ProcessOrigin::Adopted => tracing::info!(pid, "adopted running tailscaled"),
                    ProcessOrigin::Started => tracing::info!(pid, "started tailscaled"),
                }
                self.restart_if_told(&drift, supervisor, has_another).await
            }
            SupervisorEvent::Exited {
                pid,
                status,
                restart_in,
            } => {
                let status = status.unwrap_or_default();
                tracing::warn!(pid, status, ?restart_in, "tailscaled exited, restarting it");
                conditions.fails(Condition::MeshJoined, "tailscaled exited, restarting it");
                let by = ByRepair {
                    repair: "restart".to_owned(),
                };
                self.telemetry.metrics.mesh.repairs.get_or_create(&by).inc();
                false
            }
            SupervisorEvent::Failed { error, .. } => {
                let message = node_core::error::display_chain(&error);
                conditions.fails(Condition::MeshJoined, message);
                false
            }
        }
    }

    /// A tailscaled that was told otherwise by the configuration is started again. A new program is
    /// no reason: that costs seconds of traffic, and somebody chooses the moment.
    async fn restart_if_told(
        &self,
        differences: &[Drift],
        supervisor: &mut Option<Supervisor>,
        has_another: bool,
    ) -> bool {
        let mut told = differences.iter().filter(|it| **it != Drift::Program);
        let Some(first) = told.next() else {
            for difference in differences {
                tracing::warn!(%difference, "tailscaled keeps running; restart it yourself to apply this");
            }
            return true;
        };
        tracing::info!(difference = %first, "restarting tailscaled");
        let moves = differences.contains(&Drift::Netns);
        let ending = match supervisor {
            // What it would take away when it leaves is the other's as well.
            Some(it) if moves && has_another && it.spec().netns.is_some() => Ending::Abrupt,
            _ => Ending::Orderly,
        };
        self.restart(supervisor, ending).await
    }

    /// Starts a tailscaled again that somebody took the routes from, for it does not put them back; whether
    /// it runs. It would take away what another one that has just come has put in their place.
    async fn mend(
        &self,
        session: &mut Membership,
        supervisor: &mut Option<Supervisor>,
        config: &Config,
    ) -> bool {
        if !session.has_lost_routes() || coexistence::has_another(config).await {
            return true;
        }
        tracing::warn!("tailscaled's routes are gone, restarting it");
        self.restart(supervisor, Ending::Orderly).await
    }

    /// Starts tailscaled again, and tells whether it runs.
    async fn restart(&self, supervisor: &mut Option<Supervisor>, ending: Ending) -> bool {
        let Some(supervisor) = supervisor else {
            return true;
        };
        let outcome = match ending {
            Ending::Orderly => supervisor.restart().await,
            Ending::Abrupt => supervisor.kill_and_restart().await,
        };
        match outcome {
            Ok(_) => true,
            Err(error) => {
                let message = node_core::error::display_chain(&error);
                self.telemetry
                    .conditions
                    .fails(Condition::MeshJoined, message);
                false
            }
        }
    }

    /// Waits until something of the network of its own may be gone, and a moment longer: what we make
    /// ourselves is told as well, and who is always at it must not keep us busy. Nothing is lost if this
    /// is cancelled: the sign is taken at the very end.
    async fn own_network_changes(&self, mode: TailscaledMode) {
        if mode != TailscaledMode::ManagedNetns {
            return std::future::pending().await;
        }
        self.own_network.notified().await;
        self.own_network.notify_one();
        sleep(COLLECT).await;
        self.own_network.notified().await;
    }
}

/// Pods' addresses outside this node's pod CIDRs.
fn pods_outside(inputs: &MeshInputs, pod_ips: &PodIps) -> ExtraHostRoutes {
    let Some(pod_cidrs) = &inputs.pod_cidrs else {
        return ExtraHostRoutes::default();
    };
    let is_outside = |ip: &&IpAddr| !pod_cidrs.local.iter().any(|local| local.contains(*ip));
    let outside = pod_ips.iter().filter(is_outside);
    let advertised = &inputs.published.extra_host_routes;
    ExtraHostRoutes::choose(outside.copied().map(IpNet::from).collect(), advertised)
}

/// How a tailscaled ends before it is started again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Ending {
    /// It takes its rules away.
    Orderly,
    /// It leaves everything as it is.
    Abrupt,
}

async fn next(supervisor: &mut Option<Supervisor>) -> SupervisorEvent {
    match supervisor {
        Some(supervisor) => supervisor.next().await,
        None => std::future::pending().await,
    }
}

/// Lets more signs of the same change come.
async fn settle(bus: &mut BusWatcher) {
    sleep(PAUSE).await;
    while timeout(Duration::ZERO, bus.recv()).await.is_ok() {}
}

fn is_news(event: &BusEvent) -> bool {
    !matches!(event, BusEvent::Lost(_))
}

/// Whether another configuration makes another member.
fn is_other(before: &Config, now: &Config) -> bool {
    before.headscale != now.headscale || before.tailscale != now.tailscale
}
