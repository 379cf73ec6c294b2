//! The known attachments of this node.
//!
//! An event is a hint to read one record; a resync reads all. An update during a resync is newer than
//! what the resync has read.

use std::collections::{BTreeMap, VecDeque};
use std::net::IpAddr;
use std::sync::{Mutex, MutexGuard, PoisonError};

use api::event::{Event, EventPod};
use api::messages::{Pod, PodState};
use cni::NetworkName;
use net::Mac;
use ruleset::host_ports::HostPort;
use serde::Serialize;

use super::kernel_state::ManagedLink;
use super::key::Key;
use super::netns::MountTable;
use super::observe::{MAX_ATTACHMENTS, ObservedPods, ObservedRecord};
use super::orphan_policy::{Boot, Datapath, Presence, RecordState};

const MAX_FAILURES: usize = 64;
/// Attachments removed since the last resync.
const MAX_GONE: usize = 4096;

/// A failed CNI call.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Failure {
    /// `ADD` or `DEL`.
    pub verb: String,
    pub network: String,
    pub container: String,
    pub ifname: String,
    /// The CNI error code.
    pub code: u32,
    pub started_unix_ms: u64,
}

/// The link of a pod on the native datapath, as needed to restore its routes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PodLink {
    pub host_link: String,
    pub host_mac: Mac,
    /// The neighbour of each address.
    pub pod_mac: Mac,
    /// With a route each.
    pub addresses: Vec<IpAddr>,
}

#[derive(Debug, Default)]
pub(super) struct View {
    inner: Mutex<Inner>,
}

#[derive(Debug, Default)]
struct Inner {
    entries: BTreeMap<Key, Entry>,
    /// Removed attachments, with the number of the change.
    gone: BTreeMap<Key, u64>,
    failures: VecDeque<Failure>,
    changes: u64,
}

#[derive(Clone, Debug, PartialEq)]
struct Entry {
    pod: Option<EventPod>,
    ips: Vec<IpAddr>,
    host_link: Option<String>,
    pod_mac: Option<Mac>,
    since_unix_ms: Option<u64>,
    state: PodState,
    /// On the native datapath.
    link: Option<PodLink>,
    ports: Vec<HostPort>,
    /// The number of its last change.
    change: u64,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Revision(u64);

impl View {
    fn lock(&self) -> MutexGuard<'_, Inner> {
        // The next resync repairs a partial change.
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Take it before a resync.
    pub(super) fn revision(&self) -> Revision {
        Revision(self.lock().changes)
    }

    /// Applies a resync that began at `revision`.
    pub(super) fn replace(&self, revision: Revision, observed: &ObservedPods, mounts: &MountTable) {
        let seen = observed.keys().into_iter().take(MAX_ATTACHMENTS);
        let found: Vec<(Key, Entry)> = seen
            .filter_map(|key| Some((key.clone(), Entry::of(key, observed, mounts, revision.0)?)))
            .collect();
        let is_newer = |change: u64| change > revision.0;
        let mut inner = self.lock();
        if !observed.is_incomplete && observed.kernel.is_some() {
            // Otherwise what is missing may just be unread.
            inner.entries.retain(|_, entry| is_newer(entry.change));
        }
        for (key, entry) in found {
            let known = inner.entries.get(&key).map(|known| known.change);
            let newest = known.max(inner.gone.get(&key).copied());
            if !newest.is_some_and(is_newer) {
                inner.entries.insert(key, entry);
            }
        }
        inner.gone.retain(|_, change| is_newer(*change));
    }

    pub(super) fn update_one(&self, key: &Key, observed: &ObservedPods, mounts: &MountTable) {
        let mut inner = self.lock();
        inner.changes += 1;
        let change = inner.changes;
        match Entry::of(key, observed, mounts, change) {
            Some(entry) => {
                if inner.entries.len() < MAX_ATTACHMENTS || inner.entries.contains_key(key) {
                    inner.entries.insert(key.clone(), entry);
                }
                inner.gone.remove(key);
            }
            // It may just be unread.
            None if observed.is_incomplete || observed.kernel.is_none() => {}
            None => {
                inner.entries.remove(key);
                if inner.gone.len() < MAX_GONE {
                    inner.gone.insert(key.clone(), change);
                }
            }
        }
    }

    pub(super) fn record_failure(&self, key: &Key, event: &Event) {
        let Some(code) = event.code else { return };
        let failures = &mut self.lock().failures;
        if failures.len() == MAX_FAILURES {
            failures.pop_front();
        }
        failures.push_back(Failure {
            verb: event.verb.chars().take(8).collect(),
            network: key.network.to_string(),
            container: key.container.to_string(),
            ifname: key.ifname.to_string(),
            code,
            started_unix_ms: event.started_unix_ms,
        });
    }

    /// The newest one is last.
    pub(super) fn failures(&self) -> Vec<Failure> {
        self.lock().failures.iter().cloned().collect()
    }

    pub(super) fn snapshot(&self) -> Vec<Pod> {
        let inner = self.lock();
        let entries = inner.entries.iter();
        entries.map(|(key, entry)| entry.snapshot(key)).collect()
    }

    pub(super) fn attached(&self) -> usize {
        let inner = self.lock();
        let is_attached = |entry: &&Entry| entry.state == PodState::Attached;
        inner.entries.values().filter(is_attached).count()
    }

