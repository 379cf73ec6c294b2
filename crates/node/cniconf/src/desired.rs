//! The desired contents of the files. Pure.
//!
//! The conflist is self-contained, ranges included, so that pods start after a reboot while `/run` is
//! empty and the API is unreachable. `subnet.env` is for conflists that others write.

mod addresses;
mod settings;

use std::path::Path;

use api::{Family, NodeSubnet, SubnetEnv};
use ipnet::IpNet;
use serde_json::{Map, Value};

use self::addresses::{Addresses, RANGE_PLUGINS, both_families};
use super::check;
use super::document::{Bridge, Conflist, Headcni, Ipam, MagicDns, Plugin, Range, Route};
use super::error::CniConfError;
use node_config::Dirs;
use node_config::{Config, Mode, Strategy};

const HEADCNI: &str = "headcni";
const HEADCNI_IPAM: &str = "headcni-ipam";

#[derive(Clone, Debug, PartialEq)]
pub struct Desired {
    pub dirs: Dirs,
    pub conflist: Value,
    pub conflist_text: String,
    pub subnet_env: SubnetEnv,
    pub subnet_env_text: String,
    /// Whether other configurations are renamed.
    pub exclusive: bool,
    pub summary: String,
}

/// Computes the files for the pod CIDRs `local` and the cluster CIDRs `base`. Without a cluster CIDR of
/// a family, the pod CIDR is used.
pub fn desired(
    config: &Config,
    local: &[IpNet],
    base: &[IpNet],
    dirs: &Dirs,
) -> Result<Desired, CniConfError> {
    let addresses = Addresses::new(config, local, base)?;
    settings::check(config, &addresses)?;
    let document = match config.cni.mode {
        Mode::Native => native(config, &addresses)?,
        Mode::Bridge => bridge(config, &addresses)?,
    };
    let (conflist, conflist_text) = check::conflist(&document, &addresses.local)?;
    let subnet_env = subnet_env(config, &addresses);
    let subnet_env_text = check::subnet_env(&subnet_env, &dirs.subnet_env())?;
    let mode = match config.cni.mode {
        Mode::Native => "native",
        Mode::Bridge => "bridge",
    };
    Ok(Desired {
        dirs: dirs.clone(),
        conflist,
        conflist_text,
        subnet_env,
        subnet_env_text,
        exclusive: config.cni.exclusive,
        summary: format!("{mode}, {}", both_families(&addresses.local)),
    })
}

fn native(config: &Config, addresses: &Addresses) -> Result<Conflist, CniConfError> {
    let others = others(config, HEADCNI)?;
    let network = &config.network;
    let dns = &config.dns.magic_dns;
    // A runtime gives a capability's value to every plugin that declares it, and a port or a limit
    // that two of them set is set twice.
    let is_free = |name: &str| !others.iter().any(|plugin| declares(plugin, name));
    let given = ["portMappings", "bandwidth"]
        .into_iter()
        .filter(|name| is_free(name));
    // A MAC set by a later plugin would differ from the node's neighbour entry.
    let capabilities = given.chain(["ips", "mac"]).map(|name| (name, true));
    let headcni = Headcni {
        kind: HEADCNI,
        ipam: ipam(config, addresses, HEADCNI_IPAM, Vec::new())?,
        capabilities: capabilities.collect(),
        mtu: network.mtu,
        pod_cidr: both_families(&addresses.base),
        service_cidr: (!addresses.services.is_empty()).then(|| both_families(&addresses.services)),
        guard_pod_cidr: true,
        enable_ipv6: addresses.has_ipv6(),
        magic_dns: dns.enable.then(|| MagicDns {
            enable: true,
            base_domain: dns.base_domain.clone(),
            nameservers: dns.nameservers.clone(),
            search_domains: dns.search_domains.clone(),
        }),
        headscale_url: config.headscale.url.clone().filter(|url| !url.is_empty()),
        tailscale_socket: text(&config.tailscale.socket),
        daemon_socket: api::paths::DAEMON_SOCKET,
        enable_network_policy: config.network_policy.enabled,
        status_strict: config.cni.status_strict,
        log_file: config.cni.log_file.as_deref().map(text),
    };
    let first = Plugin::Headcni(Box::new(headcni));
    Ok(Conflist {
        cni_version: "1.0.0",
        cni_versions: &["0.4.0", "1.0.0", "1.1.0"],
        name: config.cni.name.clone(),
        plugins: chain(first, others),
    })
}

