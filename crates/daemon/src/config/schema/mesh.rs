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
    /// A file with the certificates of its CA, if the system does not know it.
    pub ca_file: Option<PathBuf>,
}

/// This node's member of the mesh.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "camelCase", default)]
pub struct Tailscale {
    /// The socket of tailscaled.
    pub socket: PathBuf,
}

impl Default for Tailscale {
    fn default() -> Self {
        Self {
            socket: PathBuf::from("/var/run/tailscale/tailscaled.sock"),
        }
    }
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
