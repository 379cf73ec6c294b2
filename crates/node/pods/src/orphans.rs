//! What pods leave behind: found, judged, and collected when it is old enough.
//!
//! Records and leases are collected. A link without a record may be a living pod's whose record was
//! wiped, and a route goes with its link: those are counted, and named once.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use cni::{ContainerId, IfName};
use ipam::{LeaseSnapshot, StorePresence};

use super::collect::{Collected, collect_lease, collect_record};
use super::judge::{
    Boot, Cause, Datapath, LeaseEvidence, Limits, Lock, RecordEvidence, Sight, Verdict,
};
use super::kernel::Kernel;
use super::key::Key;
use super::look::{Look, Recorded};
use super::namespace::Mounts;
use super::place::{Keeper, Place};
use super::sightings::{Now, Sightings};
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
pub struct Tally {
    /// What is left, by kind.
    pub left: BTreeMap<Kind, usize>,
    /// What was collected, in order.
    pub collected: Vec<(Kind, Key, Cause)>,
    /// What could not be looked at or collected, and why.
    pub troubles: Vec<String>,
}

/// The memory of passes.
#[derive(Debug, Default)]
pub(super) struct Orphans {
    memory: Mutex<Memory>,
}

#[derive(Debug, Default)]
struct Memory {
    sightings: Sightings<(Kind, Key)>,
    /// Links and routes that have no place here, by how many looks in a row have seen them.
    strays: BTreeMap<String, u32>,
}

impl Orphans {
    /// Looks at everything, and collects what has been left behind for long enough.
    pub(super) fn pass(&self, place: &Place, limits: Limits, now: Now) -> Tally {
        let mut memory = self.memory.lock().unwrap_or_else(PoisonError::into_inner);
        let look = Look::at(place);
        let mut pass = Pass {
            place,
            limits,
            now,
            mounts: Mounts::default(),
            started: Instant::now(),
            is_boot_in_doubt: look.is_boot_in_doubt(),
            memory: &mut memory,
            tally: Tally::default(),
        };
        pass.memory.sightings.begin();
        pass.records(&look);
        pass.leases(&look);
        pass.strays(&look);
        let mut tally = pass.tally;
        memory.sightings.end();
        for kind in [Kind::State, Kind::Lease] {
            let count = memory.sightings.count(|(of, _)| *of == kind);
            tally.left.insert(kind, count);
        }
        tally.troubles.extend(look.troubles);
        tally
    }
}

struct Pass<'a> {
    place: &'a Place,
    limits: Limits,
    now: Now,
    mounts: Mounts,
    started: Instant,
    is_boot_in_doubt: bool,
    memory: &'a mut Memory,
    tally: Tally,
}

