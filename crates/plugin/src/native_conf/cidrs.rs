//! CIDRs of the configuration: `pod_cidr`, `service_cidr`, and the ranges of `ipam`.

use std::fmt;

use cni::{Error, Keys};
use ipnet::IpNet;
use serde_json::{Map, Value};

use crate::delegate::RANGE_PLUGINS;

/// A CIDR with the key that configures it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct ConfiguredCidr {
    pub(super) key: String,
    pub(super) net: IpNet,
}

impl ConfiguredCidr {
    pub(super) fn is_ipv6(&self) -> bool {
        self.net.addr().is_ipv6()
    }

    pub(super) fn overlaps(&self, other: &Self) -> bool {
        overlap(&self.net, &other.net)
    }
}

impl fmt::Display for ConfiguredCidr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.key, self.net)
    }
}

fn overlap(a: &IpNet, b: &IpNet) -> bool {
    a.contains(b) || b.contains(a)
}

/// The CIDRs of a text like `10.244.0.0/24,fd00::/64`.
fn cidrs(keys: Keys<'_>, key: &str) -> Result<Vec<ConfiguredCidr>, Error> {
    let text = keys.text(key)?.unwrap_or_default();
    if text.is_empty() {
        return Ok(Vec::new());
    }
    let name = keys.name(key);
    text.split(',')
        .map(|item| {
            let item = item.trim();
            let net: IpNet = item.parse().map_err(|_| {
                Error::config(format!(
                    "{name} has {item:?}: it must be a CIDR like 10.244.0.0/24, or one CIDR per IP \
                     family, separated by a comma"
                ))
            })?;
            if net.trunc() != net {
                return Err(Error::config(format!(
                    "{name} {net} has host bits set: its network address is {}",
                    net.trunc()
                )));
            }
            if let Some(special) = net::special_purpose(&net) {
                return Err(Error::config(format!(
                    "{name} {net} overlaps {}, which is {}",
                    special.net, special.purpose
                )));
            }
            Ok(ConfiguredCidr {
                key: name.clone(),
                net,
            })
        })
        .collect()
}

/// The CIDRs of a key, at most one per IP family.
pub(super) fn one_per_family(keys: Keys<'_>, key: &str) -> Result<Vec<ConfiguredCidr>, Error> {
    let networks = cidrs(keys, key)?;
    for (index, network) in networks.iter().enumerate() {
        let is_same = |other: &&ConfiguredCidr| other.is_ipv6() == network.is_ipv6();
        if let Some(other) = networks[..index].iter().find(is_same) {
            return Err(Error::config(format!(
                "{} has {} and {} of one IP family: it can have one CIDR of each",
                network.key, other.net, network.net
            )));
        }
    }
    Ok(networks)
}

/// The configured ranges of an IPAM plugin that has ranges.
pub(super) fn configured_ranges(
    ipam: &Map<String, Value>,
    path: &str,
    runtime_config: &Map<String, Value>,
) -> Result<Vec<ConfiguredCidr>, Error> {
    let ipam = Keys::new(ipam, path);
    if !RANGE_PLUGINS.contains(&ipam.text("type")?.unwrap_or_default()) {
        return Ok(Vec::new());
    }
    let runtime = Keys::new(runtime_config, "runtimeConfig");
    let mut ranges = sets(runtime, "ipRanges")?;
    if ipam.value("subnet").is_some() {
        ranges.push(range(ipam)?);
    }
    ranges.extend(sets(ipam, "ranges")?);
    Ok(ranges)
}

fn sets(keys: Keys<'_>, key: &str) -> Result<Vec<ConfiguredCidr>, Error> {
    let wrong = || keys.wrong(key, "a list of lists of ranges");
    let sets = keys.list(key)?.map(Vec::as_slice).unwrap_or_default();
    let mut ranges = Vec::new();
    for (i, set) in sets.iter().enumerate() {
        for (j, entry) in set.as_array().ok_or_else(wrong)?.iter().enumerate() {
            let entry = entry.as_object().ok_or_else(wrong)?;
            let path = format!("{}[{i}][{j}]", keys.name(key));
            ranges.push(range(Keys::new(entry, &path))?);
        }
    }
    Ok(ranges)
}

/// Only the subnet: IPAM checks the rest of a range.
fn range(keys: Keys<'_>) -> Result<ConfiguredCidr, Error> {
    let subnet = keys.text("subnet")?.and_then(|text| text.parse().ok());
    let net: IpNet = subnet.ok_or_else(|| keys.wrong("subnet", "a CIDR"))?;
    Ok(ConfiguredCidr {
        key: keys.name("subnet"),
        net: net.trunc(),
    })
}
