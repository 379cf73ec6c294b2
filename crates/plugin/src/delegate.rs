//! Completes the configuration of a delegate with the subnets, MTU and masquerading of this node.
//!
//! The subnet file is read only if something is missing. Explicit values win; contradictory keys
//! are an error.

use std::net::IpAddr;
use std::path::Path;

use api::{SubnetEnv, SubnetEnvError};
use cni::{Error, Keys, PluginType};
use ipnet::IpNet;
use serde_json::{Map, Value, json};

/// IPAM plugins that need ranges in their configuration.
pub(crate) const RANGE_PLUGINS: [&str; 2] = ["host-local", "headcni-ipam"];

/// Keys of headcni itself, which are not passed on to the delegate.
const OWN_KEYS: &[&str] = &[
    "capabilities",
    "cniVersion",
    "cniVersions",
    "daemon_socket",
    "dataDir",
    "delegate",
    "delegate_timeout_seconds",
    "disableCheck",
    "disableGC",
    "enable_ipv6",
    "enable_network_policy",
    "guard_pod_cidr",
    "headscale_url",
    "hostport_localhost",
    "ipam",
    "log_file",
    "log_level",
    "magic_dns",
    "mtu",
    "name",
    "plugins",
    "pod_cidr",
    "policy_fail_mode",
    "prevResult",
    "runtimeConfig",
    "service_cidr",
    "status_strict",
    "subnetFile",
    "tailscale_socket",
    "type",
];

#[derive(Debug, thiserror::Error)]
pub(crate) enum CompleteError {
    #[error(transparent)]
    Config(#[from] Error),
    #[error(transparent)]
    Subnets(#[from] SubnetEnvError),
}

impl CompleteError {
    pub(crate) fn into_error(self) -> Error {
        match self {
            Self::Config(error) => error,
            Self::Subnets(error) => Error::caused(cni::code::INVALID_CONFIG, &error),
        }
    }
}

/// Reads the subnets of the node; called at most once, and only if they are needed.
pub(crate) type LoadSubnets<'a> = &'a dyn Fn(&Path) -> Result<SubnetEnv, SubnetEnvError>;

/// Type and configuration of a delegate.
///
/// `entry` has the keys beside `delegate`, `runtime_config` the part that the delegate may see.
pub(crate) fn complete(
    entry: Keys<'_>,
    delegate: &Map<String, Value>,
    runtime_config: &Map<String, Value>,
    subnet_file: &Path,
    load: LoadSubnets<'_>,
) -> Result<(PluginType, Map<String, Value>), CompleteError> {
    let path = entry.name("delegate");
    let keys = Keys::new(delegate, &path);
    let kind = kind(keys)?;
    for key in ["name", "cniVersion"] {
        agreed(entry, key, keys, key)?;
    }
    let mut conf = delegate.clone();
    // `null` counts as absent.
    conf.retain(|key, value| {
        !value.is_null() || !["ipMasq", "ipam", "isGateway", "mtu"].contains(&key.as_str())
    });
    conf.insert("type".to_owned(), kind.as_str().into());
    for (key, value) in entry.map() {
        let is_ours = OWN_KEYS.contains(&key.as_str()) || key.starts_with("cni.dev/");
        if !is_ours && !value.is_null() && !conf.contains_key(key) {
            conf.insert(key.clone(), value.clone());
        }
    }
    let mut ipam = ipam(entry, keys)?;
    let needs_ranges = needs_ranges(&ipam, runtime_config);
    if let Some(mtu) = agreed(entry, "mtu", keys, "mtu")? {
        conf.insert("mtu".to_owned(), mtu.clone());
    }
    keys.flag("ipMasq")?;
    if needs_ranges || !conf.contains_key("mtu") || !conf.contains_key("ipMasq") {
        let known = match load(subnet_file) {
            Ok(subnets) => {
                if needs_ranges {
                    ipam.insert("ranges".to_owned(), ranges(&subnets));
                    let routes = routes(&subnets, keys)?;
                    ipam.entry("routes").or_insert(routes);
                }
                api::Known {
                    mtu_bytes: Some(subnets.mtu_bytes),
                    node_masquerades: Some(subnets.node_masquerades),
                }
            }
            // The delegate has defaults for MTU and masquerading.
            Err(SubnetEnvError::Absent { known, .. }) if !needs_ranges => known,
            Err(error) => return Err(error.into()),
        };
        if let Some(mtu) = known.mtu_bytes {
            conf.entry("mtu").or_insert(mtu.into());
        }
        if let Some(node_masquerades) = known.node_masquerades {
            // Masquerading twice would hide a pod's address from pods of other nodes.
            conf.entry("ipMasq").or_insert((!node_masquerades).into());
        }
    }
    if kind.as_str() == "bridge" {
        conf.entry("isGateway").or_insert(true.into());
    }
    conf.insert("ipam".to_owned(), Value::Object(ipam));
    Ok((kind, conf))
}

/// The configured `ipam`, with its type.
fn ipam(entry: Keys<'_>, delegate: Keys<'_>) -> Result<Map<String, Value>, Error> {
    agreed(entry, "ipam", delegate, "ipam")?;
    let place = if entry.value("ipam").is_some() {
        entry
    } else {
        delegate
    };
    let mut ipam = place.object("ipam")?.cloned().unwrap_or_default();
    let path = place.name("ipam");
    let keys = Keys::new(&ipam, &path);
    let kind = keys.text("type")?.unwrap_or("host-local");
    let kind = PluginType::new(&keys.name("type"), kind)?;
    ipam.insert("type".to_owned(), kind.as_str().into());
    Ok(ipam)
}

fn kind(keys: Keys<'_>) -> Result<PluginType, Error> {
    let kind = PluginType::new(&keys.name("type"), keys.text("type")?.unwrap_or("bridge"))?;
    if kind.as_str() == "headcni" {
        return Err(Error::config(format!(
            "{} \"headcni\" would call itself: name the plugin that makes the interface",
            keys.name("type")
        )));
    }
    Ok(kind)
}

/// A value that may be set in two places, if they agree.
pub(crate) fn agreed<'a>(
    outer: Keys<'a>,
    outer_key: &str,
    inner: Keys<'a>,
    inner_key: &str,
) -> Result<Option<&'a Value>, Error> {
    match (outer.value(outer_key), inner.value(inner_key)) {
        (Some(a), Some(b)) if a != b => Err(Error::config(format!(
            "{} contradicts {}: remove one of them",
            shown(&outer.name(outer_key), a),
            shown(&inner.name(inner_key), b)
        ))),
        (a, b) => Ok(a.or(b)),
    }
}