impl Pass<'_> {
    fn records(&mut self, look: &Look) {
        for (key, recorded) in &look.records {
            self.record(look, key, recorded);
        }
    }

    fn record(&mut self, look: &Look, key: &Key, recorded: &Recorded) {
        let evidence = self.evidence(recorded, look.link_of(key), Lock::Free);
        let id = (Kind::State, key.clone());
        let stamp = recorded.stamp.to_string();
        let sightings = &mut self.memory.sightings;
        let age = sightings.age(&id, &stamp, recorded.modified, self.now);
        match evidence.judge(age, self.limits) {
            Verdict::Alive(_) | Verdict::InFlight => {}
            Verdict::Unknown(doubt) => {
                tracing::debug!(%key, ?doubt, "can't be told from a left-over");
            }
            Verdict::Waiting(_) => {
                // Whoever works on it now is not done with it.
                if !self.is_locked(key) {
                    self.memory.sightings.confirm(&id, &stamp, self.now);
                }
            }
            Verdict::Orphan(cause) => {
                sightings.confirm(&id, &stamp, self.now);
                self.collect(&id, cause, |pass| {
                    collect_record(pass.place, key, &recorded.stamp, |sight| {
                        let link = match look.link_of(key) {
                            Sight::Gone => Kernel::ask_one(key)
                                .map_or(Sight::Unknown, |kernel| kernel.link_of(key)),
                            seen => seen,
                        };
                        let now = Recorded::of(key, sight);
                        let evidence = pass.evidence(&now, link, Lock::Free);
                        matches!(evidence.judge(age, pass.limits), Verdict::Orphan(_))
                    })
                });
            }
        }
    }

    fn evidence(&self, recorded: &Recorded, link: Sight, lock: Lock) -> RecordEvidence {
        let attached = recorded.attached.as_deref();
        let boot = attached.map_or(Boot::Unknown, |attached| attached.boot);
        RecordEvidence {
            written: recorded.written,
            boot: if self.is_boot_in_doubt {
                Boot::Unknown
            } else {
                boot
            },
            datapath: attached.map_or(Datapath::Native, |attached| attached.datapath),
            link,
            namespace: recorded.namespace(&self.mounts),
            lock,
        }
    }

    fn is_locked(&self, key: &Key) -> bool {
        let store = attachment::RecordStore::new(&self.place.data_dir, &key.network);
        store.try_lock(&key.attachment()).is_err()
    }

    fn leases(&mut self, look: &Look) {
        let is_ours = self.place.leases.keeper == Keeper::Native;
        let Some(store) = self.place.lease_store().filter(|_| is_ours) else {
            return;
        };
        let mut by_owner: BTreeMap<Key, Vec<LeaseSnapshot>> = BTreeMap::new();
        let network = &self.place.network;
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
                if !look.records.contains_key(&key) {
                    by_owner.entry(key).or_default().push(seen);
                }
            }
        });
        match outcome {
            Err(error) => {
                self.tally.troubles.push(display_chain(&error));
                return;
            }
            Ok(StorePresence::Absent) => return,
            Ok(StorePresence::Present) => {}
        }
        for (key, seen) in by_owner {
            self.lease(look, &key, &seen);
        }
    }

    fn lease(&mut self, look: &Look, key: &Key, seen: &[LeaseSnapshot]) {
        let way_to = |lease: &LeaseSnapshot| {
            let kernel = look.kernel.as_ref();
            kernel.map_or(Sight::Unknown, |kernel| kernel.way_to(lease.address))
        };
        let ways: Vec<Sight> = seen.iter().map(way_to).collect();
        let evidence = LeaseEvidence {
            is_of_native_store: self.place.leases.keeper == Keeper::Native,
            names_interface: true,
            record: if look.lacks_records {
                Sight::Unknown
            } else {
                Sight::Gone
            },
            records: self.records_of_this_boot(look),
            link: look.link_of(key),
            way: [Sight::There, Sight::Unknown]
                .into_iter()
                .find(|sight| ways.contains(sight))
                .unwrap_or(Sight::Gone),
            // Whoever has the store's lock now is waited for when it comes to that.
            lock: Lock::Free,
        };
        let id = (Kind::Lease, key.clone());
        let stamps: Vec<&str> = seen.iter().map(|lease| lease.stamp.as_str()).collect();
        let stamp = stamps.join(" ");
        let newest = seen.iter().map(|lease| lease.modified).max().flatten();
        let age = self.memory.sightings.age(&id, &stamp, newest, self.now);
        match evidence.judge(age, self.limits) {
            Verdict::Waiting(_) => self.memory.sightings.confirm(&id, &stamp, self.now),
            Verdict::Orphan(cause) => {
                self.memory.sightings.confirm(&id, &stamp, self.now);
                self.collect(&id, cause, |pass| collect_lease(pass.place, key, seen));
            }
            Verdict::Unknown(doubt) => {
                tracing::debug!(%key, ?doubt, "can't tell whether the lease is a left-over");
            }
            Verdict::Alive(_) | Verdict::InFlight => {}
        }
    }

    /// Records of our network that were written in this boot: a sign that they were not wiped, and
    /// that the plugin and we know the same boot.
    fn records_of_this_boot(&self, look: &Look) -> Sight {
        let is_of_this_boot = |(key, recorded): (&Key, &Recorded)| {
            let attached = recorded.attached.as_deref();
            key.network == self.place.network
                && attached.is_some_and(|attached| attached.boot == Boot::This)
        };
        if look.lacks_records || self.is_boot_in_doubt {
            Sight::Unknown
        } else if look.records.iter().any(is_of_this_boot) {
            Sight::There
        } else {
            Sight::Gone
        }
    }

    fn collect<E: std::error::Error>(
        &mut self,
        id: &(Kind, Key),
        cause: Cause,
        collect: impl FnOnce(&Self) -> Result<Collected, E>,
    ) {
        let is_turn =
            self.tally.collected.len() < MAX_PER_PASS && self.started.elapsed() < MAX_TIME;
        if !is_turn || !self.memory.sightings.may_try(id, self.now) {
            return;
        }
        let (kind, key) = id;
        match collect(self) {
            Ok(Collected::Yes) => {
                tracing::info!(kind = kind.name(), %key, %cause, "left-over collected");
                self.memory.sightings.forget(id);
                self.tally.collected.push((*kind, key.clone(), cause));
            }
            Ok(Collected::Changed) => self.memory.sightings.forget(id),
            Err(error) => {
                let trouble = format!(
                    "collect the {} of {key}: {}",
                    kind.name(),
                    display_chain(&error)
                );
                let interval = self.limits.interval;
                self.memory.sightings.failed(id, interval, self.now);
                self.tally.troubles.push(trouble);
            }
        }
    }

    /// Counts what isn't for us to remove, and names it once.
    fn strays(&mut self, look: &Look) {
        let Some(kernel) = &look.kernel else { return };
        let known: BTreeSet<&Key> = look.records.keys().collect();
        let host_links: BTreeSet<String> = known.iter().map(|key| key.host_link()).collect();
        let links = if look.lacks_records {
            Vec::new()
        } else {
            kernel.links_beside(&known, &host_links)
        };
        let routes = &kernel.stray_routes;
        self.tally.left.insert(Kind::Link, links.len());
        self.tally.left.insert(Kind::Route, routes.len());
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
