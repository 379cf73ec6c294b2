//! What a completed configuration and `CNI_ARGS` ask of the native datapath.
//!
//! Pure: everything is parsed and judged here, before anything is made in the kernel.

mod limits;

use std::net::IpAddr;
use std::path::PathBuf;

use cni::{CniArgs, Error, Keys};
use ipnet::IpNet;
use net::{Mac, TokenBucket};
use ruleset::host_ports::HostPort;
use serde_json::Map;
use state::Ports;

use super::conf::networks::{Named, named_ranges, networks};

/// What the datapath is to be like.
#[derive(Debug)]
pub(crate) struct Settings {
    pub(crate) mtu_bytes: u32,
    /// The hardware address that was asked for.
    pub(crate) mac: Option<Mac>,
    pub(crate) ports: Ports,
    pub(crate) to_pod: Option<TokenBucket>,
    pub(crate) from_pod: Option<TokenBucket>,
    /// Networks of pods and services: what goes there is never masqueraded.
    pub(crate) exempt: Vec<IpNet>,
    /// Networks of pods that nothing is sent to in clear, from the moment that there are rules.
    pub(crate) guarded: Vec<IpNet>,
    /// Whether IPv6 is wanted, if that is said.
    pub(crate) allows_ipv6: Option<bool>,
    pub(crate) is_status_strict: bool,
    /// Where tailscaled listens, if that is said.
    pub(crate) tailscale_socket: Option<PathBuf>,
    /// What a person should know, for the log.
    pub(crate) notes: Vec<String>,
}

impl Settings {
    /// Reads the completed configuration of a native step.
    pub(crate) fn parse(keys: Keys<'_>, args: &CniArgs) -> Result<Self, Error> {
        let mtu_bytes = keys
            .mtu("mtu")?
            .ok_or_else(|| Error::config(format!("{} is missing: add it", keys.name("mtu"))))?;
        let limits = limits::parse(keys, mtu_bytes)?;
        Ok(Self {
            mtu_bytes,
            mac: mac(keys, args)?,
            ports: Ports::parse(keys)?,
            to_pod: limits.to_pod,
            from_pod: limits.from_pod,
            exempt: exempt(keys)?,
            guarded: match keys.flag("guard_pod_cidr")? {
                Some(true) => pods(keys)?,
                _ => Vec::new(),
            },
            allows_ipv6: keys.flag("enable_ipv6")?,
            is_status_strict: keys.flag("status_strict")?.unwrap_or(false),
            tailscale_socket: keys
                .text("tailscale_socket")?
                .filter(|path| !path.is_empty())
                .map(PathBuf::from),
            notes: notes(keys)?,
        })
    }

    /// As [`Ports::on`].
    pub(crate) fn host_ports(&self, pod_addresses: &[IpAddr]) -> Vec<HostPort> {
        self.ports.on(pod_addresses)
    }
}

/// Networks of pods and services.
pub(crate) fn exempt(keys: Keys<'_>) -> Result<Vec<IpNet>, Error> {
    let mut exempt = pods(keys)?;
    exempt.extend(nets(&networks(keys, "service_cidr")?));
    Ok(exempt)
}

fn nets(named: &[Named]) -> Vec<IpNet> {
    named.iter().map(|named| named.net).collect()
}

/// The pods' networks, or where none is named what this node's pods are leased from.
fn pods(keys: Keys<'_>) -> Result<Vec<IpNet>, Error> {
    let said = networks(keys, "pod_cidr")?;
    if !said.is_empty() {
        return Ok(nets(&said));
    }
    let none = Map::new();
    let ipam = keys.object("ipam")?.unwrap_or(&none);
    let runtime = keys.object("runtimeConfig")?.unwrap_or(&none);
    Ok(nets(&named_ranges(ipam, &keys.name("ipam"), runtime)?))
}

/// The hardware address that is asked for: all who ask must ask for the same.
fn mac(keys: Keys<'_>, args: &CniArgs) -> Result<Option<Mac>, Error> {
    let runtime_path = keys.name("runtimeConfig");
    let runtime = keys.object("runtimeConfig")?;
    let runtime = runtime.map(|map| Keys::new(map, &runtime_path));
    let args_path = keys.name("args");
    let cni_path = format!("{args_path}.cni");
    let of_cni = match keys.object("args")? {
        Some(map) => Keys::new(map, &args_path).object("cni")?,
        None => None,
    };
    let of_cni = of_cni.map(|map| Keys::new(map, &cni_path));

    let mut asked: Vec<(String, &str)> = Vec::new();
    for place in [runtime, of_cni].into_iter().flatten() {
        asked.extend(place.text("mac")?.map(|text| (place.name("mac"), text)));
    }
    asked.extend(
        args.get("MAC")
            .map(|text| ("MAC in CNI_ARGS".to_owned(), text)),
    );

    let mut agreed: Option<(Mac, String)> = None;
    for (origin, text) in asked.into_iter().filter(|(_, text)| !text.is_empty()) {
        let mac: Mac = text
            .parse()
            .map_err(|error| Error::config(format!("{origin}: {error}")))?;
        match &agreed {
            Some((other, place)) if *other != mac => {
                return Err(Error::config(format!(
                    "{place} {other} contradicts {origin} {mac}: remove one of them"
                )));
            }
            Some(_) => {}
            None => agreed = Some((mac, origin)),
        }
    }
    Ok(agreed.map(|(mac, _)| mac))
}

fn notes(keys: Keys<'_>) -> Result<Vec<String>, Error> {
    let mut notes = Vec::new();
    if keys.flag("enable_network_policy")? == Some(true) {
        notes.push(format!(
            "{} is true, and NetworkPolicy is not enforced by this version: every pod can be \
             reached by every other one, whatever {} says",
            keys.name("enable_network_policy"),
            keys.name("policy_fail_mode"),
        ));
    }
    Ok(notes)
}

#[cfg(test)]
mod tests;
