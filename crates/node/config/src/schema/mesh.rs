//! Keys of the mesh: Headscale, tailscaled, MagicDNS.

use std::net::IpAddr;
use std::path::PathBuf;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The Headscale server.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "camelCase", default)]
pub struct Headscale {
    /// The URL of the Headscale server.
    #[schemars(example = "https://headscale.example.org")]
    pub url: Option<String>,
    /// The file that contains the API key.
    #[schemars(example = "/etc/headcni/api-key")]
    pub api_key_file: Option<PathBuf>,
    /// The file that contains the pre-auth key.
    #[schemars(example = "/etc/headcni/pre-auth-key")]
    pub pre_auth_key_file: Option<PathBuf>,
    /// A PEM file with the CA certificates that signed the server's certificate. It replaces the CAs
    /// of the system.
    pub ca_file: Option<PathBuf>,
    /// The Headscale user for which the daemon creates pre-auth keys. Headscale before 0.28 requires
    /// one.
    #[schemars(example = &"kubernetes")]
    pub user: Option<String>,
}

/// The tailscaled that connects this node to the mesh.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "camelCase", default)]
pub struct Tailscale {
    /// Which tailscaled connects this node to the mesh.
    pub mode: TailscaleMode,
    /// The LocalAPI socket of the host's own tailscaled.
    pub socket: PathBuf,
    /// The network namespace of our tailscaled.
    pub netns: TailscaledNetns,
    /// The program of our tailscaled: a path, or a name in PATH.
    pub program: PathBuf,
    /// The interface of our tailscaled.
    pub interface: String,
    /// The WireGuard UDP port of our tailscaled. Port 0 selects a free port.
    #[schemars(range(max = 65535))]
    pub port: u16,
    /// The state directory of our tailscaled. It contains the node key.
    pub state_dir: PathBuf,
    /// The hostname of this node in the tailnet. Default: the node name. It does not apply to the
    /// host's tailscaled.
    #[schemars(example = "node-1")]
    pub hostname: Option<String>,
    /// The tags of all nodes of the cluster. Only peers with the first tag are treated as nodes.
    pub tags: Vec<String>,
    /// Enable UDP GRO forwarding on the uplinks of the node, as Tailscale recommends.
    pub tune_links: TuneLinks,
}

impl Default for Tailscale {
    fn default() -> Self {
        Self {
            mode: TailscaleMode::Auto,
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

/// Which tailscaled connects this node to the mesh.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum TailscaleMode {
    /// `daemon` if `headscale.url` is set, else `off`.
    #[default]
    Auto,
    /// A tailscaled that the daemon starts and supervises.
    Daemon,
    /// A tailscaled in a separate container, at the socket of headcni. The daemon does not start it.
    Container,
    /// The host's own tailscaled. The pod CIDRs are added to the routes that it advertises.
    Host,
    /// No mesh. Pods reach only pods on the same node.
    Off,
}

/// The netns of our tailscaled. Two tailscaled in one netns delete each other's rules.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum TailscaledNetns {
    /// The host netns, unless another tailscaled runs there.
    #[default]
    Auto,
    /// The host netns.
    Host,
    /// A separate netns, connected to the host netns by a veth pair.
    Own,
}

/// Whether uplinks are tuned for the mesh.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum TuneLinks {
    /// Enable it where the kernel supports it.
    #[default]
    Auto,
    /// Change nothing.
    Off,
}

/// DNS settings of pods.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "camelCase", default)]
pub struct Dns {
    /// MagicDNS: names of the tailnet.
    #[serde(rename = "magicDNS")]
    pub magic_dns: MagicDns,
}

/// MagicDNS: names of the tailnet.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "camelCase", default)]
pub struct MagicDns {
    /// Configure pods to resolve names of the tailnet.
    pub enable: bool,
    /// The base domain of the tailnet.
    #[schemars(example = "tailnet.example.org")]
    pub base_domain: Option<String>,
    /// Name servers that resolve names of the tailnet.
    #[schemars(example = ["10.2.0.1"])]
    pub nameservers: Vec<IpAddr>,
    /// Search domains for short names.
    #[schemars(example = ["c.example.org"])]
    pub search_domains: Vec<String>,
}
