//! The attached pods of this node, and garbage collection of orphans.
//!
//! [`Pods`] is the interface. Records, leases and the kernel are the source of truth: `observe` reads
//! them, [`orphan_policy`] decides and is pure, `gc` acts. Functions that block say so.

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

/// The interval of full resyncs.
const RESYNC: Duration = Duration::from_mins(5);
/// The least time between two resyncs.
const RESYNC_DELAY: Duration = Duration::from_secs(2);

pub struct Pods {
    paths: Mutex<Arc<PodPaths>>,
    view: View,
    orphans: Orphans,
    resync: Arc<Notify>,
    pod_ips: watch::Sender<Arc<PodIps>>,
    telemetry: Telemetry,
}

impl Pods {
    /// Empty until the first [`Pods::resync`].
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

    /// Applies a changed configuration.
    pub fn set_paths(&self, paths: PodPaths) {
        *self.paths.lock().unwrap_or_else(PoisonError::into_inner) = Arc::new(paths);
        self.request_resync();
    }

    fn paths(&self) -> Arc<PodPaths> {
        let paths = self.paths.lock().unwrap_or_else(PoisonError::into_inner);
        Arc::clone(&paths)
    }

    /// An event may be lost: read everything soon.
    pub fn request_resync(&self) {
        self.resync.notify_one();
    }

    /// Notify it to request a resync.
    pub fn resync_request(&self) -> Arc<Notify> {
        Arc::clone(&self.resync)
    }

    /// The addresses of all attached pods.
    pub fn pod_ips(&self) -> watch::Receiver<Arc<PodIps>> {
        self.pod_ips.subscribe()
    }

    /// Updates the attachment that an event of the plugin is about, from its record.
    pub async fn handle_event(self: &Arc<Self>, event: Event) {
        let pods = Arc::clone(self);
        // Fails only if the process ends.
        let _ = tokio::task::spawn_blocking(move || pods.handle_event_blocking(&event)).await;
    }

    /// As [`Pods::handle_event`]; blocks.
    pub fn handle_event_blocking(&self, event: &Event) {
        let Some(key) = Key::of(event) else {
            tracing::debug!("ignoring an event with invalid names");
            return;
        };
        self.view.record_failure(&key, event);
        let observed = ObservedPods::read_one_attachment(&self.paths(), &key);
        for error in &observed.errors {
            tracing::warn!(%key, %error, "failed to observe the attachment of an event");
            self.request_resync();
        }
        self.view
            .update_one(&key, &observed, &MountTable::default());
        self.publish_pods();
    }

    /// Reads everything; blocks. Returns what could not be read.
    pub fn resync(&self) -> Vec<String> {
        let paths = self.paths();
        let revision = self.view.revision();
        let observed = ObservedPods::read(&paths);
        self.view
            .replace(revision, &observed, &MountTable::default());
        self.publish_pods();
        let mut errors = observed.errors;
        errors.extend(self.measure_pools().err());
        errors
    }

    /// Publishes the size and the use of the pools.
    fn measure_pools(&self) -> Result<(), String> {
        self.publish_pools(&self.pools()?);
        Ok(())
    }

    fn publish_pods(&self) {
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

    fn publish_pools(&self, pools: &[Pool]) {
        let metrics = &self.telemetry.metrics;
        for pool in pools {
            let family = ByFamily {
                family: pool.family.to_owned(),
            };
            #[expect(clippy::cast_precision_loss, reason = "metrics are f64")]
            let (size, used) = (pool.size as f64, pool.used as f64);
            metrics.pool_size.get_or_create(&family).set(size);
            metrics.pool_used.get_or_create(&family).set(used);
        }
        let conditions = &self.telemetry.conditions;
        match pools.iter().find(|pool| pool.is_full()) {
            Some(full) => conditions.fails(
                Condition::IpsAvailable,
                format_args!(
                    "all {1} {0} addresses are leased; remove pods, or give the node a larger pod \
                     CIDR",
                    full.family, full.size
                ),
            ),
            None if pools.is_empty() => {}
            None => conditions.holds(Condition::IpsAvailable, "addresses are available"),
        }
    }

    /// Resyncs at start, on request and at an interval, until `shutdown`.
    pub async fn run(self: Arc<Self>, shutdown: CancellationToken) {
        loop {
            let pods = Arc::clone(&self);
            match tokio::task::spawn_blocking(move || pods.resync()).await {
                Ok(errors) => {
                    for error in errors {
                        tracing::warn!(%error, "failed to observe pods");
                    }
                }
                // A panic ends the process.
                Err(_) => return,
            }
            tokio::select! {
                () = shutdown.cancelled() => return,
                _ = tokio::time::timeout(RESYNC, self.resync.notified()) => {}
            }
            tokio::select! {
                () = shutdown.cancelled() => return,
                () = tokio::time::sleep(RESYNC_DELAY) => {}
            }
        }
    }

    /// Deletes orphans, for [`node_core::reconcile::run`]; blocks.
    pub fn collect(&self, limits: Limits) -> Result<Reconciled, String> {
        self.collect_at(limits, Now::read()).0
    }

    /// As [`Pods::collect`], at a given time.
    pub fn collect_at(&self, limits: Limits, now: Now) -> (Result<Reconciled, String>, GcReport) {
        if let Err(error) = self.measure_pools() {
            tracing::debug!(%error, "failed to measure the pools");
        }
        let report = self.orphans.collect(&self.paths(), limits, now);
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
            let observed = ObservedPods::read_one_attachment(&self.paths(), key);
            self.view.update_one(key, &observed, &MountTable::default());
        }
        self.publish_pods();
        let outcome = if report.errors.is_empty() {
            let is_clean = report.left.values().all(|left| *left == 0);
            let message = if is_clean {
                "no orphans"
            } else {
                "orphans are deleted after the grace period"
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

    /// All attachments.
    pub fn snapshot(&self) -> Vec<Pod> {
        self.view.snapshot()
    }

    /// The last failed CNI calls.
    pub fn failures(&self) -> Vec<Failure> {
        self.view.failures()
    }

    /// The links of running pods on the native datapath.
    pub fn pod_links(&self) -> Vec<PodLink> {
        self.view.pod_links()
    }

    /// The hostPorts of running pods on the native datapath.
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

    /// How many pods that may run have leases at `location`; blocks.
    pub fn lease_users(&self, location: &LeaseStoreLocation) -> Result<usize, String> {
        lease_users::running(&self.paths(), location)
    }

    /// The pools of our network; blocks.
    pub fn pools(&self) -> Result<Vec<Pool>, String> {
        pool::pools(&self.paths())
    }

    /// Differences between the view and the store or the kernel; blocks.
    pub fn differences(&self) -> Vec<String> {
        let observed = ObservedPods::read(&self.paths());
        self.view.differences(&observed, &MountTable::default())
    }
}
