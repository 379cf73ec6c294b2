//! The `ipam` section of a network configuration.

mod resolv_conf;

use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use cni::{CniArgs, Dns, Error, Keys, NetConf, Route, Version};
use ipnet::IpNet;
use serde::Deserialize;
use serde_json::Value;

use crate::range::{Range, RangeSet};
use crate::store::LeaseStore;
use crate::strategy::AllocationStrategy;

const DEFAULT_DATA_DIR: &str = "/var/lib/cni/networks/headcni";

/// A thousand concurrent calls take about a second.
const DEFAULT_LOCK_TIMEOUT: Duration = Duration::from_secs(20);

/// The parsed `ipam` section, with the addresses that the runtime requests.
#[derive(Debug)]
pub struct IpamConf {
    /// One address is leased from each set.
    pub sets: Vec<RangeSet>,
    /// Requested addresses, each from a different set.
    pub(crate) requested: Vec<IpAddr>,
    /// How to pick an address if none is requested.
    pub(crate) strategy: AllocationStrategy,
    /// Routes for the result.
    pub(crate) routes: Vec<Route>,
    /// DNS settings for the result, from `resolvConf`.
    pub(crate) dns: Dns,
    /// Whether STATUS fails when a range set is full.
    pub(crate) is_status_strict: bool,
}

impl IpamConf {
    /// Parses the configuration of an ADD, CHECK or STATUS.
    pub fn parse(conf: &NetConf, args: &CniArgs) -> Result<Self, Error> {
        let ipam = ipam(conf)?;
        let sets = sets(conf, ipam)?;
        if conf.version() < Version::V0_3_0 {
            refuse_two_of_a_family(&sets, conf.version())?;
        }
        let strategy = match ipam.text("allocation_strategy")? {
            None => AllocationStrategy::default(),
            Some(name) => name
                .parse()
                .map_err(|error| Error::caused(cni::code::INVALID_CONFIG, &error))?,
        };
        let dns = match ipam.text("resolvConf")? {
            None | Some("") => Dns::default(),
            Some(path) => resolv_conf::read(Path::new(path))?,
        };
        Ok(Self {
            requested: requested(conf, args)?,
            sets,
            strategy,
            routes: routes(ipam)?,
            dns,
            is_status_strict: ipam.flag("status_strict")?.unwrap_or(false),
        })
    }

    /// The lease store of a configuration, for DEL and GC. Ignores the rest of the section: leases
    /// must be releasable even if the configuration has become invalid.
    pub(crate) fn store_for_cleanup(conf: &NetConf) -> Result<LeaseStore, Error> {
        let ipam = ipam(conf)?;
        let lock_timeout = lock_timeout(ipam).unwrap_or(DEFAULT_LOCK_TIMEOUT);
        Ok(LeaseStore::new(&data_dir(ipam)?, conf.name(), lock_timeout))
    }

    /// The lease store of a configuration.
    pub(crate) fn store(conf: &NetConf) -> Result<LeaseStore, Error> {
        let ipam = ipam(conf)?;
        Ok(LeaseStore::new(
            &data_dir(ipam)?,
            conf.name(),
            lock_timeout(ipam)?,
        ))
    }
}

fn data_dir(ipam: Keys<'_>) -> Result<PathBuf, Error> {
    let data_dir = PathBuf::from(ipam.text("dataDir")?.unwrap_or(DEFAULT_DATA_DIR));
    if data_dir.is_absolute() {
        return Ok(data_dir);
    }
    Err(ipam.wrong("dataDir", "an absolute path"))
}

fn lock_timeout(ipam: Keys<'_>) -> Result<Duration, Error> {
    let given = ipam.seconds("lock_timeout_seconds")?;
    Ok(given.unwrap_or(DEFAULT_LOCK_TIMEOUT))
}

fn ipam(conf: &NetConf) -> Result<Keys<'_>, Error> {
    let top = Keys::new(conf.keys(), "");
    let map = top.object("ipam")?;
    map.map(|map| Keys::new(map, "ipam"))
        .ok_or_else(|| Error::config("ipam is missing from the network configuration"))
}

/// Range sets in order: `runtimeConfig.ipRanges`, the single `subnet`, `ranges`.
fn sets(conf: &NetConf, ipam: Keys<'_>) -> Result<Vec<RangeSet>, Error> {
    let mut sets = Vec::new();
    let top = Keys::new(conf.keys(), "");
    if let Some(runtime) = top.object("runtimeConfig")? {
        let keys = Keys::new(runtime, "runtimeConfig");
        sets.extend(list_of_sets(keys, "ipRanges")?);
    }
    if ipam.value("subnet").is_some() {
        sets.push(set(&[range(ipam)?], "ipam")?);
    }
    sets.extend(list_of_sets(ipam, "ranges")?);
    if sets.is_empty() {
        return Err(Error::config("ipam has neither subnet nor ranges"));
    }
    RangeSet::refuse_overlaps(&sets)
        .map_err(|error| Error::config(format!("ipam.ranges: {error}")))?;
    Ok(sets)
}

