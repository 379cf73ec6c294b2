//! The control loop: a reconcile at start, after every event, and periodically.

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

/// Events within this time are handled by one reconcile.
const DEBOUNCE: Duration = Duration::from_millis(100);
/// Until an event; the clock cannot add more.
const FOREVER: Duration = Duration::from_hours(24 * 365);
/// Extra host routes are batched for this long.
const COLLECT: Duration = Duration::from_secs(1);
const AFTER_FAILURE: Duration = Duration::from_secs(5);
/// How often peer traffic is checked.
const LIVENESS_INTERVAL: Duration = Duration::from_secs(3);

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

pub struct MeshController {
    pub channels: MeshChannels,
    pub mesh: watch::Sender<Arc<MeshState>>,
    pub telemetry: Telemetry,
    pub state_dir: PathBuf,
    /// Notified when rules, routes or tables of tailscaled's netns may have changed.
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
            if let Err(message) = self.leave_other_modes(mode, &config).await {
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
                self.run_mode(mode, has_another, &config, &mut changes)
                    .await;
            }
        }
    }

    /// Reconciles in one mode until the configuration changes or a host tailscaled appears.
    #[expect(clippy::too_many_lines, reason = "one loop over all events")]
    async fn run_mode(
        &self,
        mode: TailscaledMode,
        has_another: bool,
        config: &Arc<Config>,
        changes: &mut MeshChannels,
    ) {
        let is_supervised = config.tailscale.mode != TailscaleMode::Container;
        let mut supervisor = match mode {
            TailscaledMode::Managed | TailscaledMode::ManagedNetns if is_supervised => {
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
        let Some(mut membership) = self.membership(mode, tailscaled.clone(), config).await else {
            return;
        };
        let mut bus = tailscaled.watch_bus();
        let mut is_running = supervisor.is_none();
        let mut intruder = HostTailscaledWatch::new(mode, config);
        loop {
            let current = changes.latest(Arc::clone(&self.mesh.borrow()));
            if needs_new_membership(config, &current.config) {
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
                match self.ensure_netns(&current, &outside.routed).await {
                    // A running tailscaled is in the netns that was replaced.
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
                let (view, due) = membership.reconcile(&inputs).await;
                wait = due;
                if let Some(view) = view {
                    self.publish(view);
                }
                is_running = self
                    .restore_routes(&mut membership, &mut supervisor, config)
                    .await;
            }
            // Irrelevant events must not postpone the next reconcile.
            let due = Instant::now() + wait;
            let mut listen = Instant::now() + LIVENESS_INTERVAL;
            loop {
                tokio::select! {
                    alive = MeshChannels::changed(&mut changes.node_config, &mut changes.kube_nodes) => {
                        if alive.is_err() {
                            return;
                        }
                        break;
                    }
                    event = bus.recv() => {
                        if is_change(&event) {
                            break;
                        }
                    }
                    event = next(&mut supervisor) => {
                        is_running = self.note(event, &mut supervisor, has_another).await;
                        if is_running && mode == TailscaledMode::Managed {
                            // Only now the netns is unused.
                            self.remove_netns().await;
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
                    () = self.netns_changed(mode) => break,
                    () = intruder.comes() => return,
                    () = sleep_until(listen), if is_running => {
                        if membership.is_unheard().await {
                            break;
                        }
                        listen = Instant::now() + LIVENESS_INTERVAL;
                    }
                    () = sleep_until(due) => break,
                }
            }
            debounce(&mut bus).await;
        }
    }

    async fn membership(
        &self,
        mode: TailscaledMode,
        tailscaled: LocalApi,
        config: &Arc<Config>,
    ) -> Option<Membership> {
        let (config, dir) = (Arc::clone(config), self.state_dir.clone());
        let telemetry = self.telemetry.clone();
        let loaded = tokio::task::spawn_blocking(move || {
            Membership::new(
                mode,
                tailscaled,
                &config,
                MeshStateFile::load(&dir),
                telemetry,
            )
        });
        // It fails only if the process ends.
        loaded.await.ok()
    }

    fn publish(&self, view: MeshState) {
        self.mesh.send_if_modified(|mesh| {
            let is_other = view != **mesh;
            if is_other {
                *mesh = Arc::new(view);
            }
            is_other
        });
    }

    /// Removes the peer routes: the mesh is disabled.
    async fn leave(&self) {
        let dir = self.state_dir.clone();
        let left = tokio::task::spawn_blocking(move || {
            let mut state = MeshStateFile::load(&dir);
            let outcome = state.change(|memory| {
                memory.link = None;
                memory.remotes.clear();
                memory.shadowed.clear();
                memory.known.clear();
                memory.members.clear();
            });
            if let Err(error) = outcome {
                tracing::warn!(%error, "failed to write the mesh state file");
            }
            let mut view = state.memory().view();
            (view.link, view.peer_routes) = (None, Vec::new());
            (view.shadowed, view.peer_ips) = (Vec::new(), Vec::new());
            view
        });
        // It fails only if the process ends.
        if let Ok(view) = left.await {
            self.publish(view);
        }
    }

    /// Handles a supervisor event; returns whether tailscaled runs.
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
                self.restart_if_changed(&drift, supervisor, has_another)
                    .await
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

    /// Restarts a tailscaled whose options differ from the configuration. A new program is no reason: a
    /// restart costs seconds of traffic, so the administrator chooses the moment.
    async fn restart_if_changed(
        &self,
        differences: &[Drift],
        supervisor: &mut Option<Supervisor>,
        has_another: bool,
    ) -> bool {
        let mut changed = differences.iter().filter(|it| **it != Drift::Program);
        let Some(first) = changed.next() else {
            for difference in differences {
                tracing::warn!(%difference, "tailscaled keeps running; restart it yourself to apply this");
            }
            return true;
        };
        tracing::info!(difference = %first, "restarting tailscaled");
        let moves = differences.contains(&Drift::Netns);
        let ending = match supervisor {
            // On exit it would delete rules that the host tailscaled uses too.
            Some(it) if moves && has_another && it.spec().netns.is_some() => Ending::Abrupt,
            _ => Ending::Orderly,
        };
        self.restart(supervisor, ending).await
    }

    /// Restarts a tailscaled whose routes were deleted, because it does not restore them; returns whether
    /// it runs. Beside a new host tailscaled a restart would delete that one's routes.
    async fn restore_routes(
        &self,
        membership: &mut Membership,
        supervisor: &mut Option<Supervisor>,
        config: &Config,
    ) -> bool {
        if !membership.has_lost_routes() || coexistence::has_another(config).await {
            return true;
        }
        tracing::warn!("tailscaled's routes are gone, restarting it");
        self.restart(supervisor, Ending::Orderly).await
    }

    /// Returns whether tailscaled runs.
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

    /// Waits for a change of tailscaled's netns, and debounces it: our own changes notify too. Cancel
    /// safe, because the notification is consumed at the very end.
    async fn netns_changed(&self, mode: TailscaledMode) {
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

/// How tailscaled ends before a restart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Ending {
    /// It deletes its rules.
    Orderly,
    /// It is killed, and its rules stay.
    Abrupt,
}

async fn next(supervisor: &mut Option<Supervisor>) -> SupervisorEvent {
    match supervisor {
        Some(supervisor) => supervisor.next().await,
        None => std::future::pending().await,
    }
}

async fn debounce(bus: &mut BusWatcher) {
    sleep(DEBOUNCE).await;
    while timeout(Duration::ZERO, bus.recv()).await.is_ok() {}
}

fn is_change(event: &BusEvent) -> bool {
    !matches!(event, BusEvent::Lost(_))
}

fn needs_new_membership(before: &Config, now: &Config) -> bool {
    before.headscale != now.headscale || before.tailscale != now.tailscale
}