/// A key with its value, unless that is an object or list, which may hold secrets.
fn shown(key: &str, value: &Value) -> String {
    match value {
        Value::Object(_) | Value::Array(_) => key.to_owned(),
        value => format!("{key} {value}"),
    }
}

pub(crate) fn needs_ranges(ipam: &Map<String, Value>, runtime_config: &Map<String, Value>) -> bool {
    let is_said =
        |value: &Value| !value.is_null() && value.as_array().is_none_or(|list| !list.is_empty());
    let kind = ipam.get("type").and_then(Value::as_str).unwrap_or_default();
    let said = [
        ipam.get("subnet"),
        ipam.get("ranges"),
        runtime_config.get("ipRanges"),
    ];
    RANGE_PLUGINS.contains(&kind) && !said.into_iter().flatten().any(is_said)
}

/// One range set per family: a pod gets an address from each set.
pub(crate) fn ranges(subnets: &SubnetEnv) -> Value {
    let set = |family: &api::Family| -> Value {
        let range = |subnet: &api::NodeSubnet| match subnet.gateway {
            Some(gateway) => json!({ "subnet": subnet.net, "gateway": gateway }),
            None => json!({ "subnet": subnet.net }),
        };
        family.subnets.iter().map(range).collect()
    };
    subnets.families.iter().map(set).collect()
}

/// Routes to the cluster networks, and default routes unless the delegate sets `isDefaultGateway`.
fn routes(subnets: &SubnetEnv, delegate: Keys<'_>) -> Result<Value, Error> {
    let is_default_ours = delegate.flag("isDefaultGateway")?.is_none();
    let routes = subnets.families.iter().flat_map(|family| {
        let is_ipv6 = family
            .networks
            .iter()
            .any(|network| network.addr().is_ipv6());
        let default = if is_ipv6 { "::/0" } else { "0.0.0.0/0" };
        let is_own = |network: &IpNet| family.subnets.iter().any(|own| own.net == *network);
        let networks = family
            .networks
            .iter()
            .filter(move |network| !is_own(network));
        networks
            .map(|network| json!({ "dst": network }))
            .chain(is_default_ours.then(|| json!({ "dst": default })))
            .collect::<Vec<_>>()
    });
    Ok(routes.collect())
}

/// The subnets in a result, for a DEL without record and subnet file.
pub(crate) fn subnets_of(result: &cni::NetResult) -> Option<SubnetEnv> {
    let family = |is_wanted: fn(&IpAddr) -> bool| {
        let ips = result.ips.iter().filter(|ip| is_wanted(&ip.address.addr()));
        let networks: Vec<IpNet> = ips.map(|ip| ip.address.trunc()).collect();
        let subnets: Vec<_> = networks
            .iter()
            .map(|net| api::NodeSubnet {
                net: *net,
                gateway: None,
            })
            .collect();
        (!networks.is_empty()).then_some(api::Family { networks, subnets })
    };
    let families: Vec<_> = [family(IpAddr::is_ipv4), family(IpAddr::is_ipv6)]
        .into_iter()
        .flatten()
        .collect();
    // Assume that the delegate masquerades: it then removes its rules, if there are any.
    (!families.is_empty()).then_some(SubnetEnv {
        families,
        mtu_bytes: 1280,
        node_masquerades: false,
    })
}

#[cfg(test)]
mod tests;