fn list_of_sets(keys: Keys<'_>, key: &str) -> Result<Vec<RangeSet>, Error> {
    let list = keys.list(key)?.map(Vec::as_slice).unwrap_or_default();
    list.iter()
        .enumerate()
        .map(|(index, ranges)| {
            let path = format!("{}[{index}]", keys.name(key));
            let Some(ranges) = ranges.as_array() else {
                return Err(keys.wrong(key, "a list of lists of ranges"));
            };
            let ranges = ranges
                .iter()
                .enumerate()
                .map(|(index, entry)| match entry {
                    Value::Object(map) => range(Keys::new(map, &format!("{path}[{index}]"))),
                    _ => Err(keys.wrong(key, "a list of lists of ranges")),
                })
                .collect::<Result<Vec<_>, _>>()?;
            set(&ranges, &path)
        })
        .collect()
}

fn set(ranges: &[Range], path: &str) -> Result<RangeSet, Error> {
    RangeSet::new(ranges.to_vec()).map_err(|error| Error::config(format!("{path}: {error}")))
}

fn range(keys: Keys<'_>) -> Result<Range, Error> {
    let address = |key| match keys.text(key)? {
        None | Some("") => Ok(None),
        Some(text) => text
            .parse::<IpAddr>()
            .map(Some)
            .map_err(|_| keys.wrong(key, "an IP address")),
    };
    let subnet = keys
        .text("subnet")?
        .and_then(|text| text.parse::<IpNet>().ok());
    let subnet = subnet.ok_or_else(|| keys.wrong("subnet", "of the form IP/LENGTH"))?;
    Range::new(
        subnet,
        address("rangeStart")?,
        address("rangeEnd")?,
        address("gateway")?,
    )
    .map_err(|error| Error::config(format!("{}: {error}", keys.name("subnet"))))
}

/// Results before 0.3.0 hold one address per family.
fn refuse_two_of_a_family(sets: &[RangeSet], version: Version) -> Result<(), Error> {
    let ipv4 = sets
        .iter()
        .filter(|set| set.ranges()[0].subnet().addr().is_ipv4())
        .count();
    if ipv4 > 1 || sets.len() - ipv4 > 1 {
        return Err(Error::config(format!(
            "cniVersion {version} allows one address per IP family, but ipam has {} range sets",
            sets.len()
        )));
    }
    Ok(())
}

/// Requested addresses: `IP=` in `CNI_ARGS`, `args.cni.ips`, `runtimeConfig.ips`.
fn requested(conf: &NetConf, args: &CniArgs) -> Result<Vec<IpAddr>, Error> {
    let top = Keys::new(conf.keys(), "");
    let mut requests: Vec<(String, String)> = Vec::new();
    let from_args = args
        .get("IP")
        .unwrap_or_default()
        .split(',')
        .filter(|text| !text.is_empty());
    requests.extend(from_args.map(|text| ("IP in CNI_ARGS".to_owned(), text.to_owned())));
    if let Some(args) = top.object("args")?
        && let Some(cni_args) = Keys::new(args, "args").object("cni")?
    {
        let texts = Keys::new(cni_args, "args.cni").texts("ips")?;
        requests.extend(
            texts
                .into_iter()
                .map(|text| ("args.cni.ips".to_owned(), text)),
        );
    }
    if let Some(runtime) = top.object("runtimeConfig")? {
        let texts = Keys::new(runtime, "runtimeConfig").texts("ips")?;
        requests.extend(
            texts
                .into_iter()
                .map(|text| ("runtimeConfig.ips".to_owned(), text)),
        );
    }
    let mut addresses: Vec<IpAddr> = Vec::new();
    for (origin, text) in requests {
        // A prefix length is allowed and ignored.
        let address = text
            .parse::<IpAddr>()
            .or_else(|_| text.parse::<IpNet>().map(|net| net.addr()))
            .map_err(|_| Error::config(format!("{origin}: {text:?} is not an IP address")))?;
        if !addresses.contains(&address) {
            addresses.push(address);
        }
    }
    Ok(addresses)
}

fn routes(ipam: Keys<'_>) -> Result<Vec<Route>, Error> {
    let list = ipam.list("routes")?.map(Vec::as_slice).unwrap_or_default();
    list.iter()
        .map(|route| {
            Route::deserialize(route)
                .map_err(|error| Error::config(format!("ipam.routes {route}: {error}")))
        })
        .collect()
}

#[cfg(test)]
mod tests;
