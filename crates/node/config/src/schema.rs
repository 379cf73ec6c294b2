//! Every key of the configuration, with its default.
//!
//! What stands here as documentation is the documentation: the JSON schema and the example are made
//! of it.

mod kubernetes;
mod mesh;

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::time::Duration;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::values::{Networks, PerNode, Span};

pub use kubernetes::Kubernetes;
pub use mesh::{Dns, Headscale, MagicDns, MeshMode, Tailscale, TailscaledNetns, TuneLinks};

/// The configuration of headcni-daemon. Every key has a default.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "camelCase", default)]
pub struct Config {
    /// Addresses, and how large a packet may be.
    pub network: Network,
    /// The CNI configuration that runtimes read.
    pub cni: Cni,
    /// How pods get their addresses.
    pub ipam: Ipam,
    /// The server that runs the mesh. Its keys are secrets: they stand in files of their own, or in
    /// the variables `HEADCNID_HEADSCALE_API_KEY` and `HEADCNID_HEADSCALE_PRE_AUTH_KEY`.
    pub headscale: Headscale,
    /// This node's member of the mesh.
    pub tailscale: Tailscale,
    /// The Kubernetes API.
    pub kubernetes: Kubernetes,
    /// What pods are told about name servers.
    pub dns: Dns,
    /// Rules about who may reach whom.
    pub network_policy: NetworkPolicy,
    /// Firewalls of others on this node.
    pub firewall: Firewall,
    /// What pods leave behind.
    pub pods: Pods,
    /// Health, readiness and metrics.
    pub monitoring: Monitoring,
    /// Log lines.
    pub logging: Logging,
}

/// Addresses, and how large a packet may be.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "camelCase", default)]
pub struct Network {
    /// Which addresses pods get.
    #[serde(rename = "podCIDR")]
    pub pod_cidr: PodCidr,
    /// The cluster's services, one network per IP family. Never masqueraded, never a pod's.
    #[serde(rename = "serviceCIDR")]
    #[schemars(example = "10.96.0.0/16")]
    pub service_cidr: Networks,
    /// The largest packet that the mesh carries, in bytes.
    #[schemars(range(min = 576, max = 65535))]
    pub mtu: u32,
    /// Whether pods get IPv6 addresses. Unless it is said, they do if there is a network for them;
    /// true without one, or false with one, is an error.
    #[serde(rename = "enableIPv6")]
    pub enable_ipv6: Option<bool>,
    /// Whether pods reach what is outside the cluster under the node's address.
    pub masquerade: bool,
    /// Whether NetworkManager and systemd-networkd are told to keep off the links that we make, by
    /// files in their directories.
    pub unmanaged_links: UnmanagedLinks,
}

impl Default for Network {
    fn default() -> Self {
        Self {
            pod_cidr: PodCidr::default(),
            service_cidr: Networks::default(),
            mtu: 1280,
            enable_ipv6: None,
            masquerade: true,
            unmanaged_links: UnmanagedLinks::Auto,
        }
    }
}

/// Whether others are told to keep off our links.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum UnmanagedLinks {
    /// Those that are installed here.
    #[default]
    Auto,
    /// Nobody.
    Off,
}

/// Which addresses pods get.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "camelCase", default)]
pub struct PodCidr {
    /// The networks of this node's pods, one per IP family. It wins over all other sources. In a
    /// configuration that several nodes share, use `nodes`.
    #[schemars(example = "10.244.1.0/24")]
    pub node_local: Networks,
    /// The same for each node by its name. It wins over `nodeLocal`.
    #[schemars(example = serde_json::json!({"node-1": "10.244.1.0/24"}))]
    pub nodes: BTreeMap<String, Networks>,
    /// The whole cluster's networks for pods, one per IP family.
    #[schemars(example = ["10.244.0.0/16", "fd00:10:244::/56"])]
    pub base: Networks,
    /// How large each node's part of `base` is: `/24`, or `/24,/64` for IPv4 and IPv6.
    #[schemars(example = "/24")]
    pub per_node: PerNode,
    /// Whether the node's networks may be guessed, if nothing says them, from its name and `base`.
    /// Two nodes may guess the same: then one of them is refused.
    pub allow_guess: bool,
}

/// The CNI configuration that runtimes read.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "camelCase", default)]
pub struct Cni {
    /// How a pod's network is made.
    pub mode: Mode,
    /// Where runtimes look for configurations. Unless it is said, k3s's directory if there is one,
    /// else /etc/cni/net.d.
    #[schemars(example = "/etc/cni/net.d")]
    pub conf_dir: Option<PathBuf>,
    /// Where runtimes look for plugins. Unless it is said, k3s's directory if there is one, else
    /// /opt/cni/bin.
    #[schemars(example = "/opt/cni/bin")]
    pub bin_dir: Option<PathBuf>,
    /// The network's name. Leases and records are kept by it.
    pub name: String,
    /// Whether ours is to be the only configuration: others are renamed, and put back by
    /// `uninstall`. Say false beside multus.
    pub exclusive: bool,
    /// Settings of `mode: bridge`.
    pub bridge: Bridge,
    /// More plugins for the end of the chain, each as a CNI configuration has it. In the variable, as
    /// JSON.
    #[schemars(example = serde_json::json!([{"type": "tuning", "sysctl": {"net.core.somaxconn": "4096"}}]))]
    pub cni_plugins: Vec<Map<String, Value>>,
    /// Where the plugin logs its calls; nowhere unless it is said.
    #[schemars(example = "/var/log/headcni/plugin.log")]
    pub log_file: Option<PathBuf>,
    /// Whether STATUS also fails while no address is left, which makes the node NotReady.
    pub status_strict: bool,
}

