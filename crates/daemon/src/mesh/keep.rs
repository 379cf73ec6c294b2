//! Keeps this node a member of the mesh until it is told to end: a pass at start, after every sign
//! of a change, and from time to time all the same.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use api::messages::PodState;
use ipnet::IpNet;
use tailscaled::localapi::{BusEvent, BusWatcher, LocalApi};
use tailscaled::supervisor::{Drift, ProcessOrigin, RunningProcess, Supervisor, SupervisorEvent};
use tokio::sync::{Notify, watch};
use tokio::time::{Instant, sleep, sleep_until, timeout};
use tokio_util::sync::CancellationToken;

use super::beside::{self, Intruder};
use super::memory::Kept;
use super::outside::Outside;
use super::session::{Session, Situation};
use super::{View, Way, ours, report_none};
use crate::conditions::Condition;
use crate::config::{Config, MeshMode};
use crate::keeper::Reports;
use crate::metrics::ByRepair;
use crate::pods::Pods;
use crate::settings::Settings;

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

/// What the mesh needs of the rest of the daemon.
pub struct Ends {
    /// What to go by, and where others find what is known of the mesh.
    pub settings: watch::Sender<Settings>,
    /// Where to report.
    pub reports: Reports,
    /// The pods of this node.
    pub pods: Arc<Pods>,
    /// What has to be known after a restart.
    pub state_dir: PathBuf,
    /// Who tells that something of the network that our tailscaled has for itself may be gone.
    pub own_network: Arc<Notify>,
}

/// Keeps this node a member until it is told to end.
pub async fn keep(ends: Ends, end: CancellationToken) {
    // Nothing here is lost when it is dropped: the next start finds all of it.
    end.run_until_cancelled(ends.keep()).await;
}

impl Ends {
    async fn keep(&self) {
        let mut changes = self.settings.subscribe();
        let mut former = None;
        loop {
            let config = Arc::clone(&changes.borrow_and_update().config);
            let has_another = beside::has_another(&config).await;
            let way = self.choose(&config, has_another).await;
            if former.replace(way).is_some_and(|former| former != way) {
                let conditions = &self.reports.conditions;
                conditions.fails(Condition::MeshJoined, "tailscaled is exchanged for another");
            }
            if let Err(message) = self.end_other_ways(way, &config).await {
                tracing::warn!(message, "another way to be a member is not ended");
                let conditions = &self.reports.conditions;
                conditions.fails(Condition::MeshJoined, message);
                sleep(AFTER_FAILURE).await;
                continue;
            }
            if way == Way::None {
                report_none(&self.reports.conditions);
                self.leave().await;
                while Arc::ptr_eq(&config, &changes.borrow_and_update().config) {
                    if changes.changed().await.is_err() {
                        return;
                    }
                }
            } else {
                self.be_member(way, has_another, &config, &mut changes)
                    .await;
            }
        }
    }

