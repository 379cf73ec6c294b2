//! Keys about the mesh: its server, this node's member of it, and its names.

use std::net::IpAddr;
use std::path::PathBuf;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The server that runs the mesh.
///
/// Its keys are secrets and stand in files or in the environment: `HEADCNID_HEADSCALE_API_KEY` and
/// `HEADCNID_HEADSCALE_PRE_AUTH_KEY`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "camelCase", default)]
pub struct Headscale {
    /// Its address.
    #[schemars(example = "https://headscale.example.org")]
    pub url: Option<String>,
    /// A file with an API key.
    #[schemars(example = "/etc/headcni/api-key")]
    pub api_key_file: Option<PathBuf>,
    /// A file with a pre-auth key.
    #[schemars(example = "/etc/headcni/pre-auth-key")]
    pub pre_auth_key_file: Option<PathBuf>,
    /// A file with the certificates of its CA, if the system does not know it. Then no other CA is
    /// trusted.
    pub ca_file: Option<PathBuf>,
    /// The user whose pre-auth keys are made. Headscale before 0.28 has none without one.
    #[schemars(example = &"kubernetes")]
    pub user: Option<String>,
}

/// This node's member of the mesh.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "camelCase", default)]
pub struct Tailscale {
    /// Whose tailscaled makes this node a member of the mesh.
    pub mode: MeshMode,
    /// The socket of the host's own tailscaled, if it runs one.
    pub socket: PathBuf,
    /// The netns of ours.
    pub netns: TailscaledNetns,
    /// The program of ours: a path, or a name to be looked for in PATH.
    pub program: PathBuf,
    /// The interface of ours.
    pub interface: String,
    /// The UDP port of ours, for other nodes. 0 is any free one.
    #[schemars(range(max = 65535))]
    pub port: u16,
    /// Where ours keeps its keys.
    pub state_dir: PathBuf,
    /// This node's name in the mesh; the node's own unless it is said. It does not apply to the
    /// host's tailscaled.
    #[schemars(example = "node-1")]
    pub hostname: Option<String>,
    /// The tags of all nodes of the cluster. Only members of the mesh that have the first one are
    /// taken for nodes.
    pub tags: Vec<String>,
    /// Whether the links that lead out of the node are tuned for the mesh, as Tailscale recommends.
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

/// Whose tailscaled makes this node a member of the mesh.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum MeshMode {
    /// Ours, if `headscale.url` is said; else there is no mesh.
    #[default]
    Auto,
    /// One that the daemon starts and keeps running.
    Daemon,
    /// One that somebody else starts at our socket, as a container of its own; the daemon never does.
    Container,
    /// The host's own: our networks are added to what it advertises.
    Host,
    /// None: pods reach only pods of the same node.
    Off,
}

/// Where our tailscaled runs. Two in one network destroy each other's rules.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum TailscaledNetns {
    /// In the host's network, unless another tailscaled runs there.
    #[default]
    Auto,
    /// In the host's network.
    Host,
    /// In a network of its own, joined to the host's by a link.
    Own,
}

/// Whether links are tuned for the mesh.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum TuneLinks {
    /// Where the kernel can do it.
    #[default]
    Auto,
    /// Never.
    Off,
}

/// What pods are told about name servers.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "camelCase", default)]
pub struct Dns {
    /// Names of the tailnet.
    #[serde(rename = "magicDNS")]
    pub magic_dns: MagicDns,
}

/// Names of the tailnet.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "camelCase", default)]
pub struct MagicDns {
    /// Whether pods are told how to look up names of the tailnet.
    pub enable: bool,
    /// The domain that they end in.
    #[schemars(example = "tailnet.example.org")]
    pub base_domain: Option<String>,
    /// Name servers that know them.
    #[schemars(example = ["10.2.0.1"])]
    pub nameservers: Vec<IpAddr>,
    /// Domains that short names are looked for in.
    #[schemars(example = ["c.example.org"])]
    pub search_domains: Vec<String>,
}