impl Default for Cni {
    fn default() -> Self {
        Self {
            mode: Mode::Native,
            conf_dir: None,
            bin_dir: None,
            name: "headcni".to_owned(),
            exclusive: true,
            bridge: Bridge::default(),
            cni_plugins: Vec::new(),
            log_file: None,
            status_strict: false,
        }
    }
}

/// How a pod's network is made.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Mode {
    /// By headcni's own datapath.
    #[default]
    Native,
    /// By the reference plugins bridge and host-local.
    Bridge,
}

/// Settings of `mode: bridge`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "camelCase", default)]
pub struct Bridge {
    /// The bridge's name.
    pub name: String,
    /// Whether the bridge masquerades. It hides pods' addresses from pods on other nodes.
    pub ip_masq: bool,
    /// Whether a pod reaches itself by a service.
    pub hairpin_mode: bool,
}

impl Default for Bridge {
    fn default() -> Self {
        Self {
            name: "headcni0".to_owned(),
            ip_masq: false,
            hairpin_mode: false,
        }
    }
}

/// How pods get their addresses.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "camelCase", default)]
pub struct Ipam {
    /// The plugin; headcni-ipam, or host-local in bridge mode, unless it is said.
    #[serde(rename = "type")]
    pub kind: Option<String>,
    /// In which order addresses are given.
    pub strategy: Strategy,
    /// The first address to be given, if not all of the node's network are.
    #[schemars(example = "10.244.1.10")]
    pub range_start: Option<IpAddr>,
    /// The last address to be given.
    #[schemars(example = "10.244.1.250")]
    pub range_end: Option<IpAddr>,
    /// The gateway's address; the network's first one unless it is said.
    #[schemars(example = "10.244.1.1")]
    pub gateway: Option<IpAddr>,
    /// Where leases are kept; in the plugin's own place unless it is said.
    #[schemars(example = "/var/lib/cni/networks")]
    pub data_dir: Option<PathBuf>,
}

/// In which order addresses are given.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Strategy {
    /// One after the other: a freed address rests.
    #[default]
    Sequential,
    /// At random.
    Random,
    /// The lowest that is free.
    DensePack,
}

impl Strategy {
    /// As configurations and metrics have it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Sequential => "sequential",
            Self::Random => "random",
            Self::DensePack => "dense-pack",
        }
    }
}

/// NetworkPolicy.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "camelCase", default)]
pub struct NetworkPolicy {
    /// Whether policies are to be enforced. Not yet: the plugin's log says so.
    pub enabled: bool,
}

/// Firewalls of others on this node.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "camelCase", default)]
pub struct Firewall {
    /// Whether a firewall that drops what is forwarded (docker, ufw, firewalld) is told to let pods
    /// through. Else it is found and named, and that is all.
    pub integrate: Integrate,
}

/// What is done about a firewall that drops what pods send.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Integrate {
    /// It is told to let pods through.
    Auto,
    /// Nothing.
    #[default]
    Off,
}

/// What pods leave behind.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "camelCase", default)]
pub struct Pods {
    /// How often left-overs are looked for.
    #[schemars(example = "1m")]
    pub orphan_interval: Span,
    /// How old something must be before it can be a left-over: longer than any ADD takes.
    #[schemars(example = "5m")]
    pub orphan_grace: Span,
}

impl Default for Pods {
    fn default() -> Self {
        Self {
            orphan_interval: Span(Duration::from_mins(1)),
            orphan_grace: Span(Duration::from_mins(5)),
        }
    }
}

/// Health, readiness and metrics.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "camelCase", default)]
pub struct Monitoring {
    /// Where /healthz, /ready and /metrics are served. Port 0 is any free one.
    #[schemars(example = "127.0.0.1:9844")]
    pub address: SocketAddr,
    /// Whether metrics of pods have their namespace and name as labels: a series for each pod that
    /// ever lived.
    pub pod_labels: bool,
    /// Whether /debug/pprof is served; on a loopback address only.
    pub pprof: bool,
}

impl Default for Monitoring {
    fn default() -> Self {
        Self {
            address: SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 9844),
            pod_labels: false,
            pprof: false,
        }
    }
}

/// Log lines.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "camelCase", default)]
pub struct Logging {
    /// The least important log lines to be shown.
    pub level: Level,
    /// The form of log lines.
    pub format: Format,
}

/// How important a log line is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Level {
    /// Every detail.
    Debug,
    /// Something has changed.
    #[default]
    Info,
    /// Something went wrong and is tried again.
    Warn,
    /// Somebody must act.
    Error,
    /// The daemon ends.
    Fatal,
}

/// The form of a log line.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Format {
    /// For people.
    #[default]
    Text,
    /// A JSON object per line.
    Json,
}
