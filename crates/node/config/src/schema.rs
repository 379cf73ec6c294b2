//! Every configuration key and its default.
//!
//! These doc comments are user documentation: the JSON schema and the example are generated from
//! them.

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
pub use mesh::{Dns, Headscale, MagicDns, Tailscale, TailscaleMode, TailscaledNetns, TuneLinks};

/// The configuration of headcni-daemon. Every key has a default.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "camelCase", default)]
pub struct Config {
    /// Pod and Service CIDRs, MTU, masquerading.
    pub network: Network,
    /// The CNI configuration that the container runtime reads.
    pub cni: Cni,
    /// IP address management: how pods get their addresses.
    pub ipam: Ipam,
    /// The Headscale server. Its keys are secrets: put them in files, or in the environment
    /// variables `HEADCNID_HEADSCALE_API_KEY` and `HEADCNID_HEADSCALE_PRE_AUTH_KEY`.
    pub headscale: Headscale,
    /// The tailscaled that connects this node to the mesh.
    pub tailscale: Tailscale,
    /// The Kubernetes API.
    pub kubernetes: Kubernetes,
    /// DNS settings of pods.
    pub dns: Dns,
    /// Kubernetes NetworkPolicy.
    pub network_policy: NetworkPolicy,
    /// Other firewalls on this node.
    pub firewall: Firewall,
    /// Garbage collection of orphaned pod resources.
    pub pods: Pods,
    /// Health, readiness and metrics.
    pub monitoring: Monitoring,
    /// Logging.
    pub logging: Logging,
}

/// Pod and Service CIDRs, MTU, masquerading.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "camelCase", default)]
pub struct Network {
    /// The pod CIDRs of the cluster and of its nodes.
    #[serde(rename = "podCIDR")]
    pub pod_cidr: PodCidr,
    /// The Service CIDRs of the cluster, one per IP family. Traffic to them is not masqueraded, and
    /// they must not overlap with pod CIDRs.
    #[serde(rename = "serviceCIDR")]
    #[schemars(example = "10.96.0.0/16")]
    pub service_cidr: Networks,
    /// The MTU of pod interfaces, in bytes: at most the MTU of the mesh.
    #[schemars(range(min = 576, max = 65535))]
    pub mtu: u32,
    /// Give pods IPv6 addresses. Default: yes if an IPv6 pod CIDR is configured. It is an error to
    /// set true without an IPv6 pod CIDR, or false with one.
    #[serde(rename = "enableIPv6")]
    pub enable_ipv6: Option<bool>,
    /// Masquerade traffic from pods to destinations outside the cluster behind the node's address.
    pub masquerade: bool,
    /// Write configuration files that make NetworkManager and systemd-networkd ignore the interfaces
    /// that headcni creates.
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

/// Which network managers are configured to ignore our interfaces.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum UnmanagedLinks {
    /// Configure those that are installed on the node.
    #[default]
    Auto,
    /// Configure none.
    Off,
}

/// The pod CIDRs of the cluster and of its nodes.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "camelCase", default)]
pub struct PodCidr {
    /// The pod CIDRs of this node, one per IP family. It takes precedence over all other sources
    /// except `nodes`. Use `nodes` in a configuration that several nodes share.
    #[schemars(example = "10.244.1.0/24")]
    pub node_local: Networks,
    /// The pod CIDRs of each node, by node name. It takes precedence over `nodeLocal`.
    #[schemars(example = serde_json::json!({"node-1": "10.244.1.0/24"}))]
    pub nodes: BTreeMap<String, Networks>,
    /// The cluster CIDRs, one per IP family. Every node's pod CIDRs are part of them.
    #[schemars(example = ["10.244.0.0/16", "fd00:10:244::/56"])]
    pub base: Networks,
    /// The prefix length of each node's pod CIDR within `base`: `/24`, or `/24,/64` for IPv4 and
    /// IPv6.
    #[schemars(example = "/24")]
    pub per_node: PerNode,
    /// If no source has a pod CIDR for this node, derive it from the node name and `base`. Two nodes
    /// can derive the same pod CIDR; then one of them is rejected.
    pub allow_guess: bool,
}

