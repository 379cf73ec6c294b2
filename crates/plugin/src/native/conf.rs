//! The complete configuration of a native step: ranges, MTU, and no contradiction.
//!
//! Pure but for the subnet file, which is read only when something is missing. What the
//! configuration says is respected and stays in; a key that isn't understood is kept.

pub(super) mod networks;
mod own_keys;

use std::path::Path;

use api::{Family, SubnetEnv, SubnetEnvError};
use cni::{Error, Keys, PluginType};
use ipnet::IpNet;
use serde_json::{Map, Value, json};

use self::networks::{Named, named_ranges, one_per_family};
use crate::delegate::{CompleteError, LoadSubnets, needs_ranges, ranges};

/// What is linked in: no program is executed for a lease.
const OWN_IPAM: &str = "headcni-ipam";
/// What every link of a tailnet carries, and the least that IPv6 needs (RFC 8200).
const DEFAULT_MTU_BYTES: u32 = 1280;
const LEAST_IPV6_MTU_BYTES: u32 = 1280;

/// A native step's whole configuration, but for what each call adds.
///
/// `entry` has the keys of the call's configuration or of a chain's member, `runtime_config` is
/// what the step sees of the call's, and `subnet_file` is where the node's subnets stand.
pub(crate) fn complete(
    entry: Keys<'_>,
    runtime_config: &Map<String, Value>,
    subnet_file: &Path,
    load: LoadSubnets<'_>,
) -> Result<Map<String, Value>, CompleteError> {
    own_keys::check(entry)?;
    let pods = one_per_family(entry, "pod_cidr")?;
    let services = one_per_family(entry, "service_cidr")?;
    let enable_ipv6 = entry.flag("enable_ipv6")?;
    let mut mtu = entry.mtu("mtu")?;
    let mut conf = entry.map().clone();
    let mut ipam = ipam(entry)?;
    let mut said = named_ranges(&ipam, &entry.name("ipam"), runtime_config)?;

    let lacks_ranges = needs_ranges(&ipam, runtime_config);
    if lacks_ranges && !pods.is_empty() {
        ipam.insert("ranges".to_owned(), ranges_of(&pods)?);
        said.clone_from(&pods);
    }
    let needs_subnets = lacks_ranges && pods.is_empty();
    if needs_subnets || mtu.is_none() {
        let known_mtu = match load(subnet_file) {
            Ok(mut subnets) => {
                if needs_subnets {
                    if enable_ipv6 == Some(false) {
                        leave_out_ipv6(&mut subnets)?;
                    }
                    ipam.insert("ranges".to_owned(), ranges(&subnets));
                    conf.insert("pod_cidr".to_owned(), cluster_networks(&subnets).into());
                    said = subnets.families.iter().flat_map(named_subnets).collect();
                }
                Some(subnets.mtu_bytes)
            }
            Err(SubnetEnvError::Absent { known, .. }) if !needs_subnets => known.mtu_bytes,
            Err(error) => return Err(error.into()),
        };
        mtu = mtu.or(known_mtu);
    }
    let mtu = mtu.unwrap_or(DEFAULT_MTU_BYTES);

    refuse_strays(entry, &said, &pods)?;
    refuse_overlaps(&services, said.iter().chain(&pods))?;
    refuse_wrong_families(entry, enable_ipv6, &said, &pods)?;
    if let Some(range) = said.iter().find(|range| range.is_ipv6())
        && mtu < LEAST_IPV6_MTU_BYTES
    {
        return Err(Error::config(format!(
            "{} {mtu} is too small for IPv6 ({range}): it must be {LEAST_IPV6_MTU_BYTES} or more",
            entry.name("mtu")
        ))
        .into());
    }
    conf.insert("mtu".to_owned(), mtu.into());
    conf.insert("ipam".to_owned(), Value::Object(ipam));
    Ok(conf)
}

