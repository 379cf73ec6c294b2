//! Resolves the configuration of the native datapath: parsed and validated once, before anything is
//! changed in the kernel.
//!
//! The subnet file is read only if ranges or MTU are missing. Explicit values win; contradictory
//! keys are an error. Unknown keys are kept for the IPAM plugin.

mod bandwidth;
mod cidrs;
mod validate;

use std::path::{Path, PathBuf};

use api::{Family, SubnetEnv, SubnetEnvError};
use attachment::{NativeConf, PortMappings};
use cni::{Call, CniArgs, Error, Keys, PluginType, Verb};
use ipnet::IpNet;
use net::Mac;
use serde_json::{Map, Value, json};

use self::bandwidth::Limits;
use self::cidrs::{ConfiguredCidr, configured_ranges, one_per_family};
use crate::conf::optional_for_cleanup;
use crate::delegate::{CompleteError, LoadSubnets, needs_ranges, ranges};

/// The IPAM that is linked in.
const OWN_IPAM: &str = "headcni-ipam";
/// The MTU of every link of a tailnet, and the minimum of IPv6 (RFC 8200).
const DEFAULT_MTU_BYTES: u32 = 1280;
const MIN_IPV6_MTU_BYTES: u32 = 1280;

/// Resolves the configuration of a native step.
///
/// `entry` has the keys of the call or of a member of a chain, `runtime_config` the part of the
/// call's that the step may see.
pub(crate) fn resolve(
    call: &Call,
    entry: Keys<'_>,
    runtime_config: &Map<String, Value>,
    subnet_file: &Path,
    load: LoadSubnets<'_>,
) -> Result<NativeConf, CompleteError> {
    validate::check(entry)?;
    let configured_pods = one_per_family(entry, "pod_cidr")?;
    let services = one_per_family(entry, "service_cidr")?;
    let enable_ipv6 = entry.flag("enable_ipv6")?;
    let mut mtu = entry.mtu("mtu")?;
    let (ipam_kind, mut ipam) = ipam(entry)?;
    let mut leased_from = configured_ranges(&ipam, &entry.name("ipam"), runtime_config)?;
    let mut pod_cidrs = nets(&configured_pods);

    let lacks_ranges = needs_ranges(&ipam, runtime_config);
    if lacks_ranges && !configured_pods.is_empty() {
        ipam.insert("ranges".to_owned(), ranges_of(&configured_pods)?);
        leased_from.clone_from(&configured_pods);
    }
    let needs_subnets = lacks_ranges && configured_pods.is_empty();
    if needs_subnets || mtu.is_none() {
        let node_mtu = match load(subnet_file) {
            Ok(mut subnets) => {
                if needs_subnets {
                    if enable_ipv6 == Some(false) {
                        remove_ipv6(&mut subnets)?;
                    }
                    ipam.insert("ranges".to_owned(), ranges(&subnets));
                    pod_cidrs = cluster_cidrs(&subnets);
                    leased_from = subnets.families.iter().flat_map(node_subnets).collect();
                }
                Some(subnets.mtu_bytes)
            }
            Err(SubnetEnvError::Absent { known, .. }) if !needs_subnets => known.mtu_bytes,
            Err(error) => return Err(error.into()),
        };
        mtu = mtu.or(node_mtu);
    }
    let mtu = mtu.unwrap_or(DEFAULT_MTU_BYTES);
    if pod_cidrs.is_empty() {
        pod_cidrs = nets(&leased_from);
    }

    check_ranges_are_in_pod_cidr(entry, &leased_from, &configured_pods)?;
    check_overlaps(&services, leased_from.iter().chain(&configured_pods))?;
    check_families(entry, enable_ipv6, &leased_from, &configured_pods)?;
    if let Some(range) = leased_from.iter().find(|range| range.is_ipv6())
        && mtu < MIN_IPV6_MTU_BYTES
    {
        return Err(Error::config(format!(
            "{} {mtu} is too small for IPv6 ({range}): it must be {MIN_IPV6_MTU_BYTES} or more",
            entry.name("mtu")
        ))
        .into());
    }

    let mut keys = entry.map().clone();
    keys.insert("ipam".to_owned(), Value::Object(ipam));
    keys.insert(
        "runtimeConfig".to_owned(),
        Value::Object(runtime_config.clone()),
    );
    let pod = Keys::new(&keys, "");
    let limits = optional_for_cleanup(call, bandwidth::parse(pod, mtu), Limits::default())?;
    Ok(NativeConf {
        ipam_plugin: (ipam_kind.as_str() != OWN_IPAM).then_some(ipam_kind),
        mtu,
        mac: optional_for_cleanup(call, mac(pod, call), None)?,
        port_mappings: match call.verb {
            Verb::Del | Verb::Gc => PortMappings::parse_lenient(&keys),
            _ => PortMappings::parse(pod)?,
        },
        ingress_limit: limits.ingress,
        egress_limit: limits.egress,
        pod_cidrs,
        service_cidrs: nets(&services),
        guard_pod_cidr: entry.flag("guard_pod_cidr")?.unwrap_or(false),
        enable_ipv6,
        status_strict: entry.flag("status_strict")?.unwrap_or(false),
        tailscale_socket: entry
            .text("tailscale_socket")?
            .filter(|path| !path.is_empty())
            .map(PathBuf::from),
        keys,
    })
}

