//! The pods of this node: who is attached, and what those that are gone have left behind.
//!
//! Nothing here is kept: records, leases and the kernel tell everything, before a restart and after
//! it. [`Pods`] is what the rest of the daemon has of it. [`judge`] decides, and is pure; `look`
//! finds out; `collect` acts. What blocks says so, and is for a thread of its own.

mod detach;
mod first_seen;
mod gc;
mod kernel_state;
mod key;
mod lease_users;
pub mod leases;
mod netns;
mod observe;
pub mod orphan_policy;
mod orphans;
mod paths;
mod pool;
mod view;

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use api::event::Event;
use api::messages::{Pod, PodState};
use ipam::LeaseSnapshot;
use ruleset::host_ports::HostPort;
use tokio::sync::{Notify, watch};
use tokio_util::sync::CancellationToken;

use crate::leases::LeaseStoreLocation;
use node_core::PodIps;
use node_core::conditions::Condition;
use node_core::error::display_chain;
use node_core::metrics::{ByFamily, ByKind};
use node_core::reconcile::{Reconciled, Telemetry};

pub use detach::{detach_all, own_lease_dir};
pub use first_seen::Now;
pub use key::Key;
pub use orphan_policy::Limits;
use orphans::Orphans;
pub use orphans::{GcReport, Kind};
pub use paths::{LeaseOwnership, LeaseSettings, PodPaths};
pub(crate) use paths::{has_known_store, ipam_plugin, lease_dir};
pub use pool::Pool;
use view::View;
pub use view::{Failure, PodLink};

use netns::MountTable;
use observe::ObservedPods;

/// How often everything is looked at though nothing was missed.
const RESYNC: Duration = Duration::from_mins(5);
/// Looks that are asked for come no faster than this.
const PAUSE: Duration = Duration::from_secs(2);

/// The pods of this node.
pub struct Pods {
    paths: Mutex<Arc<PodPaths>>,
    view: View,
    orphans: Orphans,
    resync: Arc<Notify>,
    pod_ips: watch::Sender<Arc<PodIps>>,
    telemetry: Telemetry,
}

impl Pods {
    /// Knows nobody yet: [`Pods::resync`] looks.
    pub fn new(paths: PodPaths, telemetry: Telemetry) -> Arc<Self> {
        Arc::new(Self {
            paths: Mutex::new(Arc::new(paths)),
            view: View::default(),
            orphans: Orphans::default(),
            resync: Arc::default(),
            pod_ips: watch::Sender::default(),
            telemetry,
        })
    }

    /// Where things are now, by a configuration that was loaded anew.
    pub fn set_paths(&self, paths: PodPaths) {
        *self.paths.lock().unwrap_or_else(PoisonError::into_inner) = Arc::new(paths);
        self.request_resync();
    }

    fn paths(&self) -> Arc<PodPaths> {
        let paths = self.paths.lock().unwrap_or_else(PoisonError::into_inner);
        Arc::clone(&paths)
    }

    /// Something may have been missed: everything is looked at soon.
    pub fn request_resync(&self) {
        self.resync.notify_one();
    }

    /// Requests a resync, for those that only know that something may have changed.
    pub fn resync_request(&self) -> Arc<Notify> {
        Arc::clone(&self.resync)
    }

    /// The addresses of all attached pods.
    pub fn pod_ips(&self) -> watch::Receiver<Arc<PodIps>> {
        self.pod_ips.subscribe()
    }

    /// Takes note of a call that the plugin tells of: its record says what became of it.
    pub async fn handle_event(self: &Arc<Self>, event: Event) {
        let pods = Arc::clone(self);
        // It fails only if the process ends.
        let _ = tokio::task::spawn_blocking(move || pods.handle_event_blocking(&event)).await;
    }

    /// As [`Pods::told`]; blocks.
    pub fn handle_event_blocking(&self, event: &Event) {
        let Some(key) = Key::of(event) else {
            tracing::debug!("an event of no attachment that can be");
            return;
        };
        self.view.record_failure(&key, event);
        let observed = ObservedPods::at_one(&self.paths(), &key);
        for error in &observed.errors {
            tracing::warn!(%key, %error, "what became of a call can't be handle_event");
            self.request_resync();
        }
        self.view
            .update_one(&key, &observed, &MountTable::default());
        self.count();
    }

    /// Looks at everything; blocks. The troubles are what could not be looked at.
    pub fn resync(&self) -> Vec<String> {
        let paths = self.paths();
        let revision = self.view.revision();
        let observed = ObservedPods::at(&paths);
        self.view
            .replace(revision, &observed, &MountTable::default());
        self.count();
        let mut errors = observed.errors;
        errors.extend(self.measure().err());
        errors
    }

    /// Telemetry how many addresses there are, and how many are given.
    fn measure(&self) -> Result<(), String> {
        self.report(&self.pools()?);
        Ok(())
    }

    fn count(&self) {
        let pods = self.view.snapshot().into_iter();
        let attached_pods = pods.filter(|pod| pod.state == PodState::Attached);
        let now: PodIps = attached_pods.flat_map(|pod| pod.ips).collect();
        self.pod_ips.send_if_modified(|known| {
            let is_other = **known != now;
            if is_other {
                *known = Arc::new(now);
            }
            is_other
        });
        let attached = i64::try_from(self.view.attached()).unwrap_or(i64::MAX);
        self.telemetry.metrics.pods.set(attached);
    }

