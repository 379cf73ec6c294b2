//! The pods of this node: who is attached, and what those that are gone have left behind.
//!
//! Nothing here is kept: records, leases and the kernel tell everything, before a restart and after
//! it. [`Pods`] is what the rest of the daemon has of it. [`judge`] decides, and is pure; `look`
//! finds out; `collect` acts. What blocks says so, and is for a thread of its own.

mod collect;
mod detach;
pub mod judge;
mod kernel;
mod key;
pub mod leases;
mod living;
mod look;
mod namespace;
mod orphans;
mod place;
mod pool;
mod sightings;
mod view;

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use api::event::Event;
use api::messages::{Pod, PodState};
use ipam::LeaseSnapshot;
use ruleset::host_ports::HostPort;
use tokio::sync::{Notify, watch};
use tokio_util::sync::CancellationToken;

use crate::leases::Home;
use node_core::PodIps;
use node_core::conditions::Condition;
use node_core::error::display_chain;
use node_core::metrics::{ByFamily, ByKind};
use node_core::reconcile::{Reconciled, Telemetry};

pub use detach::{detach_all, own_leases};
pub use judge::Limits;
pub use key::Key;
use orphans::Orphans;
pub use orphans::{Kind, Tally};
pub use place::{Keeper, Leases, Place};
pub(crate) use place::{has_known_store, ipam_plugin, lease_dir};
pub use pool::Pool;
pub use sightings::Now;
use view::View;
pub use view::{Failure, PodLink};

use look::Look;
use namespace::Mounts;

/// How often everything is looked at though nothing was missed.
const RESYNC: Duration = Duration::from_mins(5);
/// Looks that are asked for come no faster than this.
const PAUSE: Duration = Duration::from_secs(2);

/// The pods of this node.
pub struct Pods {
    place: Mutex<Arc<Place>>,
    view: View,
    orphans: Orphans,
    missed: Arc<Notify>,
    pod_ips: watch::Sender<Arc<PodIps>>,
    telemetry: Telemetry,
}

impl Pods {
    /// Knows nobody yet: [`Pods::resync`] looks.
    pub fn new(place: Place, telemetry: Telemetry) -> Arc<Self> {
        Arc::new(Self {
            place: Mutex::new(Arc::new(place)),
            view: View::default(),
            orphans: Orphans::default(),
            missed: Arc::default(),
            pod_ips: watch::Sender::default(),
            telemetry,
        })
    }

    /// Where things are now, by a configuration that was loaded anew.
    pub fn move_to(&self, place: Place) {
        *self.place.lock().unwrap_or_else(PoisonError::into_inner) = Arc::new(place);
        self.missed();
    }

    fn place(&self) -> Arc<Place> {
        let place = self.place.lock().unwrap_or_else(PoisonError::into_inner);
        Arc::clone(&place)
    }

    /// Something may have been missed: everything is looked at soon.
    pub fn missed(&self) {
        self.missed.notify_one();
    }

    /// Requests a resync, for those that only know that something may have changed.
    pub fn resync_request(&self) -> Arc<Notify> {
        Arc::clone(&self.missed)
    }

    /// The addresses of all attached pods.
    pub fn pod_ips(&self) -> watch::Receiver<Arc<PodIps>> {
        self.pod_ips.subscribe()
    }

    /// Takes note of a call that the plugin tells of: its record says what became of it.
    pub async fn told(self: &Arc<Self>, event: Event) {
        let pods = Arc::clone(self);
        // It fails only if the process ends.
        let _ = tokio::task::spawn_blocking(move || pods.note(&event)).await;
    }

    /// As [`Pods::told`]; blocks.
    pub fn note(&self, event: &Event) {
        let Some(key) = Key::of(event) else {
            tracing::debug!("an event of no attachment that can be");
            return;
        };
        self.view.note_failure(&key, event);
        let look = Look::at_one(&self.place(), &key);
        for trouble in &look.troubles {
            tracing::warn!(%key, %trouble, "what became of a call can't be told");
            self.missed();
        }
        self.view.learn(&key, &look, &Mounts::default());
        self.count();
    }

    /// Looks at everything; blocks. The troubles are what could not be looked at.
    pub fn resync(&self) -> Vec<String> {
        let place = self.place();
        let mark = self.view.mark();
        let look = Look::at(&place);
        self.view.replace(mark, &look, &Mounts::default());
        self.count();
        let mut troubles = look.troubles;
        troubles.extend(self.measure().err());
        troubles
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
    pub async fn keep_view(self: Arc<Self>, end: CancellationToken) {
        loop {
            let pods = Arc::clone(&self);
            match tokio::task::spawn_blocking(move || pods.resync()).await {
                Ok(troubles) => {
                    for trouble in troubles {
                        tracing::warn!(%trouble, "pods can't be looked at");
                    }
                }
                // A panic ends the process; this is its end.
                Err(_) => return,
            }
            tokio::select! {
                () = end.cancelled() => return,
                _ = tokio::time::timeout(RESYNC, self.missed.notified()) => {}
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
    pub fn collect_at(&self, limits: Limits, now: Now) -> (Result<Reconciled, String>, Tally) {
        if let Err(trouble) = self.measure() {
            tracing::debug!(%trouble, "the pool can't be measured");
        }
        let tally = self.orphans.pass(&self.place(), limits, now);
        let metrics = &self.telemetry.metrics;
        let by = |kind: Kind| ByKind {
            kind: kind.name().to_owned(),
        };
        for kind in Kind::ALL {
            let left = tally.left.get(&kind).copied().unwrap_or_default();
            let left = i64::try_from(left).unwrap_or(i64::MAX);
            metrics.orphans.get_or_create(&by(kind)).set(left);
        }
        for (kind, key, _) in &tally.collected {
            metrics.orphans_collected.get_or_create(&by(*kind)).inc();
            let look = Look::at_one(&self.place(), key);
            self.view.learn(key, &look, &Mounts::default());
        }
        self.count();
        let outcome = if tally.troubles.is_empty() {
            let is_clean = tally.left.values().all(|left| *left == 0);
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
            Err(tally.troubles.join("; "))
        };
        (outcome, tally)
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
        if let Some(store) = self.place().lease_store() {
            store
                .for_each_lease(&mut |lease| leases.push(lease))
                .map_err(|error| display_chain(&error))?;
        }
        Ok(leases)
    }

    /// How many pods that may live have their leases at `home`; blocks. What can't be looked at is an
    /// error.
    pub fn living(&self, home: &Home) -> Result<usize, String> {
        living::living(&self.place(), home)
    }

    /// The pools of our network; blocks.
    pub fn pools(&self) -> Result<Vec<Pool>, String> {
        pool::pools(&self.place())
    }

    /// What is otherwise in the store and in the kernel than we know; blocks.
    pub fn differences(&self) -> Vec<String> {
        let look = Look::at(&self.place());
        self.view.differences(&look, &Mounts::default())
    }
}
