//! Garbage collection of orphans: observe, assess, and delete after the grace period.
//!
//! Only records and leases are deleted. A link without a record may belong to a running pod whose record
//! was wiped, and a route goes with its link: those are counted, and logged once.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use cni::{ContainerId, IfName};
use ipam::{LeaseSnapshot, StorePresence};

use super::first_seen::{FirstSeen, Now};
use super::gc::{GcOutcome, delete_orphan, release_orphan};
use super::kernel_state::KernelState;
use super::key::Key;
use super::netns::MountTable;
use super::observe::{ObservedPods, ObservedRecord};
use super::orphan_policy::{
    Assessment, Boot, Cause, Datapath, LeaseEvidence, Limits, Lock, Presence, RecordEvidence,
};
use super::paths::{LeaseOwnership, PodPaths};
use node_core::error::display_chain;

/// Limits of one garbage collection; the next one continues.
const MAX_PER_PASS: usize = 64;
const MAX_TIME: Duration = Duration::from_mins(2);

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Kind {
    Lease,
    Link,
    Route,
    /// A record, with everything that it describes.
    State,
}

impl Kind {
    pub const ALL: [Self; 4] = [Self::Lease, Self::Link, Self::Route, Self::State];

    /// The label in metrics.
    pub fn name(self) -> &'static str {
        match self {
            Self::Lease => "lease",
            Self::Link => "link",
            Self::Route => "route",
            Self::State => "state",
        }
    }
}

#[derive(Debug, Default)]
pub struct GcReport {
    /// Remaining orphans.
    pub left: BTreeMap<Kind, usize>,
    pub collected: Vec<(Kind, Key, Cause)>,
    pub errors: Vec<String>,
}

#[derive(Debug, Default)]
pub(super) struct Orphans {
    history: Mutex<OrphanHistory>,
}

#[derive(Debug, Default)]
struct OrphanHistory {
    first_seen: FirstSeen<(Kind, Key)>,
    /// Links and routes without a record, by the number of observations in a row.
    strays: BTreeMap<String, u32>,
}

impl Orphans {
    pub(super) fn collect(&self, paths: &PodPaths, limits: Limits, now: Now) -> GcReport {
        let mut history = self.history.lock().unwrap_or_else(PoisonError::into_inner);
        let observed = ObservedPods::read(paths);
        let mut pass = GcPass {
            paths,
            limits,
            now,
            mounts: MountTable::default(),
            started: Instant::now(),
            is_boot_in_doubt: observed.is_boot_in_doubt(),
            history: &mut history,
            report: GcReport::default(),
        };
        pass.history.first_seen.begin();
        pass.records(&observed);
        pass.leases(&observed);
        pass.strays(&observed);
        let mut report = pass.report;
        history.first_seen.end();
        for kind in [Kind::State, Kind::Lease] {
            let count = history.first_seen.count(|(of, _)| *of == kind);
            report.left.insert(kind, count);
        }
        report.errors.extend(observed.errors);
        report
    }
}

struct GcPass<'a> {
    paths: &'a PodPaths,
    limits: Limits,
    now: Now,
    mounts: MountTable,
    started: Instant,
    is_boot_in_doubt: bool,
    history: &'a mut OrphanHistory,
    report: GcReport,
}