/// What DEL and GC need of a configuration that is invalid otherwise.
pub(crate) fn for_cleanup(entry: Keys<'_>, runtime_config: &Map<String, Value>) -> NativeConf {
    let mut keys = entry.map().clone();
    keys.insert(
        "runtimeConfig".to_owned(),
        Value::Object(runtime_config.clone()),
    );
    let cidrs = |key| one_per_family(entry, key).map_or_else(|_| Vec::new(), |cidrs| nets(&cidrs));
    NativeConf {
        ipam_plugin: ipam(entry)
            .ok()
            .map(|(kind, _)| kind)
            .filter(|kind| kind.as_str() != OWN_IPAM),
        port_mappings: PortMappings::parse_lenient(&keys),
        pod_cidrs: cidrs("pod_cidr"),
        service_cidrs: cidrs("service_cidr"),
        keys,
        ..NativeConf::default()
    }
}

/// Warnings about keys that have no effect.
pub(crate) fn warnings(entry: Keys<'_>) -> Vec<String> {
    if entry.flag("enable_network_policy") != Ok(Some(true)) {
        return Vec::new();
    }
    vec![format!(
        "{} is true, but this version does not enforce NetworkPolicy: every pod can reach every \
         other pod, whatever {} is",
        entry.name("enable_network_policy"),
        entry.name("policy_fail_mode"),
    )]
}

/// The type and the configuration of IPAM.
fn ipam(entry: Keys<'_>) -> Result<(PluginType, Map<String, Value>), Error> {
    let mut ipam = entry.object("ipam")?.cloned().unwrap_or_default();
    let path = entry.name("ipam");
    let keys = Keys::new(&ipam, &path);
    let name = keys.name("type");
    let kind = keys.text("type")?.filter(|kind| !kind.is_empty());
    let kind = PluginType::new(&name, kind.unwrap_or(OWN_IPAM))?;
    if kind.as_str() == "headcni" {
        return Err(Error::config(format!(
            "{name} \"headcni\" would call itself: name an IPAM plugin, for example {OWN_IPAM:?}"
        )));
    }
    ipam.insert("type".to_owned(), kind.as_str().into());
    if kind.as_str() == OWN_IPAM
        && let Some(is_strict) = entry.flag("status_strict")?
    {
        ipam.entry("status_strict").or_insert(is_strict.into());
    }
    Ok((kind, ipam))
}

/// One range set per pod CIDR: a pod gets an address from each set.
fn ranges_of(pod_cidrs: &[ConfiguredCidr]) -> Result<Value, Error> {
    pod_cidrs
        .iter()
        .map(|cidr| {
            ipam::Range::new(cidr.net, None, None, None)
                .map_err(|error| Error::config(format!("{}: {error}", cidr.key)))?;
            Ok(json!([{ "subnet": cidr.net }]))
        })
        .collect()
}

fn remove_ipv6(subnets: &mut SubnetEnv) -> Result<(), Error> {
    let is_ipv6 = |family: &Family| family.networks.iter().any(|net| net.addr().is_ipv6());
    subnets.families.retain(|family| !is_ipv6(family));
    if subnets.families.is_empty() {
        return Err(Error::config(
            "enable_ipv6 is false, but this node has only IPv6 subnets (HEADCNI_IPV6_SUBNET): \
             set it to true, or give the node a HEADCNI_SUBNET",
        ));
    }
    Ok(())
}

/// Packets between pods of all nodes are not masqueraded.
fn cluster_cidrs(subnets: &SubnetEnv) -> Vec<IpNet> {
    let families = subnets.families.iter();
    families
        .flat_map(|family| &family.networks)
        .copied()
        .collect()
}