/// The configuration's own `ipam`, with its type.
fn ipam(entry: Keys<'_>) -> Result<Map<String, Value>, Error> {
    let mut ipam = entry.object("ipam")?.cloned().unwrap_or_default();
    let path = entry.name("ipam");
    let keys = Keys::new(&ipam, &path);
    let name = keys.name("type");
    let kind = PluginType::new(&name, keys.text("type")?.unwrap_or(OWN_IPAM))?;
    if kind.as_str() == "headcni" {
        return Err(Error::config(format!(
            "{name} \"headcni\" would call itself: name the plugin that gives addresses, as \
             {OWN_IPAM:?}"
        )));
    }
    ipam.insert("type".to_owned(), kind.as_str().into());
    if kind.as_str() == OWN_IPAM
        && let Some(is_strict) = entry.flag("status_strict")?
    {
        ipam.entry("status_strict").or_insert(is_strict.into());
    }
    Ok(ipam)
}

/// One set of ranges per network: a pod gets an address from each set.
fn ranges_of(pods: &[Named]) -> Result<Value, Error> {
    pods.iter()
        .map(|pods| {
            ipam::Range::new(pods.net, None, None, None)
                .map_err(|error| Error::config(format!("{}: {error}", pods.key)))?;
            Ok(json!([{ "subnet": pods.net }]))
        })
        .collect()
}

fn leave_out_ipv6(subnets: &mut SubnetEnv) -> Result<(), Error> {
    let is_ipv6 = |family: &Family| family.networks.iter().any(|net| net.addr().is_ipv6());
    subnets.families.retain(|family| !is_ipv6(family));
    if subnets.families.is_empty() {
        return Err(Error::config(
            "enable_ipv6 is false, and this node has subnets of IPv6 only (HEADCNI_IPV6_SUBNET): \
             set it to true, or give the node a HEADCNI_SUBNET",
        ));
    }
    Ok(())
}

/// All nodes' pods, as `pod_cidr` would say it: they talk to each other without masquerading.
fn cluster_networks(subnets: &SubnetEnv) -> String {
    let networks = subnets.families.iter().flat_map(|family| &family.networks);
    let texts: Vec<String> = networks.map(IpNet::to_string).collect();
    texts.join(",")
}

fn named_subnets(family: &Family) -> impl Iterator<Item = Named> {
    family.subnets.iter().map(|subnet| Named {
        key: match subnet.net {
            IpNet::V4(_) => "HEADCNI_SUBNET".to_owned(),
            IpNet::V6(_) => "HEADCNI_IPV6_SUBNET".to_owned(),
        },
        net: subnet.net,
    })
}

/// A range that isn't the pods' would give addresses that no other node knows the way to.
fn refuse_strays(entry: Keys<'_>, said: &[Named], pods: &[Named]) -> Result<(), Error> {
    let is_inside = |range: &Named| pods.iter().any(|pods| pods.net.contains(&range.net));
    match said.iter().find(|range| !is_inside(range)) {
        Some(stray) if !pods.is_empty() => Err(Error::config(format!(
            "{stray} is not inside {} {}: change one of them, or remove the latter",
            entry.name("pod_cidr"),
            entry.text("pod_cidr")?.unwrap_or_default(),
        ))),
        _ => Ok(()),
    }
}

/// An address that is both a pod's and a service's would be reached as neither.
fn refuse_overlaps<'a>(
    services: &[Named],
    others: impl Iterator<Item = &'a Named>,
) -> Result<(), Error> {
    for other in others {
        if let Some(service) = services.iter().find(|service| service.overlaps(other)) {
            return Err(Error::config(format!(
                "{service} overlaps {other}: services and pods need networks of their own"
            )));
        }
    }
    Ok(())
}

fn refuse_wrong_families(
    entry: Keys<'_>,
    enable_ipv6: Option<bool>,
    said: &[Named],
    pods: &[Named],
) -> Result<(), Error> {
    let key = entry.name("enable_ipv6");
    let ipv6 = said.iter().chain(pods).find(|range| range.is_ipv6());
    match (enable_ipv6, ipv6) {
        (Some(false), Some(range)) => Err(Error::config(format!(
            "{key} is false, and {range} is IPv6: remove it, or set {key} to true"
        ))),
        (Some(true), None) if !said.is_empty() => {
            let ranges: Vec<String> = said.iter().map(Named::to_string).collect();
            Err(Error::config(format!(
                "{key} is true, and there is no IPv6 range ({}): add one, or set {key} to false",
                ranges.join(", ")
            )))
        }
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests;