/// The CNI configuration that the container runtime reads.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "camelCase", default)]
pub struct Cni {
    /// Which plugins set up pod networking.
    pub mode: Mode,
    /// The directory from which the container runtime reads CNI configurations. Default: the
    /// directory of k3s if k3s is installed, else /etc/cni/net.d.
    #[schemars(example = "/etc/cni/net.d")]
    pub conf_dir: Option<PathBuf>,
    /// The directory in which the container runtime finds CNI plugins. Default: the directory of k3s
    /// if k3s is installed, else /opt/cni/bin.
    #[schemars(example = "/opt/cni/bin")]
    pub bin_dir: Option<PathBuf>,
    /// The name of the CNI network. Leases and attachment records are stored under it.
    pub name: String,
    /// Make headcni's the only CNI configuration: rename all others. `uninstall` restores them. Set
    /// false if you use Multus.
    pub exclusive: bool,
    /// Options of `mode: bridge`.
    pub bridge: Bridge,
    /// Additional plugins at the end of the chain, each in the syntax of a CNI configuration. The
    /// environment variable takes JSON.
    #[schemars(example = serde_json::json!([{"type": "tuning", "sysctl": {"net.core.somaxconn": "4096"}}]))]
    pub cni_plugins: Vec<Map<String, Value>>,
    /// The file to which the plugin logs its calls. Default: none.
    #[schemars(example = "/var/log/headcni/plugin.log")]
    pub log_file: Option<PathBuf>,
    /// Make STATUS fail while no pod IP is available. The node is NotReady then.
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

/// Which plugins set up pod networking.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Mode {
    /// The headcni plugin.
    #[default]
    Native,
    /// The reference plugins bridge and host-local.
    Bridge,
}

/// Options of `mode: bridge`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "camelCase", default)]
pub struct Bridge {
    /// The name of the bridge interface.
    pub name: String,
    /// Set `ipMasq` of the bridge plugin. It hides pod IPs from pods on other nodes.
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

/// IP address management: how pods get their addresses.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "camelCase", default)]
pub struct Ipam {
    /// The IPAM plugin. Default: headcni-ipam, or host-local in bridge mode.
    #[serde(rename = "type")]
    pub kind: Option<String>,
    /// The order in which headcni-ipam allocates addresses.
    pub strategy: Strategy,
    /// The first address to allocate. Default: the first one of the pod CIDR.
    #[schemars(example = "10.244.1.10")]
    pub range_start: Option<IpAddr>,
    /// The last address to allocate. Default: the last one of the pod CIDR.
    #[schemars(example = "10.244.1.250")]
    pub range_end: Option<IpAddr>,
    /// The gateway address. Default: the first address of the pod CIDR.
    #[schemars(example = "10.244.1.1")]
    pub gateway: Option<IpAddr>,
    /// The directory of the lease store. Default: the default of the IPAM plugin.
    #[schemars(example = "/var/lib/cni/networks")]
    pub data_dir: Option<PathBuf>,
}

/// The order in which headcni-ipam allocates addresses.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Strategy {
    /// One after the other. A released address is reused as late as possible.
    #[default]
    Sequential,
    /// Random addresses.
    Random,
    /// The lowest free address.
    DensePack,
}

impl Strategy {
    pub fn name(self) -> &'static str {
        match self {
            Self::Sequential => "sequential",
            Self::Random => "random",
            Self::DensePack => "dense-pack",
        }
    }
}

/// Kubernetes NetworkPolicy.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "camelCase", default)]
pub struct NetworkPolicy {
    /// Enforce NetworkPolicy. Not implemented yet: the plugin logs a warning.
    pub enabled: bool,
}

/// Other firewalls on this node.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "camelCase", default)]
pub struct Firewall {
    /// Add rules to a firewall that drops forwarded packets (Docker, ufw, firewalld), so that it
    /// accepts pod traffic. With `off`, the condition ForwardingAllowed only reports the firewall.
    pub integrate: Integrate,
}

/// What to do about a firewall that drops pod traffic.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Integrate {
    /// Add rules that accept pod traffic.
    Auto,
    /// Only report it.
    #[default]
    Off,
}

/// Garbage collection of orphaned pod resources.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "camelCase", default)]
pub struct Pods {
    /// The interval between searches for orphans.
    #[schemars(example = "1m")]
    pub orphan_interval: Span,
    /// The minimum age of an orphan. It must be longer than any ADD takes.
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
    /// The address that serves /healthz, /ready and /metrics. Port 0 selects a free port.
    #[schemars(example = "127.0.0.1:9844")]
    pub address: SocketAddr,
    /// Add the labels namespace and pod to pod metrics. This creates a time series per pod.
    pub pod_labels: bool,
    /// Serve /debug/pprof. Allowed only on a loopback address.
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

/// Logging.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "camelCase", default)]
pub struct Logging {
    /// The minimum level of log lines.
    pub level: Level,
    /// The format of log lines.
    pub format: Format,
}

/// The level of a log line.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Level {
    /// Details for debugging.
    Debug,
    /// A change.
    #[default]
    Info,
    /// A failure that is retried.
    Warn,
    /// A failure that needs an operator.
    Error,
    /// A failure that ends the daemon.
    Fatal,
}

/// The format of a log line.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Format {
    /// Text.
    #[default]
    Text,
    /// One JSON object per line.
    Json,
}
