//! What is on record about an attachment.

use std::net::IpAddr;
use std::sync::OnceLock;

use cni::{Attachment, CniArgs, ContainerId, IfName, NetResult, Pod};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::netns::Identity;

/// The type of the step that is the datapath of our own.
pub const OWN_TYPE: &str = "headcni";

/// What is known about an attachment.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Record {
    /// The kernel's boot that it was made in.
    pub boot: String,
    /// The namespace's path.
    pub netns: Option<String>,
    /// What was behind the path.
    pub netns_identity: Option<Identity>,
    /// `CNI_ARGS` of the ADD.
    pub args: String,
    /// Whether the ADD came to its end.
    pub progress: Progress,
    /// Every plugin that was executed, in order.
    pub steps: Vec<RecordedStep>,
    /// The newest result, in the form of version 1.1.0.
    pub result: Option<NetResult>,
}

/// A plugin that was executed, or is about to be.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct RecordedStep {
    /// Its place in the order.
    pub index: usize,
    /// The plugin's type.
    #[serde(rename = "type")]
    pub kind: String,
    /// Its complete configuration.
    pub config: Map<String, Value>,
    /// Whether it came to its end.
    pub progress: Progress,
}

/// How far something has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Progress {
    /// It was begun.
    Started,
    /// It came to its end.
    Done,
}

impl Record {
    /// The attachment as it was made; the namespace only if it is still the same one.
    pub fn attachment(&self, container: ContainerId, ifname: IfName) -> Attachment {
        Attachment {
            container,
            ifname,
            netns: self.netns.clone().filter(|path| self.is_made_in(path)),
            args: CniArgs::parse(&self.args).unwrap_or_default(),
        }
    }

    /// Whether the datapath of our own has a part in it.
    pub fn is_native(&self) -> bool {
        self.native_steps().next().is_some()
    }

    /// The steps that are the datapath of our own.
    pub fn native_steps(&self) -> impl Iterator<Item = &RecordedStep> {
        self.steps.iter().filter(|step| step.kind == OWN_TYPE)
    }

    /// The pod that it is for, if the runtime said.
    pub fn pod(&self) -> Option<Pod> {
        Pod::from_args(&CniArgs::parse(&self.args).ok()?)
    }

    /// The addresses of this interface, as far as the ADD has told them.
    pub fn addresses(&self, ifname: &IfName) -> Vec<IpAddr> {
        let result = self.result.as_ref();
        result.map_or_else(Vec::new, |result| addresses_in(result, ifname))
    }

    /// The hostPorts that the datapath of our own has opened for this interface.
    #[cfg(target_os = "linux")]
    pub fn host_ports(&self, ifname: &IfName) -> Vec<ruleset::host_ports::HostPort> {
        let addresses = self.addresses(ifname);
        self.native_steps()
            .flat_map(|step| crate::Ports::for_cleaning(&step.config).on(&addresses))
            .collect()
    }

    /// Whether the namespace at `path` is the one that the attachment was made in.
    pub fn is_made_in(&self, path: &str) -> bool {
        let now = Identity::of(path);
        let is_same = match (&now, &self.netns_identity) {
            (Some(now), Some(then)) => now.may_be(then),
            // There was no file then and there is none now: a name is all that there is.
            (None, None) => self.netns.as_deref() == Some(path),
            _ => false,
        };
        is_same && self.boot == boot_id()
    }
}

/// The addresses that an interface has by the result of an ADD.
pub fn addresses_in(result: &NetResult, ifname: &IfName) -> Vec<IpAddr> {
    let is_ours = |index: usize| {
        result
            .interfaces
            .get(index)
            .is_some_and(|interface| interface.name == ifname.as_str())
    };
    let ips = result.ips.iter();
    ips.filter(|ip| ip.interface.is_none_or(is_ours))
        .map(|ip| ip.address.addr())
        .collect()
}

/// The newest state of a record: a line that was cut off says nothing.
pub(crate) fn last_whole_line(bytes: &[u8]) -> Option<Record> {
    let mut lines = bytes.rsplit(|byte| *byte == b'\n');
    lines.find_map(|line| serde_json::from_slice(line).ok())
}

/// This boot of the kernel; empty where the system does not tell.
pub fn boot_id() -> &'static str {
    static ID: OnceLock<String> = OnceLock::new();
    ID.get_or_init(|| {
        #[cfg(target_os = "linux")]
        let id = net::sysctl::boot_id();
        #[cfg(not(target_os = "linux"))]
        let id = None;
        id.unwrap_or_default()
    })
}
