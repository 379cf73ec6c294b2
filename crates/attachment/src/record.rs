//! The record of one attachment.

use std::net::IpAddr;
use std::sync::OnceLock;

use cni::{Attachment, CniArgs, ContainerId, IfName, NetResult, PluginType, Pod};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

#[cfg(target_os = "linux")]
use crate::NativeConf;
use crate::netns::NetnsId;

/// The `type` of this plugin in a network configuration.
pub const PLUGIN_TYPE: &str = "headcni";

#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Record {
    /// Boot id of the kernel at the time of the ADD.
    pub boot: String,
    pub netns: Option<String>,
    pub netns_identity: Option<NetnsId>,
    /// `CNI_ARGS` of the ADD.
    pub args: String,
    /// `Started` until the whole ADD has succeeded.
    pub progress: Progress,
    /// The executed plugins, in order. A step is recorded before its plugin is executed.
    pub steps: Vec<RecordedStep>,
    /// The latest result, as in CNI 1.1.0.
    pub result: Option<NetResult>,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct RecordedStep {
    pub index: usize,
    pub plugin: RecordedPlugin,
    pub progress: Progress,
}

/// A plugin with the complete configuration that it is executed with, without `prevResult`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum RecordedPlugin {
    /// The native datapath, which runs in the process of the plugin.
    #[cfg(target_os = "linux")]
    Native(Box<NativeConf>),
    Delegate {
        #[serde(rename = "type")]
        kind: PluginType,
        config: Map<String, Value>,
    },
}

impl RecordedPlugin {
    /// The configuration that is passed on: to the delegate, or to the IPAM plugin of the native
    /// datapath.
    pub fn config(&self) -> &Map<String, Value> {
        match self {
            #[cfg(target_os = "linux")]
            Self::Native(conf) => &conf.keys,
            Self::Delegate { config, .. } => config,
        }
    }

    pub fn config_mut(&mut self) -> &mut Map<String, Value> {
        match self {
            #[cfg(target_os = "linux")]
            Self::Native(conf) => &mut conf.keys,
            Self::Delegate { config, .. } => config,
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Progress {
    Started,
    Done,
}

impl Record {
    /// The attachment of the ADD. Its netns is left out if the path now leads to another one.
    pub fn attachment(&self, container: ContainerId, ifname: IfName) -> Attachment {
        Attachment {
            container,
            ifname,
            netns: self.netns.clone().filter(|path| self.was_made_in(path)),
            args: CniArgs::parse(&self.args).unwrap_or_default(),
        }
    }

    #[cfg(target_os = "linux")]
    pub fn native_confs(&self) -> impl Iterator<Item = &NativeConf> {
        self.steps.iter().filter_map(|step| match &step.plugin {
            RecordedPlugin::Native(conf) => Some(&**conf),
            RecordedPlugin::Delegate { .. } => None,
        })
    }

    #[cfg(target_os = "linux")]
    pub fn is_native(&self) -> bool {
        self.native_confs().next().is_some()
    }

    /// The pod that `CNI_ARGS` names.
    pub fn pod(&self) -> Option<Pod> {
        Pod::from_args(&CniArgs::parse(&self.args).ok()?)
    }

    /// The addresses of an interface, if the ADD has come that far.
    pub fn addresses(&self, ifname: &IfName) -> Vec<IpAddr> {
        let result = self.result.as_ref();
        result.map_or_else(Vec::new, |result| addresses_in(result, ifname))
    }

    /// The host ports that the native datapath opened for an interface.
    #[cfg(target_os = "linux")]
    pub fn host_ports(&self, ifname: &IfName) -> Vec<ruleset::host_ports::HostPort> {
        let addresses = self.addresses(ifname);
        self.native_confs()
            .flat_map(|conf| conf.port_mappings.host_ports(&addresses))
            .collect()
    }

    /// Whether the netns at `path` is the one that the attachment was made in.
    pub fn was_made_in(&self, path: &str) -> bool {
        let now = NetnsId::of(path);
        let is_same = match (&now, &self.netns_identity) {
            (Some(now), Some(then)) => now.may_equal(then),
            // Neither then nor now is there a file: only the path can be compared.
            (None, None) => self.netns.as_deref() == Some(path),
            _ => false,
        };
        is_same && self.boot == boot_id()
    }
}

/// The addresses of an interface in the result of an ADD.
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

/// The latest state in a record file. A truncated last line is ignored.
pub(crate) fn last_whole_line(bytes: &[u8]) -> Option<Record> {
    let mut lines = bytes.rsplit(|byte| *byte == b'\n');
    lines.find_map(|line| serde_json::from_slice(line).ok())
}

/// The boot id of the kernel; empty if the platform has none.
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
