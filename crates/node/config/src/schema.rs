//! Every key of the configuration, with its default.
//!
//! The doc comments are what users read: the JSON schema and the example are generated from them.

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
    /// Addresses and MTU of pods.
    pub network: Network,
    /// The CNI configuration that container runtimes read.
    pub cni: Cni,
    /// Address management.
    pub ipam: Ipam,
    /// Headscale, the control server of the mesh. Its keys are secrets: they belong in files, or in the
    /// variables `HEADCNID_HEADSCALE_API_KEY` and `HEADCNID_HEADSCALE_PRE_AUTH_KEY`.
    pub headscale: Headscale,
    /// The tailscaled of this node.
    pub tailscale: Tailscale,
    /// The Kubernetes API.
    pub kubernetes: Kubernetes,
    /// DNS settings in CNI results.
    pub dns: Dns,
    /// Kubernetes NetworkPolicy.
    pub network_policy: NetworkPolicy,
    /// Other firewalls on this node.
    pub firewall: Firewall,
    /// Collection of orphans.
    pub pods: Pods,
    /// Health, readiness and metrics.
    pub monitoring: Monitoring,
    /// Logs of the daemon.
    pub logging: Logging,
}

/// Addresses and MTU of pods.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "camelCase", default)]
pub struct Network {
    /// Pod CIDRs of the node and the cluster.
    #[serde(rename = "podCIDR")]
    pub pod_cidr: PodCidr,
    /// CIDRs of Services, one per IP family: never masqueraded, never a pod's.
    #[serde(rename = "serviceCIDR")]
    #[schemars(example = "10.96.0.0/16")]
    pub service_cidr: Networks,
    /// MTU of pods, in bytes.
    #[schemars(range(min = 576, max = 65535))]
    pub mtu: u32,
    /// Give pods IPv6 addresses. Default: yes if an IPv6 pod CIDR is known. True without one, or false
    /// with one, is an error.
    #[serde(rename = "enableIPv6")]
    pub enable_ipv6: Option<bool>,
    /// Masquerade what pods send out of the cluster.
    pub masquerade: bool,
    /// Write files that keep NetworkManager and systemd-networkd from managing our links.
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

/// Whether to keep other programs from managing our links.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum UnmanagedLinks {
    /// For those that are installed.
    #[default]
    Auto,
    /// For none.
    Off,
}

/// Pod CIDRs of the node and the cluster.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "camelCase", default)]
pub struct PodCidr {
    /// Pod CIDRs of this node, one per IP family. Wins over all other sources but `nodes`. In a
    /// configuration that several nodes share, use `nodes`.
    #[schemars(example = "10.244.1.0/24")]
    pub node_local: Networks,
    /// Pod CIDRs by node name. Wins over `nodeLocal`.
    #[schemars(example = serde_json::json!({"node-1": "10.244.1.0/24"}))]
    pub nodes: BTreeMap<String, Networks>,
    /// Cluster CIDRs, one per IP family.
    #[schemars(example = ["10.244.0.0/16", "fd00:10:244::/56"])]
    pub base: Networks,
    /// Prefix lengths of guessed pod CIDRs: `/24`, or `/24,/64` for IPv4 and IPv6.
    #[schemars(example = "/24")]
    pub per_node: PerNode,
    /// If no source has the pod CIDR, derive it from the node's name and `base`. Two nodes may collide:
    /// then one of them is refused.
    pub allow_guess: bool,
}

