//! Networks that a configuration names: `pod_cidr`, `service_cidr`, and the ranges of `ipam`.

use std::fmt;
use std::net::{Ipv4Addr, Ipv6Addr};

use cni::{Error, Keys};
use ipnet::{IpNet, Ipv4Net, Ipv6Net};
use serde_json::{Map, Value};

use crate::delegate::RANGE_PLUGINS;

/// Networks that the kernel treats in ways of its own: no pod and no service lives there.
const SPECIAL: [IpNet; 6] = [
    IpNet::V4(Ipv4Net::new_assert(Ipv4Addr::UNSPECIFIED, 8)),
    IpNet::V4(Ipv4Net::new_assert(Ipv4Addr::LOCALHOST, 8)),
    IpNet::V4(Ipv4Net::new_assert(Ipv4Addr::new(224, 0, 0, 0), 3)),
    IpNet::V6(Ipv6Net::new_assert(Ipv6Addr::UNSPECIFIED, 127)),
    IpNet::V6(Ipv6Net::new_assert(
        Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0, 0, 0),
        10,
    )),
    IpNet::V6(Ipv6Net::new_assert(
        Ipv6Addr::new(0xff00, 0, 0, 0, 0, 0, 0, 0),
        8,
    )),
];

/// A network, and the key that names it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::native) struct Named {
    pub(in crate::native) key: String,
    pub(in crate::native) net: IpNet,
}

impl Named {
    pub(in crate::native) fn is_ipv6(&self) -> bool {
        self.net.addr().is_ipv6()
    }

    pub(in crate::native) fn overlaps(&self, other: &Self) -> bool {
        overlap(&self.net, &other.net)
    }
}

impl fmt::Display for Named {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.key, self.net)
    }
}

fn overlap(a: &IpNet, b: &IpNet) -> bool {
    a.contains(b) || b.contains(a)
}

/// The networks of a text like `10.244.0.0/24,fd00::/64`; an empty text is as good as absent.
pub(in crate::native) fn networks(keys: Keys<'_>, key: &str) -> Result<Vec<Named>, Error> {
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
                    "{name} has {item:?}: it must be of the form IP/LENGTH, as 10.244.0.0/24, or \
                     one such per IP family, separated by a comma"
                ))
            })?;
            if net.trunc() != net {
                return Err(Error::config(format!(
                    "{name} {net} has host bits set: its network address is {}",
                    net.trunc()
                )));
            }
            if let Some(special) = SPECIAL.iter().find(|special| overlap(special, &net)) {
                return Err(Error::config(format!(
                    "{name} {net} overlaps {}, which is no network for pods or services",
                    special.trunc()
                )));
            }
            Ok(Named {
                key: name.clone(),
                net,
            })
        })
        .collect()
}

/// As [`networks`], with one network of each IP family at the most.
pub(super) fn one_per_family(keys: Keys<'_>, key: &str) -> Result<Vec<Named>, Error> {
    let networks = networks(keys, key)?;
    for (index, network) in networks.iter().enumerate() {
        let is_same = |other: &&Named| other.is_ipv6() == network.is_ipv6();
        if let Some(other) = networks[..index].iter().find(is_same) {
            return Err(Error::config(format!(
                "{} has {} and {} of one IP family: it may have one network of each",
                network.key, other.net, network.net
            )));
        }
    }
    Ok(networks)
}

/// The ranges that an IPAM plugin is told to lease from. None for a plugin that isn't told any.
pub(in crate::native) fn named_ranges(
    ipam: &Map<String, Value>,
    path: &str,
    runtime_config: &Map<String, Value>,
) -> Result<Vec<Named>, Error> {
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

fn sets(keys: Keys<'_>, key: &str) -> Result<Vec<Named>, Error> {
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

/// The subnet alone: the rest of a range is checked by the plugin that leases from it.
fn range(keys: Keys<'_>) -> Result<Named, Error> {
    let subnet = keys.text("subnet")?.and_then(|text| text.parse().ok());
    let net: IpNet = subnet.ok_or_else(|| keys.wrong("subnet", "of the form IP/LENGTH"))?;
    Ok(Named {
        key: keys.name("subnet"),
        net: net.trunc(),
    })
}
