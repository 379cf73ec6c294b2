//! What pods leave behind: found, judged, and collected when it is old enough.
//!
//! Records and leases are collected. A link without a record may be a living pod's whose record was
//! wiped, and a route goes with its link: those are counted, and named once.

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

/// So many left-overs are collected in one pass, and for so long; the others in the next ones.
const MAX_PER_PASS: usize = 64;
const MAX_TIME: Duration = Duration::from_mins(2);

/// What is left behind.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Kind {
    /// A lease.
    Lease,
    /// A link.
    Link,
    /// A route.
    Route,
    /// A record, with all that it tells of.
    State,
}

impl Kind {
    /// All of them.
    pub const ALL: [Self; 4] = [Self::Lease, Self::Link, Self::Route, Self::State];

    /// As metrics have it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Lease => "lease",
            Self::Link => "link",
            Self::Route => "route",
            Self::State => "state",
        }
    }
}

/// What a pass has found and done.
#[derive(Debug, Default)]
pub struct GcReport {
    /// What is left, by kind.
    pub left: BTreeMap<Kind, usize>,
    /// What was collected, in order.
    pub collected: Vec<(Kind, Key, Cause)>,
    /// What could not be looked at or collected, and why.
    pub errors: Vec<String>,
}

/// The memory of passes.
#[derive(Debug, Default)]
pub(super) struct Orphans {
    memory: Mutex<Memory>,
}

#[derive(Debug, Default)]
struct Memory {
    first_seen: FirstSeen<(Kind, Key)>,
    /// Links and routes that have no place here, by how many looks in a row have seen them.
    strays: BTreeMap<String, u32>,
}

impl Orphans {
    /// Looks at everything, and collects what has been left behind for long enough.
    pub(super) fn pass(&self, paths: &PodPaths, limits: Limits, now: Now) -> GcReport {
        let mut memory = self.memory.lock().unwrap_or_else(PoisonError::into_inner);
        let observed = ObservedPods::at(paths);
        let mut pass = GcPass {
            paths,
            limits,
            now,
            mounts: MountTable::default(),
            started: Instant::now(),
            is_boot_in_doubt: observed.is_boot_in_doubt(),
            memory: &mut memory,
            report: GcReport::default(),
        };
        pass.memory.first_seen.begin();
        pass.records(&observed);
        pass.leases(&observed);
        pass.strays(&observed);
        let mut report = pass.report;
        memory.first_seen.end();
        for kind in [Kind::State, Kind::Lease] {
            let count = memory.first_seen.count(|(of, _)| *of == kind);
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
    memory: &'a mut Memory,
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
        let first_seen = &mut self.memory.first_seen;
        let age = first_seen.age(&id, &stamp, recorded.modified, self.now);
        match evidence.assess(age, self.limits) {
            Assessment::InUse(_) | Assessment::InFlight => {}
            Assessment::Unknown(doubt) => {
                tracing::debug!(%key, ?doubt, "can't be handle_event from a left-over");
            }
            Assessment::Waiting(_) => {
                // Whoever works on it now is not done with it.
                if !self.is_locked(key) {
                    self.memory.first_seen.confirm(&id, &stamp, self.now);
                }
            }
            Assessment::Orphan(cause) => {
                first_seen.confirm(&id, &stamp, self.now);
                self.collect(&id, cause, |pass| {
                    delete_orphan(pass.paths, key, &recorded.stamp, |sight| {
                        let link = match observed.link_of(key) {
                            Presence::Absent => KernelState::ask_one(key)
                                .map_or(Presence::Unknown, |kernel| kernel.link_of(key)),
                            seen => seen,
                        };
                        let now = ObservedRecord::of(key, sight);
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
            // One that names no interface is none of ours.
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
                .find(|sight| destinations.contains(sight))
                .unwrap_or(Presence::Absent),
            // Whoever has the store's lock now is waited for when it comes to that.
            lock: Lock::Free,
        };
        let id = (Kind::Lease, key.clone());
        let stamps: Vec<&str> = seen.iter().map(|lease| lease.stamp.as_str()).collect();
        let stamp = stamps.join(" ");
        let newest = seen.iter().map(|lease| lease.modified).max().flatten();
        let age = self.memory.first_seen.age(&id, &stamp, newest, self.now);
        match evidence.assess(age, self.limits) {
            Assessment::Waiting(_) => self.memory.first_seen.confirm(&id, &stamp, self.now),
            Assessment::Orphan(cause) => {
                self.memory.first_seen.confirm(&id, &stamp, self.now);
                self.collect(&id, cause, |pass| release_orphan(pass.paths, key, seen));
            }
            Assessment::Unknown(doubt) => {
                tracing::debug!(%key, ?doubt, "can't tell whether the lease is a left-over");
            }
            Assessment::InUse(_) | Assessment::InFlight => {}
        }
    }

    /// Records of our network that were state in this boot: a sign that they were not wiped, and
    /// that the plugin and we know the same boot.
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
        let is_turn =
            self.report.collected.len() < MAX_PER_PASS && self.started.elapsed() < MAX_TIME;
        if !is_turn || !self.memory.first_seen.may_retry(id, self.now) {
            return;
        }
        let (kind, key) = id;
        match collect(self) {
            Ok(GcOutcome::Deleted) => {
                tracing::info!(kind = kind.name(), %key, %cause, "left-over collected");
                self.memory.first_seen.forget(id);
                self.report.collected.push((*kind, key.clone(), cause));
            }
            Ok(GcOutcome::Changed) => self.memory.first_seen.forget(id),
            Err(error) => {
                let error = format!(
                    "collect the {} of {key}: {}",
                    kind.name(),
                    display_chain(&error)
                );
                let interval = self.limits.interval;
                self.memory.first_seen.failed(id, interval, self.now);
                self.report.errors.push(error);
            }
        }
    }

    /// Counts what isn't for us to remove, and names it once.
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
        let mut is_news = |name: &str| {
            let looks = self.memory.strays.get(name).map_or(1, |looks| looks + 1);
            strays.insert(name.to_owned(), looks);
            // One look may have come between a record and its link.
            looks == 2
        };
        for link in links.into_iter().filter(|link| is_news(link)) {
            tracing::warn!(
                link,
                "a link of ours has no record: its pod may live, so it stays"
            );
        }
        for address in routes.iter().filter(|route| is_news(&route.to_string())) {
            tracing::warn!(
                %address,
                "a route of protocol 104 leads to a link that isn't ours, so it stays"
            );
        }
        self.memory.strays = strays;
    }
}
