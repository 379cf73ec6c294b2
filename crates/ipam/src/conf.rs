//! What an `ipam` configuration says.

mod resolv_conf;

use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use cni::{CniArgs, Dns, Error, Keys, NetConf, Route, Version};
use ipnet::IpNet;
use serde::Deserialize;
use serde_json::Value;

use crate::range::{Range, RangeSet};
use crate::store::Store;
use crate::strategy::Strategy;

const DEFAULT_DATA_DIR: &str = "/var/lib/cni/networks/headcni";

/// How long to wait for the store. A thousand callers at once are through in a second.
const DEFAULT_PATIENCE: Duration = Duration::from_secs(20);

/// Everything that leasing an address needs to know.
#[derive(Debug)]
pub struct Settings {
    /// One address is leased from each set.
    pub sets: Vec<RangeSet>,
    /// Addresses that the caller asks for, each from another set.
    pub requested: Vec<IpAddr>,
    /// How to choose where none is asked for.
    pub strategy: Strategy,
    /// Routes for the container.
    pub routes: Vec<Route>,
    /// Name servers for the container.
    pub dns: Dns,
    /// Whether STATUS fails when no address is left.
    pub is_status_strict: bool,
}

impl Settings {
    /// Reads the configuration of an ADD, CHECK or STATUS.
    pub fn parse(conf: &NetConf, args: &CniArgs) -> Result<Self, Error> {
        let ipam = ipam(conf)?;
        let sets = sets(conf, ipam)?;
        if conf.version() < Version::V0_3_0 {
            refuse_two_of_a_family(&sets, conf.version())?;
        }
        let strategy = match ipam.text("allocation_strategy")? {
            None => Strategy::default(),
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

    /// The store that a configuration names. Needs nothing else of it to be right, so that
    /// addresses can be released when a configuration no longer makes sense.
    pub fn store_for_cleaning(conf: &NetConf) -> Result<Store, Error> {
        let ipam = ipam(conf)?;
        let patience = patience(ipam).unwrap_or(DEFAULT_PATIENCE);
        Ok(Store::new(&data_dir(ipam)?, conf.name(), patience))
    }

    /// The store that a configuration names.
    pub fn store(conf: &NetConf) -> Result<Store, Error> {
        let ipam = ipam(conf)?;
        Ok(Store::new(&data_dir(ipam)?, conf.name(), patience(ipam)?))
    }
}

fn data_dir(ipam: Keys<'_>) -> Result<PathBuf, Error> {
    let data_dir = PathBuf::from(ipam.text("dataDir")?.unwrap_or(DEFAULT_DATA_DIR));
    if data_dir.is_absolute() {
        return Ok(data_dir);
    }
    Err(ipam.wrong("dataDir", "an absolute path"))
}

/// How long to wait for the store.
fn patience(ipam: Keys<'_>) -> Result<Duration, Error> {
    let given = ipam.seconds("lock_timeout_seconds")?;
    Ok(given.unwrap_or(DEFAULT_PATIENCE))
}

fn ipam(conf: &NetConf) -> Result<Keys<'_>, Error> {
    let top = Keys::new(conf.keys(), "");
    let map = top.object("ipam")?;
    map.map(|map| Keys::new(map, "ipam"))
        .ok_or_else(|| Error::config("ipam is missing from the network configuration"))
}

/// Sets from the runtime come first, then the single range, then the list.
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
        return Err(Error::config(
            "ipam has neither subnet nor ranges: no address to lease",
        ));
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

/// Before 0.3.0 a result has room for one address of each family.
fn refuse_two_of_a_family(sets: &[RangeSet], version: Version) -> Result<(), Error> {
    let ipv4 = sets
        .iter()
        .filter(|set| set.ranges()[0].subnet().addr().is_ipv4())
        .count();
    if ipv4 > 1 || sets.len() - ipv4 > 1 {
        return Err(Error::config(format!(
            "cniVersion {version} has room for one address per family, and ipam has {} range sets",
            sets.len()
        )));
    }
    Ok(())
}

/// Addresses that are asked for: `IP=` in `CNI_ARGS`, `args.cni.ips`, `runtimeConfig.ips`.
fn requested(conf: &NetConf, args: &CniArgs) -> Result<Vec<IpAddr>, Error> {
    let top = Keys::new(conf.keys(), "");
    let mut asked: Vec<(String, String)> = Vec::new();
    let from_args = args
        .get("IP")
        .unwrap_or_default()
        .split(',')
        .filter(|text| !text.is_empty());
    asked.extend(from_args.map(|text| ("IP in CNI_ARGS".to_owned(), text.to_owned())));
    if let Some(args) = top.object("args")?
        && let Some(of_cni) = Keys::new(args, "args").object("cni")?
    {
        let texts = Keys::new(of_cni, "args.cni").texts("ips")?;
        asked.extend(
            texts
                .into_iter()
                .map(|text| ("args.cni.ips".to_owned(), text)),
        );
    }
    if let Some(runtime) = top.object("runtimeConfig")? {
        let texts = Keys::new(runtime, "runtimeConfig").texts("ips")?;
        asked.extend(
            texts
                .into_iter()
                .map(|text| ("runtimeConfig.ips".to_owned(), text)),
        );
    }
    let mut addresses: Vec<IpAddr> = Vec::new();
    for (origin, text) in asked {
        // With or without the length of the subnet's prefix.
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