    pub(super) fn pod_links(&self) -> Vec<PodLink> {
        let inner = self.lock();
        let running = inner.entries.values().filter(|entry| entry.is_attached());
        running.filter_map(|entry| entry.link.clone()).collect()
    }

    pub(super) fn host_ports(&self) -> Vec<HostPort> {
        let inner = self.lock();
        let running = inner.entries.values().filter(|entry| entry.is_attached());
        running
            .flat_map(|entry| entry.ports.iter().copied())
            .collect()
    }

    /// Differences between the view and an observation.
    pub(super) fn differences(&self, observed: &ObservedPods, mounts: &MountTable) -> Vec<String> {
        let inner = self.lock();
        let mut differences = Vec::new();
        let seen = observed.keys();
        for key in &seen {
            let Some(found) = Entry::of(key, observed, mounts, 0) else {
                continue;
            };
            match inner.entries.get(*key) {
                None => differences.push(format!("{key} exists, but is not known")),
                Some(known) if known.is_same(&found) => {}
                Some(known) => differences.push(format!(
                    "{key} is known as {:?}, but is {:?}",
                    known.snapshot(key),
                    found.snapshot(key)
                )),
            }
        }
        let known = inner.entries.keys();
        let surplus = known.filter(|key| !seen.contains(key));
        differences.extend(surplus.map(|key| format!("{key} is known, but does not exist")));
        differences
    }
}

/// The attachments of a network whose pods run or start.
pub(super) fn running(
    observed: &ObservedPods,
    network: &NetworkName,
    mounts: &MountTable,
) -> Vec<Key> {
    let of_it = observed
        .keys()
        .into_iter()
        .filter(|key| key.network == *network);
    let is_attached = |key: &&Key| {
        Entry::of(key, observed, mounts, 0).is_some_and(|entry| entry.state != PodState::Gone)
    };
    of_it.filter(is_attached).cloned().collect()
}

impl Entry {
    /// `None` without record and link.
    fn of(key: &Key, observed: &ObservedPods, mounts: &MountTable, change: u64) -> Option<Self> {
        if let Some(recorded) = observed.records.get(key) {
            let link = observed.link_of(key);
            return Some(Self::of_record(key, recorded, link, mounts, change));
        }
        let (name, link) = observed.kernel.as_ref()?.managed_link(key)?;
        Some(Self::of_link(name, link, change))
    }

    /// The record is lost, but the link is a sign of life.
    fn of_link(name: &str, link: &ManagedLink, change: u64) -> Self {
        let mut ips = link.addresses.clone();
        ips.sort_unstable();
        let pod_link = |addresses| {
            Some(PodLink {
                host_link: name.to_owned(),
                host_mac: link.host_mac?,
                pod_mac: link.pod_mac?,
                addresses,
            })
        };
        Self {
            pod: None,
            link: pod_link(ips.clone()),
            ips,
            host_link: Some(name.to_owned()),
            pod_mac: link.pod_mac,
            since_unix_ms: None,
            state: PodState::Attached,
            ports: Vec::new(),
            change,
        }
    }

    fn of_record(
        key: &Key,
        recorded: &ObservedRecord,
        link: Presence,
        mounts: &MountTable,
        change: u64,
    ) -> Self {
        let attached = recorded.attached.as_deref();
        let is_native = attached.is_some_and(|known| known.datapath == Datapath::Native);
        let state = match (recorded.state, attached) {
            (RecordState::Complete, Some(known)) => {
                let is_gone = match known.datapath {
                    Datapath::Native => link == Presence::Absent,
                    Datapath::Other => {
                        known.boot == Boot::Earlier
                            || recorded.netns_presence(mounts) == Presence::Absent
                    }
                };
                if is_gone {
                    PodState::Gone
                } else {
                    PodState::Attached
                }
            }
            _ if link == Presence::Present && recorded.state == RecordState::Damaged => {
                PodState::Attached
            }
            _ => PodState::HalfMade,
        };
        let link = attached.filter(|_| is_native).and_then(|known| {
            Some(PodLink {
                host_link: key.host_link(),
                host_mac: known.host_mac?,
                pod_mac: known.pod_mac?,
                addresses: known.ips.clone(),
            })
        });
        Self {
            pod: attached.and_then(|known| known.pod.clone()),
            ips: attached.map_or_else(Vec::new, |known| known.ips.clone()),
            host_link: attached.and_then(|known| known.host_link.clone()),
            pod_mac: attached.and_then(|known| known.pod_mac),
            since_unix_ms: recorded.since_unix_ms(),
            state,
            link,
            ports: attached.map_or_else(Vec::new, |known| known.ports.clone()),
            change,
        }
    }

    fn is_attached(&self) -> bool {
        self.state == PodState::Attached
    }

    fn is_same(&self, other: &Self) -> bool {
        let other = Self {
            change: self.change,
            ..other.clone()
        };
        *self == other
    }

    fn snapshot(&self, key: &Key) -> Pod {
        Pod {
            network: key.network.to_string(),
            container: key.container.to_string(),
            ifname: key.ifname.to_string(),
            pod: self.pod.clone(),
            ips: self.ips.clone(),
            host_link: self.host_link.clone(),
            mac: self.pod_mac.map(|mac| mac.to_string()),
            since_unix_ms: self.since_unix_ms.unwrap_or_default(),
            state: self.state,
        }
    }
}

#[cfg(test)]
mod tests;
