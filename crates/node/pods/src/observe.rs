//! Reads the records of all attachments, and their kernel state.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::time::{SystemTime, UNIX_EPOCH};

use api::event::EventPod;
use attachment::netns::NetnsId;
use attachment::{Progress, Record, RecordContent, Stamp, boot_id};
use cni::{IfName, Interface, NetResult, Pod};
use net::Mac;
use ruleset::host_ports::HostPort;

use super::kernel_state::KernelState;
use super::key::Key;
use super::netns::MountTable;
use super::orphan_policy::{Boot, Datapath, Presence, RecordState};
use super::paths::PodPaths;
use node_core::error::display_chain;

/// More than a node can have: further records are not read.
pub(super) const MAX_ATTACHMENTS: usize = 16_384;

#[derive(Debug, Default)]
pub(super) struct ObservedPods {
    pub(super) records: BTreeMap<Key, ObservedRecord>,
    /// `None` if the kernel could not be queried.
    pub(super) kernel: Option<KernelState>,
    /// Some records could not be read.
    pub(super) is_incomplete: bool,
    pub(super) errors: Vec<String>,
}

#[derive(Debug)]
pub(super) struct ObservedRecord {
    pub(super) stamp: Stamp,
    pub(super) modified: Option<SystemTime>,
    pub(super) state: RecordState,
    /// `None` if the record is empty or damaged.
    pub(super) attached: Option<Box<RecordSummary>>,
}

/// A record without its plugin configurations.
#[derive(Clone, Debug)]
pub(super) struct RecordSummary {
    pub(super) boot: Boot,
    pub(super) datapath: Datapath,
    pub(super) netns: Option<String>,
    pub(super) netns_identity: Option<NetnsId>,
    pub(super) pod: Option<EventPod>,
    pub(super) ips: Vec<IpAddr>,
    pub(super) host_link: Option<String>,
    pub(super) host_mac: Option<Mac>,
    pub(super) pod_mac: Option<Mac>,
    pub(super) ports: Vec<HostPort>,
}

impl ObservedPods {
    /// Reads everything. What cannot be read is an error, not an absence.
    pub(super) fn read(paths: &PodPaths) -> Self {
        let mut observed = Self::default();
        observed.read_all(paths);
        // Last, so that no new link is taken for absent.
        observed.set_kernel(KernelState::read());
        observed
    }

    fn read_all(&mut self, paths: &PodPaths) {
        for network in self.list(attachment::networks(&paths.data_dir)) {
            let store = attachment::RecordStore::new(&paths.data_dir, &network);
            for (container, ifname) in self.list(store.attachments()) {
                if self.records.len() >= MAX_ATTACHMENTS {
                    self.is_incomplete = true;
                    self.errors.push(format!(
                        "there are more than {MAX_ATTACHMENTS} records; the others are ignored"
                    ));
                    return;
                }
                let key = Key {
                    network: network.clone(),
                    container,
                    ifname,
                };
                self.read_one(&store, &key);
            }
        }
    }

    pub(super) fn read_one_attachment(paths: &PodPaths, key: &Key) -> Self {
        let mut observed = Self::default();
        let store = attachment::RecordStore::new(&paths.data_dir, &key.network);
        observed.read_one(&store, key);
        observed.set_kernel(KernelState::read_one(key));
        if observed.records.is_empty() && observed.link_of(key) == Presence::Present {
            // Only the link is left: its routes have the addresses.
            observed.set_kernel(KernelState::read());
        }
        observed
    }

    fn set_kernel(&mut self, answer: Result<KernelState, net::NetError>) {
        match answer {
            Ok(kernel) => self.kernel = Some(kernel),
            Err(error) => {
                self.kernel = None;
                self.errors.push(display_chain(&error));
            }
        }
    }

    fn list<T>(&mut self, listed: Result<Vec<T>, attachment::RecordError>) -> Vec<T> {
        listed.unwrap_or_else(|error| {
            self.is_incomplete = true;
            self.errors.push(display_chain(&error));
            Vec::new()
        })
    }

    fn read_one(&mut self, store: &attachment::RecordStore, key: &Key) {
        let snapshot = store.snapshot(&key.attachment()).map(Option::into_iter);
        for snapshot in self.list(snapshot.map(Iterator::collect)) {
            self.records
                .insert(key.clone(), ObservedRecord::of(key, snapshot));
        }
    }

    /// Every attachment with a record or a labelled link.
    pub(super) fn keys(&self) -> BTreeSet<&Key> {
        let labelled = self.kernel.iter().flat_map(KernelState::labelled);
        self.records.keys().chain(labelled).collect()
    }

    /// The managed link of an attachment.
    pub(super) fn link_of(&self, key: &Key) -> Presence {
        let kernel = self.kernel.as_ref();
        kernel.map_or(Presence::Unknown, |kernel| kernel.link_of(key))
    }

    /// Whether the plugin sees another boot ID than this process, as in a node that is a container. Then
    /// boots cannot be compared.
    pub(super) fn is_boot_in_doubt(&self) -> bool {
        self.records.iter().any(|(key, recorded)| {
            let attached = recorded.attached.as_ref();
            attached.is_some_and(|attached| {
                attached.boot == Boot::Earlier
                    && attached.datapath == Datapath::Native
                    && self.link_of(key) == Presence::Present
            })
        })
    }
}

