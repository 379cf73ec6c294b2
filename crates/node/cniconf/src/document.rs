//! The conflist, with keys in a readable order.

use std::collections::BTreeMap;
use std::net::IpAddr;

use ipnet::IpNet;
use serde::Serialize;
use serde_json::{Map, Value};

/// A network configuration list: <https://www.cni.dev/docs/spec/#configuration-format>.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Conflist {
    pub(super) cni_version: &'static str,
    #[serde(skip_serializing_if = "<[_]>::is_empty")]
    pub(super) cni_versions: &'static [&'static str],
    pub(super) name: String,
    pub(super) plugins: Vec<Plugin>,
}

#[derive(Debug, Serialize)]
#[serde(untagged)]
pub(super) enum Plugin {
    Headcni(Box<Headcni>),
    Bridge(Box<Bridge>),
    Other(Map<String, Value>),
}

/// Our own plugin, in native mode: docs/native.md has its keys.
#[expect(
    clippy::struct_excessive_bools,
    reason = "each is a key of the plugin's"
)]
#[derive(Debug, Serialize)]
pub(super) struct Headcni {
    #[serde(rename = "type")]
    pub(super) kind: &'static str,
    pub(super) ipam: Ipam,
    pub(super) capabilities: BTreeMap<&'static str, bool>,
    pub(super) mtu: u32,
    pub(super) pod_cidr: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) service_cidr: Option<String>,
    /// That pods are reached by the mesh alone holds before this daemon has told the kernel by which link.
    pub(super) guard_pod_cidr: bool,
    pub(super) enable_ipv6: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) magic_dns: Option<MagicDns>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) headscale_url: Option<String>,
    pub(super) tailscale_socket: String,
    pub(super) daemon_socket: &'static str,
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub(super) enable_network_policy: bool,
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub(super) status_strict: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) log_file: Option<String>,
}

#[derive(Debug, Serialize)]
pub(super) struct MagicDns {
    pub(super) enable: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) base_domain: Option<String>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(super) nameservers: Vec<IpAddr>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(super) search_domains: Vec<String>,
}

/// The reference plugin bridge: <https://www.cni.dev/plugins/current/main/bridge/>.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Bridge {
    #[serde(rename = "type")]
    pub(super) kind: &'static str,
    #[serde(rename = "bridge")]
    pub(super) link: String,
    pub(super) ip_masq: bool,
    pub(super) is_gateway: bool,
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub(super) hairpin_mode: bool,
    pub(super) mtu: u32,
    pub(super) ipam: Ipam,
}

#[derive(Debug, Serialize)]
pub(super) struct Ipam {
    #[serde(rename = "type")]
    pub(super) kind: String,
    /// Set if there is only one range.
    #[serde(flatten, skip_serializing_if = "Option::is_none")]
    pub(super) range: Option<Range>,
    /// A pod gets one address from each set.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(super) ranges: Vec<[Range; 1]>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(super) routes: Vec<Route>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) allocation_strategy: Option<&'static str>,
    #[serde(rename = "dataDir", skip_serializing_if = "Option::is_none")]
    pub(super) data_dir: Option<String>,
}

#[derive(Clone, Debug, Serialize)]
pub(super) struct Range {
    pub(super) subnet: IpNet,
    #[serde(rename = "rangeStart", skip_serializing_if = "Option::is_none")]
    pub(super) first: Option<IpAddr>,
    #[serde(rename = "rangeEnd", skip_serializing_if = "Option::is_none")]
    pub(super) last: Option<IpAddr>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) gateway: Option<IpAddr>,
}

#[derive(Debug, Serialize)]
pub(super) struct Route {
    pub(super) dst: &'static str,
}
