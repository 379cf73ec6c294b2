//! One look at the records of all attachments, and at what the kernel has of them.

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

/// More pods than a node can have: a store with more records than this isn't read on.
pub(super) const MAX_ATTACHMENTS: usize = 16_384;

/// What there is, at one moment.
#[derive(Debug, Default)]
pub(super) struct ObservedPods {
    /// Every attachment that has a record.
    pub(super) records: BTreeMap<Key, ObservedRecord>,
    /// What the kernel has; nothing if it did not tell.
    pub(super) kernel: Option<KernelState>,
    /// Whether there may be records that were not seen.
    pub(super) is_incomplete: bool,
    /// What could not be looked at, and why.
    pub(super) errors: Vec<String>,
}

/// A record that was seen.
#[derive(Debug)]
pub(super) struct ObservedRecord {
    /// Which state of the record it is.
    pub(super) stamp: Stamp,
    /// When it was written, by the clock of that time.
    pub(super) modified: Option<SystemTime>,
    /// What it says of its ADD.
    pub(super) state: RecordState,
    /// What it says else, if it can be understood.
    pub(super) attached: Option<Box<RecordSummary>>,
}

/// What a record says, without the configurations in it.
#[derive(Clone, Debug)]
pub(super) struct RecordSummary {
    /// When it was written.
    pub(super) boot: Boot,
    /// Who made the network.
    pub(super) datapath: Datapath,
    /// The namespace's path.
    pub(super) netns: Option<String>,
    /// What was behind the path.
    pub(super) netns_identity: Option<NetnsId>,
    /// The pod, if the runtime said.
    pub(super) pod: Option<EventPod>,
    /// The addresses of the interface.
    pub(super) ips: Vec<IpAddr>,
    /// The link on the host.
    pub(super) host_link: Option<String>,
    /// Its hardware address.
    pub(super) host_mac: Option<Mac>,
    /// The hardware address of the interface in the pod.
    pub(super) pod_mac: Option<Mac>,
    /// The hostPorts that lead to it.
    pub(super) ports: Vec<HostPort>,
}

impl ObservedPods {
    /// Looks at everything. What can't be looked at is a trouble, not an absence.
    pub(super) fn at(paths: &PodPaths) -> Self {
        let mut observed = Self::default();
        observed.read_all(paths);
        // Last: what was made in the meantime is there, and not taken for gone.
        observed.ask(KernelState::ask());
        observed
    }

    fn read_all(&mut self, paths: &PodPaths) {
        for network in self.read(attachment::networks(&paths.data_dir)) {
            let store = attachment::RecordStore::new(&paths.data_dir, &network);
            for (container, ifname) in self.read(store.attachments()) {
                if self.records.len() >= MAX_ATTACHMENTS {
                    self.is_incomplete = true;
                    self.errors.push(format!(
                        "there are more than {MAX_ATTACHMENTS} records: the others are not looked at"
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

    /// Looks at one attachment.
    pub(super) fn at_one(paths: &PodPaths, key: &Key) -> Self {
        let mut observed = Self::default();
        let store = attachment::RecordStore::new(&paths.data_dir, &key.network);
        observed.read_one(&store, key);
        observed.ask(KernelState::ask_one(key));
        if observed.records.is_empty() && observed.link_of(key) == Presence::Present {
            // The link is all that tells of the pod.
            observed.ask(KernelState::ask());
        }
        observed
    }

    fn ask(&mut self, answer: Result<KernelState, net::NetError>) {
        match answer {
            Ok(kernel) => self.kernel = Some(kernel),
            Err(error) => {
                self.kernel = None;
                self.errors.push(display_chain(&error));
            }
        }
    }

    /// What a store lists; nothing, with a reason, if it can't be read.
    fn read<T>(&mut self, listed: Result<Vec<T>, attachment::RecordError>) -> Vec<T> {
        listed.unwrap_or_else(|error| {
            self.is_incomplete = true;
            self.errors.push(display_chain(&error));
            Vec::new()
        })
    }

    fn read_one(&mut self, store: &attachment::RecordStore, key: &Key) {
        let sight = store.snapshot(&key.attachment()).map(Option::into_iter);
        for sight in self.read(sight.map(Iterator::collect)) {
            self.records
                .insert(key.clone(), ObservedRecord::of(key, sight));
        }
    }

    /// Every attachment that a record or a link tells of.
    pub(super) fn keys(&self) -> BTreeSet<&Key> {
        let labelled = self.kernel.iter().flat_map(KernelState::labelled);
        self.records.keys().chain(labelled).collect()
    }

    /// Whether an attachment has a link of ours.
    pub(super) fn link_of(&self, key: &Key) -> Presence {
        let kernel = self.kernel.as_ref();
        kernel.map_or(Presence::Unknown, |kernel| kernel.link_of(key))
    }

    /// Whether the plugin has another boot's id than we have: then nothing can be said of boots.
    /// A node that is a container may show its processes one of its own.
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
    /// What a sight of a record says.
    pub(super) fn of(key: &Key, sight: attachment::Snapshot) -> Self {
        let (state, attached) = match sight.content {
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
            stamp: sight.stamp,
            modified: sight.modified,
            state,
            attached,
        }
    }

    /// The namespace of the attachment, as far as it can be seen.
    pub(super) fn netns_presence(&self, mounts: &MountTable) -> Presence {
        self.attached
            .as_ref()
            .map_or(Presence::Unknown, |attached| {
                mounts.netns_presence(attached.netns.as_deref(), attached.netns_identity.as_ref())
            })
    }

    /// When it was written, in milliseconds since 1970.
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

/// The interfaces of an attachment in a result.
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
            // Plugins tell the host's end right before the pod's.
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
    fn the_ends_of_a_link_are_found_in_a_result() {
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
        assert_eq!(name(native.host), None, "it is of another interface");
        let silent = NetResult::default();
        let none = VethEnds::of(&silent, &key, true);
        assert!(none.host.is_none() && none.pod.is_none());
    }
}