    /// Is a member in one way until the configuration says otherwise, or another tailscaled comes.
    async fn be_member(
        &self,
        way: Way,
        has_another: bool,
        config: &Arc<Config>,
        changes: &mut watch::Receiver<Settings>,
    ) {
        let is_kept_by_us = config.tailscale.mode != MeshMode::Container;
        let mut supervisor = match way {
            Way::Ours | Way::OursApart if is_kept_by_us => {
                Some(Supervisor::new(ours::settings(config, way)))
            }
            _ => None,
        };
        let tailscaled = match way {
            Way::None | Way::Hosts => LocalApi::new(&config.tailscale.socket),
            Way::Ours | Way::OursApart => LocalApi::new(ours::socket()),
        };
        let Some(mut session) = self.session(way, tailscaled.clone(), config).await else {
            return;
        };
        let mut bus = tailscaled.watch_bus();
        let mut is_running = supervisor.is_none();
        let mut intruder = Intruder::new(way, config);
        loop {
            let current = changes.borrow_and_update().clone();
            if is_other(config, &current.config) {
                return;
            }
            let outside = self.outside(&current);
            let situation = Situation {
                settings: &current,
                outside: &outside,
            };
            let mut wait = FOREVER;
            let mut is_placed = true;
            if way == Way::OursApart {
                match self.keep_apart(&current, &outside.routed).await {
                    // Whoever runs is in one that has no name any more.
                    Ok(is_new) if is_new && is_running => {
                        is_running = self.restart(&mut supervisor, Ending::Orderly).await;
                    }
                    Ok(_) => {}
                    Err(message) => {
                        let conditions = &self.reports.conditions;
                        conditions.fails(Condition::MeshJoined, message);
                        (is_placed, wait) = (false, AFTER_FAILURE);
                    }
                }
            }
            if is_running && is_placed {
                let (view, due) = session.pass(&situation).await;
                wait = due;
                if let Some(view) = view {
                    self.publish(view);
                }
                is_running = self.mend(&mut session, &mut supervisor, config).await;
                // What we have just said ourselves is no news.
                let now = changes.borrow();
                let is_same = now.has_sources_of(&current) && now.networks == current.networks;
                drop(now);
                if is_same {
                    changes.mark_unchanged();
                }
            }
            // What is of no matter must not put the next pass off.
            let due = Instant::now() + wait;
            let mut listen = Instant::now() + LISTEN;
            loop {
                tokio::select! {
                    alive = changes.changed() => {
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
                        if is_running && way == Way::Ours {
                            // Only now nobody is in it any more.
                            self.clear_apart().await;
                        }
                        break;
                    }
                    () = self.pods.changed() => {
                        let now = self.outside(&current);
                        if now != outside {
                            sleep(COLLECT).await;
                            break;
                        }
                    }
                    () = self.own_network_changes(way) => break,
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
        way: Way,
        tailscaled: LocalApi,
        config: &Arc<Config>,
    ) -> Option<Session> {
        let (config, dir) = (Arc::clone(config), self.state_dir.clone());
        let reports = self.reports.clone();
        let made = tokio::task::spawn_blocking(move || {
            Session::new(way, tailscaled, &config, Kept::load(&dir), reports)
        });
        // It fails only if the process ends.
        made.await.ok()
    }

    /// Tells the other parts what there is of the mesh.
    fn publish(&self, view: View) {
        self.settings.send_if_modified(|settings| {
            let is_other = view != *settings.mesh;
            if is_other {
                settings.mesh = Arc::new(view);
            }
            is_other
        });
    }

    /// Forgets the way to other nodes: there is none any more.
    async fn leave(&self) {
        let dir = self.state_dir.clone();
        let left = tokio::task::spawn_blocking(move || {
            let mut kept = Kept::load(&dir);
            let outcome = kept.change(|memory| {
                memory.link = None;
                memory.remotes.clear();
                memory.stolen.clear();
                memory.known.clear();
                memory.members.clear();
            });
            if let Err(error) = outcome {
                tracing::warn!(%error, "what is known of the mesh can't be kept");
            }
            let mut view = kept.memory().view();
            (view.link, view.remotes, view.stolen) = (None, Vec::new(), Vec::new());
            view.members = Vec::new();
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
        let conditions = &self.reports.conditions;
        match event {
            SupervisorEvent::Running(ensured) => {
                let RunningProcess { pid, origin, drift } = ensured;
                match origin {
                    ProcessOrigin::Adopted => tracing::info!(pid, "tailscaled runs already"),
                    ProcessOrigin::Started => tracing::info!(pid, "tailscaled was started"),
                }
                self.restart_if_told(&drift, supervisor, has_another).await
            }
            SupervisorEvent::Exited {
                pid,
                status,
                restart_in,
            } => {
                let status = status.unwrap_or_default();
                tracing::warn!(
                    pid,
                    status,
                    ?restart_in,
                    "tailscaled has ended and is started again"
                );
                conditions.fails(
                    Condition::MeshJoined,
                    "tailscaled has ended and is started again",
                );
                let by = ByRepair {
                    repair: "restart".to_owned(),
                };
                self.reports.metrics.mesh.repairs.get_or_create(&by).inc();
                false
            }
            SupervisorEvent::Failed { error, .. } => {
                let message = crate::causes::with_causes(&error);
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
                tracing::warn!(%difference, "tailscaled runs on as it is; it is never restarted for that");
            }
            return true;
        };
        tracing::info!(difference = %first, "tailscaled is started again");
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
        session: &mut Session,
        supervisor: &mut Option<Supervisor>,
        config: &Config,
    ) -> bool {
        if !session.has_lost_routes() || beside::has_another(config).await {
            return true;
        }
        tracing::warn!("routes of tailscaled are gone; it has to be started again");
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
                let message = crate::causes::with_causes(&error);
                self.reports
                    .conditions
                    .fails(Condition::MeshJoined, message);
                false
            }
        }
    }

    /// Waits until something of the network of its own may be gone, and a moment longer: what we make
    /// ourselves is told as well, and who is always at it must not keep us busy. Nothing is lost if this
    /// is cancelled: the sign is taken at the very end.
    async fn own_network_changes(&self, way: Way) {
        if way != Way::OursApart {
            return std::future::pending().await;
        }
        self.own_network.notified().await;
        self.own_network.notify_one();
        sleep(COLLECT).await;
        self.own_network.notified().await;
    }

    /// Addresses of pods that are in none of this node's networks.
    fn outside(&self, settings: &Settings) -> Outside {
        let Some(networks) = &settings.networks else {
            return Outside::default();
        };
        let snapshot = self.pods.snapshot().into_iter();
        let attached = snapshot.filter(|pod| pod.state == PodState::Attached);
        let ips = attached.flat_map(|pod| pod.ips);
        let outside = ips.filter(|ip| !networks.local.iter().any(|local| local.contains(ip)));
        Outside::choose(outside.map(IpNet::from).collect(), &settings.mesh.outside)
    }
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
