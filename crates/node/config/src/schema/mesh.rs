//! Keys of the mesh: Headscale, tailscaled, MagicDNS.

use std::net::IpAddr;
use std::path::PathBuf;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Headscale, the control server of the mesh.
///
/// Its keys are secrets: they belong in files or in the environment: `HEADCNID_HEADSCALE_API_KEY` and
/// `HEADCNID_HEADSCALE_PRE_AUTH_KEY`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "camelCase", default)]
pub struct Headscale {
    /// URL of Headscale.
    #[schemars(example = "https://headscale.example.org")]
    pub url: Option<String>,
    /// File with an API key.
    #[schemars(example = "/etc/headcni/api-key")]
    pub api_key_file: Option<PathBuf>,
    /// File with a pre-auth key.
    #[schemars(example = "/etc/headcni/pre-auth-key")]
    pub pre_auth_key_file: Option<PathBuf>,
    /// File with CA certificates, if the system does not trust them. Then no other CA is trusted.
    pub ca_file: Option<PathBuf>,
    /// User of the pre-auth keys that the daemon creates. Required before Headscale 0.28.
    #[schemars(example = &"kubernetes")]
    pub user: Option<String>,
}

/// The tailscaled of this node.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "camelCase", default)]
pub struct Tailscale {
    /// Which tailscaled connects this node.
    pub mode: MeshMode,
    /// Socket of the host's tailscaled.
    pub socket: PathBuf,
    /// netns of our tailscaled.
    pub netns: TailscaledNetns,
    /// Program of our tailscaled: a path, or a name in PATH.
    pub program: PathBuf,
    /// Interface of our tailscaled.
    pub interface: String,
    /// UDP port of our tailscaled. 0 is any free one.
    #[schemars(range(max = 65535))]
    pub port: u16,
    /// State directory of our tailscaled, with its keys.
    pub state_dir: PathBuf,
    /// Name in the tailnet. Default: the node's name. Not used with the host's tailscaled.
    #[schemars(example = "node-1")]
    pub hostname: Option<String>,
    /// Tags of the cluster's nodes. Only peers with the first one count as nodes.
    pub tags: Vec<String>,
    /// Enable UDP GRO forwarding on uplinks, as Tailscale recommends.
    pub tune_links: TuneLinks,
}

impl Default for Tailscale {
    fn default() -> Self {
        Self {
            mode: MeshMode::Auto,
            socket: PathBuf::from("/var/run/tailscale/tailscaled.sock"),
            netns: TailscaledNetns::Auto,
            program: PathBuf::from("tailscaled"),
            interface: "headcni01".to_owned(),
            port: 41642,
            state_dir: PathBuf::from("/var/lib/headcni/tailscale"),
            hostname: None,
            tags: vec!["tag:k8s-node".to_owned()],
            tune_links: TuneLinks::Auto,
        }
    }
}

/// Which tailscaled connects this node.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum MeshMode {
    /// Ours if `headscale.url` is set; else no mesh.
    #[default]
    Auto,
    /// Started by the daemon.
    Daemon,
    /// Started by a sidecar container at our socket.
    Container,
    /// The host's own: our pod CIDR is added to its advertised routes.
    Host,
    /// None: pods reach only pods of the same node.
    Off,
}

/// netns of our tailscaled. Two tailscaleds in one netns destroy each other's rules.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum TailscaledNetns {
    /// The host's, unless another tailscaled runs there.
    #[default]
    Auto,
    /// The host's.
    Host,
    /// Its own, connected by a veth.
    Own,
}

/// Whether to tune uplinks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum TuneLinks {
    /// Where the kernel supports it.
    #[default]
    Auto,
    /// Never.
    Off,
}

/// DNS settings in CNI results. kubelet ignores them.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "camelCase", default)]
pub struct Dns {
    /// MagicDNS.
    #[serde(rename = "magicDNS")]
    pub magic_dns: MagicDns,
}

/// MagicDNS.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "camelCase", default)]
pub struct MagicDns {
    /// Put these settings into CNI results.
    pub enable: bool,
    /// Domain of the tailnet.
    #[schemars(example = "tailnet.example.org")]
    pub base_domain: Option<String>,
    /// Name servers.
    #[schemars(example = ["10.2.0.1"])]
    pub nameservers: Vec<IpAddr>,
    /// Search domains.
    #[schemars(example = ["c.example.org"])]
    pub search_domains: Vec<String>,
}
