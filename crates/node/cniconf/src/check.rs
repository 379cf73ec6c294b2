//! Parses the files with the plugins' own code before they are written.

use std::path::Path;

use api::SubnetEnv;
use cni::{CniArgs, Error, NetConf, NetworkName};
use ipnet::IpNet;
use serde_json::{Map, Value};

use super::document::Conflist;
use super::error::CniConfError;

/// The conflist and its text, if runtime and plugins accept it.
pub(super) fn conflist(
    document: &Conflist,
    local: &[IpNet],
) -> Result<(Value, String), CniConfError> {
    let misread = |trouble: String| CniConfError::Misread {
        document: "the CNI configuration",
        trouble,
    };
    let meant = serde_json::to_value(document).map_err(|error| misread(error.to_string()))?;
    let mut text =
        serde_json::to_string_pretty(document).map_err(|error| misread(error.to_string()))?;
    text.push('\n');
    let read: Value = serde_json::from_str(&text).map_err(|error| misread(error.to_string()))?;
    if read != meant {
        return Err(misread("its text is another document".to_owned()));
    }
    let ranges = ranges(&read).map_err(CniConfError::Refused)?;
    if !ranges.is_empty() && ranges != local {
        return Err(misread(format!(
            "its ranges are {ranges:?} and not {local:?}"
        )));
    }
    Ok((read, text))
}

/// The text of `subnet.env`, if the plugin accepts it.
pub(super) fn subnet_env(meant: &SubnetEnv, file: &Path) -> Result<String, CniConfError> {
    let text = meant.render();
    let misread = |trouble: String| CniConfError::Misread {
        document: "subnet.env",
        trouble,
    };
    match SubnetEnv::parse(&text, file) {
        Ok(read) if read == *meant => Ok(text),
        Ok(read) => Err(misread(format!("{read:?} and not {meant:?}"))),
        Err(error) => Err(misread(error.to_string())),
    }
}

/// Parses a conflist as libcni does; returns the ranges of the first plugin.
fn ranges(list: &Value) -> Result<Vec<IpNet>, Error> {
    let name = list["name"].as_str().unwrap_or_default();
    NetworkName::new(name)?;
    let named = list["cniVersions"].as_array().into_iter().flatten();
    let versions: Vec<&Value> = named.chain([&list["cniVersion"]]).collect();
    let plugins = list["plugins"]
        .as_array()
        .map(Vec::as_slice)
        .unwrap_or_default();
    if plugins.is_empty() {
        return Err(Error::config("the list has no plugins"));
    }
    let mut found = Vec::new();
    for (index, plugin) in plugins.iter().enumerate() {
        for version in &versions {
            let mut keys: Map<String, Value> = plugin.as_object().cloned().unwrap_or_default();
            if !keys.contains_key("type") {
                return Err(Error::config(format!("plugins[{index}] has no type")));
            }
            keys.insert("name".to_owned(), name.into());
            keys.insert("cniVersion".to_owned(), (*version).clone());
            let conf = NetConf::from_keys(keys)?;
            if index == 0 {
                found = leased(&conf)?;
            }
        }
    }
    Ok(found)
}

fn leased(conf: &NetConf) -> Result<Vec<IpNet>, Error> {
    let ipam = conf.keys().get("ipam");
    let has = |key: &str| ipam.is_some_and(|ipam| ipam.get(key).is_some());
    if !has("subnet") && !has("ranges") {
        return Ok(Vec::new());
    }
    let settings = ipam::IpamConf::parse(conf, &CniArgs::default())?;
    let sets = settings.sets.iter();
    Ok(sets
        .flat_map(|set| set.ranges().iter().map(ipam::Range::subnet))
        .collect())
}