/// The reference plugins, with the MTU of the mesh.
fn bridge(config: &Config, addresses: &Addresses) -> Result<Conflist, CniConfError> {
    let others = others(config, "bridge")?;
    let default_route = |net: &IpNet| Route {
        dst: if net.addr().is_ipv6() {
            "::/0"
        } else {
            "0.0.0.0/0"
        },
    };
    let routes = addresses.local.iter().map(default_route).collect();
    let bridge = Bridge {
        kind: "bridge",
        link: config.cni.bridge.name.clone(),
        ip_masq: config.cni.bridge.ip_masq,
        is_gateway: true,
        hairpin_mode: config.cni.bridge.hairpin_mode,
        mtu: config.network.mtu,
        ipam: ipam(config, addresses, "host-local", routes)?,
    };
    let first = Plugin::Bridge(Box::new(bridge));
    Ok(Conflist {
        cni_version: "0.4.0",
        cni_versions: &[],
        name: config.cni.name.clone(),
        plugins: chain(first, others),
    })
}

fn ipam(
    config: &Config,
    addresses: &Addresses,
    default: &str,
    routes: Vec<Route>,
) -> Result<Ipam, CniConfError> {
    let kind = config
        .ipam
        .kind
        .clone()
        .unwrap_or_else(|| default.to_owned());
    let wants = |key, value: String, trouble: &str| {
        let remedy = format!("set ipam.type to {HEADCNI_IPAM:?}, or remove the former");
        CniConfError::setting(key, value, format!("{trouble} {kind:?}: {remedy}"))
    };
    let strategy = config.ipam.strategy;
    if kind != HEADCNI_IPAM && strategy != Strategy::default() {
        return Err(wants(
            "ipam.strategy",
            strategy.name().to_owned(),
            "means nothing to",
        ));
    }
    let mut ranges: Vec<Range> = addresses.ranges.clone();
    if !RANGE_PLUGINS.contains(&kind.as_str()) {
        let given = [
            ("ipam.rangeStart", config.ipam.range_start),
            ("ipam.rangeEnd", config.ipam.range_end),
            ("ipam.gateway", config.ipam.gateway),
        ];
        if let Some((key, Some(address))) = given.iter().find(|(_, address)| address.is_some()) {
            return Err(wants(key, address.to_string(), "can't be told to"));
        }
        ranges.clear();
    }
    let is_single = ranges.len() == 1;
    Ok(Ipam {
        range: ranges.first().filter(|_| is_single).cloned(),
        ranges: if is_single {
            Vec::new()
        } else {
            ranges.into_iter().map(|range| [range]).collect()
        },
        routes,
        allocation_strategy: (kind == HEADCNI_IPAM).then(|| strategy.name()),
        data_dir: config.ipam.data_dir.as_deref().map(text),
        kind,
    })
}

fn others(config: &Config, first: &str) -> Result<Vec<Map<String, Value>>, CniConfError> {
    let mut others: Vec<Map<String, Value>> = Vec::new();
    for plugin in &config.cni.cni_plugins {
        let kind = plugin.get("type").unwrap_or(&Value::Null);
        let wrong = |trouble| CniConfError::setting("cni.cniPlugins", kind, trouble);
        if !kind.is_string() {
            return Err(wrong(
                "is no type of a plugin: each entry needs one, as text",
            ));
        }
        if kind == first {
            return Err(wrong(
                "begins the chain already: remove it from cni.cniPlugins",
            ));
        }
        if !others.contains(plugin) {
            others.push(plugin.clone());
        }
    }
    Ok(others)
}

fn text(path: &Path) -> String {
    path.display().to_string()
}

fn chain(first: Plugin, others: Vec<Map<String, Value>>) -> Vec<Plugin> {
    let others = others.into_iter().map(Plugin::Other);
    [first].into_iter().chain(others).collect()
}

fn declares(plugin: &Map<String, Value>, capability: &str) -> bool {
    let declared = plugin
        .get("capabilities")
        .and_then(|all| all.get(capability));
    declared.and_then(Value::as_bool).unwrap_or_default()
}

fn subnet_env(config: &Config, addresses: &Addresses) -> SubnetEnv {
    let gateway = config.ipam.gateway;
    let families = addresses.local.iter().map(|net| Family {
        networks: addresses.base_of(net).into_iter().collect(),
        subnets: vec![NodeSubnet {
            net: *net,
            gateway: gateway.filter(|gateway| net.contains(gateway)),
        }],
    });
    // Masquerading is decided by the node: a delegate would hide pod IPs from other nodes.
    let is_left_to_the_bridge = config.cni.mode == Mode::Bridge && config.cni.bridge.ip_masq;
    SubnetEnv {
        families: families.collect(),
        mtu_bytes: config.network.mtu,
        node_masquerades: !is_left_to_the_bridge,
    }
}

#[cfg(test)]
mod tests;