/// The CNI configuration that container runtimes read.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "camelCase", default)]
pub struct Cni {
    /// Datapath of pods.
    pub mode: Mode,
    /// Directory of CNI configurations. Default: that of k3s if present, else /etc/cni/net.d.
    #[schemars(example = "/etc/cni/net.d")]
    pub conf_dir: Option<PathBuf>,
    /// Directory of CNI plugins. Default: that of k3s if present, else /opt/cni/bin.
    #[schemars(example = "/opt/cni/bin")]
    pub bin_dir: Option<PathBuf>,
    /// Network name. Leases and records are kept under it.
    pub name: String,
    /// Rename other configurations aside; `uninstall` puts them back. Set to false with multus.
    pub exclusive: bool,
    /// Settings of `mode: bridge`.
    pub bridge: Bridge,
    /// More CNI plugins for the end of the list. JSON in the variable.
    #[schemars(example = serde_json::json!([{"type": "tuning", "sysctl": {"net.core.somaxconn": "4096"}}]))]
    pub cni_plugins: Vec<Map<String, Value>>,
    /// Log file of the plugin. Default: none.
    #[schemars(example = "/var/log/headcni/plugin.log")]
    pub log_file: Option<PathBuf>,
    /// Let STATUS also fail while no address is free, which makes the node NotReady.
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

/// Datapath of pods.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Mode {
    /// headcni's own.
    #[default]
    Native,
    /// The reference plugins bridge and host-local.
    Bridge,
}

/// Settings of `mode: bridge`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "camelCase", default)]
pub struct Bridge {
    /// Name of the bridge.
    pub name: String,
    /// Let the bridge masquerade. It hides pod addresses from remote pods.
    pub ip_masq: bool,
    /// Let a pod reach itself through a Service.
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

/// Address management.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "camelCase", default)]
pub struct Ipam {
    /// IPAM plugin. Default: headcni-ipam; in bridge mode host-local.
    #[serde(rename = "type")]
    pub kind: Option<String>,
    /// Allocation strategy.
    pub strategy: Strategy,
    /// First address to lease. Default: the first of the pod CIDR.
    #[schemars(example = "10.244.1.10")]
    pub range_start: Option<IpAddr>,
    /// Last address to lease. Default: the last of the pod CIDR.
    #[schemars(example = "10.244.1.250")]
    pub range_end: Option<IpAddr>,
    /// Gateway. Default: the first address of the pod CIDR.
    #[schemars(example = "10.244.1.1")]
    pub gateway: Option<IpAddr>,
    /// Directory of leases. Default: the plugin's own.
    #[schemars(example = "/var/lib/cni/networks")]
    pub data_dir: Option<PathBuf>,
}

/// Allocation strategy.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Strategy {
    /// The next after the last lease: a freed address rests.
    #[default]
    Sequential,
    /// Any free address.
    Random,
    /// The lowest free address.
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
    /// Enforce NetworkPolicies. Not implemented yet: it only warns.
    pub enabled: bool,
}

/// Other firewalls on this node.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "camelCase", default)]
pub struct Firewall {
    /// Add accept rules for pods to firewalls that drop forwarded packets (docker, ufw, firewalld).
    pub integrate: Integrate,
}

/// What to do about a firewall that drops packets of pods.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Integrate {
    /// Add accept rules.
    Auto,
    /// Only report it.
    #[default]
    Off,
}

/// Collection of orphans.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "camelCase", default)]
pub struct Pods {
    /// Interval of orphan collection.
    #[schemars(example = "1m")]
    pub orphan_interval: Span,
    /// Minimum age of an orphan: longer than any ADD takes.
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
    /// Address of /healthz, /ready and /metrics. Port 0 is any free one.
    #[schemars(example = "127.0.0.1:9844")]
    pub address: SocketAddr,
    /// Add namespace and pod name to metrics: a series for each pod that ever lived.
    pub pod_labels: bool,
    /// Serve /debug/pprof, on a loopback address only.
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

/// Logs of the daemon.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "camelCase", default)]
pub struct Logging {
    /// Least severe level to log.
    pub level: Level,
    /// Log format.
    pub format: Format,
}

/// Log level.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Level {
    /// Details.
    Debug,
    /// Something changed.
    #[default]
    Info,
    /// Something failed and is retried.
    Warn,
    /// You must act.
    Error,
    /// The daemon ends.
    Fatal,
}

/// Log format.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Format {
    /// One line of text per event.
    #[default]
    Text,
    /// One JSON object per line.
    Json,
}