    fn report(&self, pools: &[Pool]) {
        let metrics = &self.telemetry.metrics;
        for pool in pools {
            let family = ByFamily {
                family: pool.family.to_owned(),
            };
            #[expect(clippy::cast_precision_loss, reason = "it is for a graph")]
            let (size, used) = (pool.size as f64, pool.used as f64);
            metrics.pool_size.get_or_create(&family).set(size);
            metrics.pool_used.get_or_create(&family).set(used);
        }
        let conditions = &self.telemetry.conditions;
        match pools.iter().find(|pool| pool.is_full()) {
            Some(full) => conditions.fails(
                Condition::IpsAvailable,
                format_args!(
                    "no {} address is left: all {} are leased; remove pods, or give the node a \
                     larger network",
                    full.family, full.size
                ),
            ),
            None if pools.is_empty() => {}
            None => conditions.holds(Condition::IpsAvailable, "there are addresses left"),
        }
    }

    /// Looks at everything at the start, whenever something may have been missed, and from time to
    /// time all the same, until it is told to end.
    pub async fn run(self: Arc<Self>, end: CancellationToken) {
        loop {
            let pods = Arc::clone(&self);
            match tokio::task::spawn_blocking(move || pods.resync()).await {
                Ok(errors) => {
                    for error in errors {
                        tracing::warn!(%error, "pods can't be looked at");
                    }
                }
                // A panic ends the process; this is its end.
                Err(_) => return,
            }
            tokio::select! {
                () = end.cancelled() => return,
                _ = tokio::time::timeout(RESYNC, self.resync.notified()) => {}
            }
            tokio::select! {
                () = end.cancelled() => return,
                () = tokio::time::sleep(PAUSE) => {}
            }
        }
    }

    /// Collects what was left behind, for [`node_core::reconcile::keep`]; blocks.
    pub fn collect(&self, limits: Limits) -> Result<Reconciled, String> {
        self.collect_at(limits, Now::read()).0
    }

    /// As [`Pods::collect`], at a moment of the caller's choice.
    pub fn collect_at(&self, limits: Limits, now: Now) -> (Result<Reconciled, String>, GcReport) {
        if let Err(error) = self.measure() {
            tracing::debug!(%error, "the pool can't be measured");
        }
        let report = self.orphans.pass(&self.paths(), limits, now);
        let metrics = &self.telemetry.metrics;
        let by = |kind: Kind| ByKind {
            kind: kind.name().to_owned(),
        };
        for kind in Kind::ALL {
            let left = report.left.get(&kind).copied().unwrap_or_default();
            let left = i64::try_from(left).unwrap_or(i64::MAX);
            metrics.orphans.get_or_create(&by(kind)).set(left);
        }
        for (kind, key, _) in &report.collected {
            metrics.orphans_collected.get_or_create(&by(*kind)).inc();
            let observed = ObservedPods::at_one(&self.paths(), key);
            self.view.update_one(key, &observed, &MountTable::default());
        }
        self.count();
        let outcome = if report.errors.is_empty() {
            let is_clean = report.left.values().all(|left| *left == 0);
            let message = if is_clean {
                "nothing is left behind"
            } else {
                "what is left behind is collected when it is old enough"
            };
            Ok(Reconciled {
                message: message.to_owned(),
                ..Reconciled::default()
            })
        } else {
            Err(report.errors.join("; "))
        };
        (outcome, report)
    }

    /// Every attachment.
    pub fn snapshot(&self) -> Vec<Pod> {
        self.view.snapshot()
    }

    /// The calls that failed last.
    pub fn failures(&self) -> Vec<Failure> {
        self.view.failures()
    }

    /// The links of living pods on our own datapath.
    pub fn pod_links(&self) -> Vec<PodLink> {
        self.view.pod_links()
    }

    /// The hostPorts of living pods on our own datapath.
    pub fn host_ports(&self) -> Vec<HostPort> {
        self.view.host_ports()
    }

    /// The leases of our network; blocks.
    pub fn leases(&self) -> Result<Vec<LeaseSnapshot>, String> {
        let mut leases = Vec::new();
        if let Some(store) = self.paths().lease_store() {
            store
                .for_each_lease(&mut |lease| leases.push(lease))
                .map_err(|error| display_chain(&error))?;
        }
        Ok(leases)
    }

    /// How many pods that may live have their leases at `home`; blocks. What can't be looked at is an
    /// error.
    pub fn lease_users(&self, location: &LeaseStoreLocation) -> Result<usize, String> {
        lease_users::running(&self.paths(), location)
    }

    /// The pools of our network; blocks.
    pub fn pools(&self) -> Result<Vec<Pool>, String> {
        pool::pools(&self.paths())
    }

    /// What is otherwise in the store and in the kernel than we know; blocks.
    pub fn differences(&self) -> Vec<String> {
        let observed = ObservedPods::at(&self.paths());
        self.view.differences(&observed, &MountTable::default())
    }
}
