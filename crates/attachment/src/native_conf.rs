//! Configuration of the native datapath, parsed once by the plugin and recorded as it is.

use std::path::PathBuf;

use cni::PluginType;
use ipnet::IpNet;
use net::{Mac, TokenBucket};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::PortMappings;

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct NativeConf {
    /// `type` of the IPAM plugin to execute; `None` for the lease store that is linked in.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ipam_plugin: Option<PluginType>,
    pub mtu: u32,
    /// The requested hardware address.
    #[serde(with = "optional_mac", skip_serializing_if = "Option::is_none")]
    pub mac: Option<Mac>,
    #[serde(skip_serializing_if = "PortMappings::is_empty")]
    pub port_mappings: PortMappings,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ingress_limit: Option<RateLimit>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub egress_limit: Option<RateLimit>,
    /// Pod CIDRs of the cluster, or the IPAM ranges if none is configured.
    pub pod_cidrs: Vec<IpNet>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub service_cidrs: Vec<IpNet>,
    /// Drop unencrypted packets to the pod CIDRs as soon as the ruleset is installed.
    pub guard_pod_cidr: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub enable_ipv6: Option<bool>,
    pub status_strict: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tailscale_socket: Option<PathBuf>,
    /// The complete network configuration, with unknown keys, for the IPAM plugin.
    pub keys: Map<String, Value>,
}

impl NativeConf {
    /// Destinations that are never masqueraded.
    pub fn exempt_cidrs(&self) -> Vec<IpNet> {
        [&self.pod_cidrs[..], &self.service_cidrs[..]].concat()
    }
}

/// A token bucket: `rate` in bytes per second, the others in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RateLimit {
    pub rate: u64,
    pub burst: u32,
    pub limit: u32,
}

impl From<RateLimit> for TokenBucket {
    fn from(RateLimit { rate, burst, limit }: RateLimit) -> Self {
        Self { rate, burst, limit }
    }
}

mod optional_mac {
    use net::Mac;
    use serde::{Deserialize, Deserializer, Serializer};

    #[expect(
        clippy::ref_option,
        clippy::trivially_copy_pass_by_ref,
        reason = "serde's signature"
    )]
    pub(super) fn serialize<S: Serializer>(mac: &Option<Mac>, to: S) -> Result<S::Ok, S::Error> {
        match mac {
            Some(mac) => to.collect_str(mac),
            None => to.serialize_none(),
        }
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Option<Mac>, D::Error> {
        let text = Option::<String>::deserialize(from)?;
        text.map(|text| text.parse().map_err(serde::de::Error::custom))
            .transpose()
    }
}