impl ObservedRecord {
    pub(super) fn of(key: &Key, snapshot: attachment::Snapshot) -> Self {
        let (state, attached) = match snapshot.content {
            RecordContent::Empty => (RecordState::Empty, None),
            RecordContent::Damaged => (RecordState::Damaged, None),
            RecordContent::Whole(record) => {
                let state = match record.progress {
                    Progress::Started => RecordState::HalfMade,
                    Progress::Done => RecordState::Complete,
                };
                (state, Some(Box::new(RecordSummary::of(key, &record))))
            }
        };
        Self {
            stamp: snapshot.stamp,
            modified: snapshot.modified,
            state,
            attached,
        }
    }

    pub(super) fn netns_presence(&self, mounts: &MountTable) -> Presence {
        self.attached
            .as_ref()
            .map_or(Presence::Unknown, |attached| {
                mounts.netns_presence(attached.netns.as_deref(), attached.netns_identity.as_ref())
            })
    }

    pub(super) fn since_unix_ms(&self) -> Option<u64> {
        let since = self.modified?.duration_since(UNIX_EPOCH).ok()?;
        u64::try_from(since.as_millis()).ok()
    }
}

impl RecordSummary {
    fn of(key: &Key, record: &Record) -> Self {
        let is_native = record.is_native();
        let result = record.result.as_ref();
        let interfaces = result.map(|result| VethEnds::of(result, key, is_native));
        let VethEnds { host, pod } = interfaces.unwrap_or_default();
        let mac = |end: Option<&Interface>| end.and_then(|end| end.mac.as_deref()?.parse().ok());
        Self {
            boot: boot_of(&record.boot, boot_id()),
            datapath: if is_native {
                Datapath::Native
            } else {
                Datapath::Other
            },
            netns: record.netns.clone(),
            netns_identity: record.netns_identity.clone(),
            pod: record.pod().map(pod_of),
            ips: record.addresses(&key.ifname),
            host_link: match host {
                Some(host) => Some(host.name.clone()),
                None => is_native.then(|| key.host_link()),
            },
            host_mac: mac(host),
            pod_mac: mac(pod),
            ports: record.host_ports(&key.ifname),
        }
    }
}

/// The interfaces of an attachment in a CNI result.
#[derive(Default)]
struct VethEnds<'a> {
    host: Option<&'a Interface>,
    pod: Option<&'a Interface>,
}

impl<'a> VethEnds<'a> {
    fn of(result: &'a NetResult, key: &Key, is_native: bool) -> Self {
        let is_pods = |interface: &Interface, ifname: &IfName| {
            interface.is_sandboxed() && interface.name == ifname.as_str()
        };
        let position = result
            .interfaces
            .iter()
            .position(|interface| is_pods(interface, &key.ifname));
        let before = &result.interfaces[..position.unwrap_or_default()];
        let name = key.host_link();
        let host = before.iter().rfind(|interface| {
            // Plugins list the host's end right before the pod's.
            !interface.is_sandboxed() && (!is_native || interface.name == name)
        });
        Self {
            host,
            pod: position.map(|position| &result.interfaces[position]),
        }
    }
}

fn boot_of(recorded: &str, now: &str) -> Boot {
    match (recorded, now) {
        ("", _) | (_, "") => Boot::Unknown,
        (recorded, now) if recorded == now => Boot::This,
        _ => Boot::Earlier,
    }
}

fn pod_of(pod: Pod) -> EventPod {
    EventPod {
        namespace: pod.namespace,
        name: pod.name,
        uid: pod.uid,
    }
}

#[cfg(test)]
mod tests {
    use cni::Version;
    use rstest::rstest;
    use serde_json::json;

    use super::*;

    #[rstest]
    #[case("a", "a", Boot::This)]
    #[case("a", "b", Boot::Earlier)]
    #[case("", "b", Boot::Unknown)]
    #[case("a", "", Boot::Unknown)]
    #[case("", "", Boot::Unknown)]
    fn a_boot_without_an_id_is_unknown(
        #[case] recorded: &str,
        #[case] now: &str,
        #[case] boot: Boot,
    ) {
        assert_eq!(boot_of(recorded, now), boot);
    }

    #[test]
    fn the_veth_ends_are_found_in_a_cni_result() {
        let key = Key::new("net", "box", "eth0").unwrap();
        let own = key.host_link();
        let result = NetResult::from_json(
            json!({ "interfaces": [
                { "name": "cni0", "mac": "02:00:00:00:00:01" },
                { "name": "veth1", "mac": "02:00:00:00:00:02" },
                { "name": "eth0", "mac": "02:00:00:00:00:03", "sandbox": "/run/netns/p" },
                { "name": own, "mac": "02:00:00:00:00:04" },
            ] }),
            Version::LATEST,
        )
        .unwrap();
        let name = |end: Option<&Interface>| end.map(|end| end.name.clone());
        let other = VethEnds::of(&result, &key, false);
        assert_eq!(name(other.host), Some("veth1".to_owned()));
        assert_eq!(name(other.pod), Some("eth0".to_owned()));
        let native = VethEnds::of(&result, &key, true);
        assert_eq!(name(native.host), None, "of another interface");
        let empty = NetResult::default();
        let none = VethEnds::of(&empty, &key, true);
        assert!(none.host.is_none() && none.pod.is_none());
    }
}