impl GcPass<'_> {
    fn records(&mut self, observed: &ObservedPods) {
        for (key, recorded) in &observed.records {
            self.record(observed, key, recorded);
        }
    }

    fn record(&mut self, observed: &ObservedPods, key: &Key, recorded: &ObservedRecord) {
        let evidence = self.evidence(recorded, observed.link_of(key), Lock::Free);
        let id = (Kind::State, key.clone());
        let stamp = recorded.stamp.to_string();
        let first_seen = &mut self.history.first_seen;
        let age = first_seen.age(&id, &stamp, recorded.modified, self.now);
        match evidence.assess(age, self.limits) {
            Assessment::InUse(_) | Assessment::InFlight => {}
            Assessment::Unknown(doubt) => {
                tracing::debug!(%key, ?doubt, "keeping a record: evidence is missing");
            }
            Assessment::Waiting(_) => {
                // A CNI call may be in progress.
                if !self.is_locked(key) {
                    self.history.first_seen.confirm(&id, &stamp, self.now);
                }
            }
            Assessment::Orphan(cause) => {
                first_seen.confirm(&id, &stamp, self.now);
                self.collect(&id, cause, |pass| {
                    delete_orphan(pass.paths, key, &recorded.stamp, |snapshot| {
                        let link = match observed.link_of(key) {
                            Presence::Absent => KernelState::read_one(key)
                                .map_or(Presence::Unknown, |kernel| kernel.link_of(key)),
                            seen => seen,
                        };
                        let now = ObservedRecord::of(key, snapshot);
                        let evidence = pass.evidence(&now, link, Lock::Free);
                        matches!(evidence.assess(age, pass.limits), Assessment::Orphan(_))
                    })
                });
            }
        }
    }

    fn evidence(&self, recorded: &ObservedRecord, link: Presence, lock: Lock) -> RecordEvidence {
        let attached = recorded.attached.as_deref();
        let boot = attached.map_or(Boot::Unknown, |attached| attached.boot);
        RecordEvidence {
            state: recorded.state,
            boot: if self.is_boot_in_doubt {
                Boot::Unknown
            } else {
                boot
            },
            datapath: attached.map_or(Datapath::Native, |attached| attached.datapath),
            link,
            netns: recorded.netns_presence(&self.mounts),
            lock,
        }
    }

    fn is_locked(&self, key: &Key) -> bool {
        let store = attachment::RecordStore::new(&self.paths.data_dir, &key.network);
        store.try_lock(&key.attachment()).is_err()
    }

    fn leases(&mut self, observed: &ObservedPods) {
        let is_ours = self.paths.leases.ownership == LeaseOwnership::Native;
        let Some(store) = self.paths.lease_store().filter(|_| is_ours) else {
            return;
        };
        let mut by_owner: BTreeMap<Key, Vec<LeaseSnapshot>> = BTreeMap::new();
        let network = &self.paths.network;
        let outcome = store.for_each_lease(&mut |seen| {
            let container = ContainerId::new(seen.owner.container());
            let ifname = seen.owner.ifname().map(IfName::new);
            // Our leases name their interface.
            if let (Ok(container), Some(Ok(ifname))) = (container, ifname) {
                let key = Key {
                    network: network.clone(),
                    container,
                    ifname,
                };
                if !observed.records.contains_key(&key) {
                    by_owner.entry(key).or_default().push(seen);
                }
            }
        });
        match outcome {
            Err(error) => {
                self.report.errors.push(display_chain(&error));
                return;
            }
            Ok(StorePresence::Absent) => return,
            Ok(StorePresence::Present) => {}
        }
        for (key, seen) in by_owner {
            self.lease(observed, &key, &seen);
        }
    }

    fn lease(&mut self, observed: &ObservedPods, key: &Key, seen: &[LeaseSnapshot]) {
        let route_to = |lease: &LeaseSnapshot| {
            let kernel = observed.kernel.as_ref();
            kernel.map_or(Presence::Unknown, |kernel| kernel.route_to(lease.address))
        };
        let destinations: Vec<Presence> = seen.iter().map(route_to).collect();
        let evidence = LeaseEvidence {
            is_of_native_store: self.paths.leases.ownership == LeaseOwnership::Native,
            names_interface: true,
            record: if observed.is_incomplete {
                Presence::Unknown
            } else {
                Presence::Absent
            },
            records: self.records_of_this_boot(observed),
            link: observed.link_of(key),
            route: [Presence::Present, Presence::Unknown]
                .into_iter()
                .find(|presence| destinations.contains(presence))
                .unwrap_or(Presence::Absent),
            // Checked when the lease is released.
            lock: Lock::Free,
        };
        let id = (Kind::Lease, key.clone());
        let stamps: Vec<&str> = seen.iter().map(|lease| lease.stamp.as_str()).collect();
        let stamp = stamps.join(" ");
        let newest = seen.iter().map(|lease| lease.modified).max().flatten();
        let age = self.history.first_seen.age(&id, &stamp, newest, self.now);
        match evidence.assess(age, self.limits) {
            Assessment::Waiting(_) => self.history.first_seen.confirm(&id, &stamp, self.now),
            Assessment::Orphan(cause) => {
                self.history.first_seen.confirm(&id, &stamp, self.now);
                self.collect(&id, cause, |pass| release_orphan(pass.paths, key, seen));
            }
            Assessment::Unknown(doubt) => {
                tracing::debug!(%key, ?doubt, "keeping a lease: evidence is missing");
            }
            Assessment::InUse(_) | Assessment::InFlight => {}
        }
    }

    /// Records of this boot prove that the records were not wiped, and that the plugin sees the same
    /// boot ID.
    fn records_of_this_boot(&self, observed: &ObservedPods) -> Presence {
        let is_of_this_boot = |(key, recorded): (&Key, &ObservedRecord)| {
            let attached = recorded.attached.as_deref();
            key.network == self.paths.network
                && attached.is_some_and(|attached| attached.boot == Boot::This)
        };
        if observed.is_incomplete || self.is_boot_in_doubt {
            Presence::Unknown
        } else if observed.records.iter().any(is_of_this_boot) {
            Presence::Present
        } else {
            Presence::Absent
        }
    }

    fn collect<E: std::error::Error>(
        &mut self,
        id: &(Kind, Key),
        cause: Cause,
        collect: impl FnOnce(&Self) -> Result<GcOutcome, E>,
    ) {
        let has_budget =
            self.report.collected.len() < MAX_PER_PASS && self.started.elapsed() < MAX_TIME;
        if !has_budget || !self.history.first_seen.may_retry(id, self.now) {
            return;
        }
        let (kind, key) = id;
        match collect(self) {
            Ok(GcOutcome::Deleted) => {
                tracing::info!(kind = kind.name(), %key, %cause, "deleted orphan");
                self.history.first_seen.forget(id);
                self.report.collected.push((*kind, key.clone(), cause));
            }
            Ok(GcOutcome::Changed) => self.history.first_seen.forget(id),
            Err(error) => {
                let error = format!(
                    "delete the {} of {key}: {}",
                    kind.name(),
                    display_chain(&error)
                );
                let interval = self.limits.interval;
                self.history.first_seen.failed(id, interval, self.now);
                self.report.errors.push(error);
            }
        }
    }

    /// Counts links and routes without a record, and logs them once.
    fn strays(&mut self, observed: &ObservedPods) {
        let Some(kernel) = &observed.kernel else {
            return;
        };
        let known: BTreeSet<&Key> = observed.records.keys().collect();
        let host_links: BTreeSet<String> = known.iter().map(|key| key.host_link()).collect();
        let links = if observed.is_incomplete {
            Vec::new()
        } else {
            kernel.links_without_record(&known, &host_links)
        };
        let routes = &kernel.stray_routes;
        self.report.left.insert(Kind::Link, links.len());
        self.report.left.insert(Kind::Route, routes.len());
        let mut strays = BTreeMap::new();
        let mut is_new = |name: &str| {
            let looks = self.history.strays.get(name).map_or(1, |looks| looks + 1);
            strays.insert(name.to_owned(), looks);
            // The first observation may fall between a record and its link.
            looks == 2
        };
        for link in links.into_iter().filter(|link| is_new(link)) {
            tracing::warn!(
                link,
                "keeping a managed link without record: its pod may run"
            );
        }
        for address in routes.iter().filter(|route| is_new(&route.to_string())) {
            tracing::warn!(
                %address,
                "keeping a route of protocol 104 via an unmanaged link"
            );
        }
        self.history.strays = strays;
    }
}