fn node_subnets(family: &Family) -> impl Iterator<Item = ConfiguredCidr> {
    family.subnets.iter().map(|subnet| ConfiguredCidr {
        key: match subnet.net {
            IpNet::V4(_) => "HEADCNI_SUBNET".to_owned(),
            IpNet::V6(_) => "HEADCNI_IPV6_SUBNET".to_owned(),
        },
        net: subnet.net,
    })
}

fn nets(cidrs: &[ConfiguredCidr]) -> Vec<IpNet> {
    cidrs.iter().map(|cidr| cidr.net).collect()
}

/// Other nodes have no route to addresses outside the pod CIDR.
fn check_ranges_are_in_pod_cidr(
    entry: Keys<'_>,
    ranges: &[ConfiguredCidr],
    pod_cidrs: &[ConfiguredCidr],
) -> Result<(), Error> {
    let is_inside = |range: &ConfiguredCidr| {
        let mut pod_cidrs = pod_cidrs.iter();
        pod_cidrs.any(|cidr| cidr.net.contains(&range.net))
    };
    match ranges.iter().find(|range| !is_inside(range)) {
        Some(outside) if !pod_cidrs.is_empty() => Err(Error::config(format!(
            "{outside} is not inside {} {}: change one of them, or remove the latter",
            entry.name("pod_cidr"),
            entry.text("pod_cidr")?.unwrap_or_default(),
        ))),
        _ => Ok(()),
    }
}

fn check_overlaps<'a>(
    services: &[ConfiguredCidr],
    others: impl Iterator<Item = &'a ConfiguredCidr>,
) -> Result<(), Error> {
    for other in others {
        if let Some(service) = services.iter().find(|service| service.overlaps(other)) {
            return Err(Error::config(format!(
                "{service} overlaps {other}: services and pods need separate CIDRs"
            )));
        }
    }
    Ok(())
}

fn check_families(
    entry: Keys<'_>,
    enable_ipv6: Option<bool>,
    ranges: &[ConfiguredCidr],
    pod_cidrs: &[ConfiguredCidr],
) -> Result<(), Error> {
    let key = entry.name("enable_ipv6");
    let ipv6 = ranges.iter().chain(pod_cidrs).find(|cidr| cidr.is_ipv6());
    match (enable_ipv6, ipv6) {
        (Some(false), Some(cidr)) => Err(Error::config(format!(
            "{key} is false, but {cidr} is IPv6: remove it, or set {key} to true"
        ))),
        (Some(true), None) if !ranges.is_empty() => {
            let ranges: Vec<String> = ranges.iter().map(ConfiguredCidr::to_string).collect();
            Err(Error::config(format!(
                "{key} is true, but there is no IPv6 range ({}): add one, or set {key} to false",
                ranges.join(", ")
            )))
        }
        _ => Ok(()),
    }
}

/// The requested hardware address. It can be requested in three places, which must agree.
fn mac(keys: Keys<'_>, call: &Call) -> Result<Option<Mac>, Error> {
    let args = CniArgs::parse(call.env.get("CNI_ARGS")?.unwrap_or_default())?;
    let runtime = keys.object("runtimeConfig")?;
    let cni_args = match keys.object("args")? {
        Some(map) => Keys::new(map, "args").object("cni")?,
        None => None,
    };
    let mut requested: Vec<(String, &str)> = Vec::new();
    for (path, map) in [("runtimeConfig", runtime), ("args.cni", cni_args)] {
        if let Some(keys) = map.map(|map| Keys::new(map, path)) {
            requested.extend(keys.text("mac")?.map(|text| (keys.name("mac"), text)));
        }
    }
    requested.extend(
        args.get("MAC")
            .map(|text| ("MAC in CNI_ARGS".to_owned(), text)),
    );

    let mut agreed: Option<(Mac, String)> = None;
    for (origin, text) in requested.into_iter().filter(|(_, text)| !text.is_empty()) {
        let mac: Mac = text
            .parse()
            .map_err(|error| Error::config(format!("{origin}: {error}")))?;
        match &agreed {
            Some((other, first_origin)) if *other != mac => {
                return Err(Error::config(format!(
                    "{first_origin} {other} contradicts {origin} {mac}: remove one of them"
                )));
            }
            Some(_) => {}
            None => agreed = Some((mac, origin)),
        }
    }
    Ok(agreed.map(|(mac, _)| mac))
}

#[cfg(test)]
mod tests;
