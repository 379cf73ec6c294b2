//! The rules that every pod needs and no pod changes.
//!
//! The daemon owns them. Where none runs, the first ADD after a boot installs them, and so does
//! the first one after somebody has wiped the ruleset.

use std::io;

use cni::{Error, code};
use ipnet::IpNet;
use net::nft::NftError;
use net::ruleset::{self, Sets, Table};
use net::{Errno, NetError, Socket, sysctl};

use super::kernel::refused;
use super::settings::Settings;
use super::wiring::Wiring;
use super::{Native, unavailable};

impl Native<'_> {
    /// Makes sure that the rules are there, and that they know this network. The socket is for
    /// whatever else is to be said to nftables.
    pub(super) fn ensure_ruleset(
        &self,
        settings: &Settings,
        wiring: &Wiring,
    ) -> Result<Socket, Error> {
        let socket = Socket::netfilter().map_err(refused)?;
        if !is_complete(&socket, &settings.exempt).map_err(refused)? {
            self.install(&socket)?;
            ruleset::ensure_covered(&socket, Sets::Cluster, &settings.exempt).map_err(refused)?;
        }
        if !settings.ports.is_empty() {
            let mut excluded = settings.exempt.clone();
            excluded.extend(wiring.gateways().map(IpNet::from));
            ruleset::ensure_covered(&socket, Sets::Excluded, &excluded).map_err(refused)?;
        }
        if wiring.has_ipv6() {
            // Whoever installed the rules may have had no IPv6.
            forward_ipv6().map_err(|error| not_forwarding(&error))?;
        }
        Ok(socket)
    }

    fn install(&self, socket: &Socket) -> Result<(), Error> {
        set_unless("ipv4/ip_forward", "1").map_err(|error| not_forwarding(&error))?;
        let missing = ruleset::missing(socket).map_err(refused)?;
        ruleset::install(&missing).map_err(|error| not_installed(&error))?;
        if missing.contains(&Table::Ports) {
            self.reopen_ports(socket);
        }
        Ok(())
    }

    /// Fails if the rules are not there and can't be installed either.
    pub(super) fn check_ruleset_can_be(&self) -> Result<(), Error> {
        let socket = Socket::netfilter().map_err(|error| unavailable(error.to_string()))?;
        let missing = ruleset::missing(&socket).map_err(|error| unavailable(refused(error).msg))?;
        if missing.is_empty() || net::nft::is_installed() {
            return Ok(());
        }
        Err(unavailable(NftError::NotInstalled.to_string()))
    }
}

/// Whether both tables are there, with these networks in the set of those that are never
/// masqueraded.
fn is_complete(socket: &Socket, exempt: &[IpNet]) -> Result<bool, NetError> {
    if exempt.is_empty() {
        return Ok(ruleset::missing(socket)?.is_empty());
    }
    // Covering them shows whether the table is there.
    match ruleset::ensure_covered(socket, Sets::Cluster, exempt) {
        Ok(()) => Ok(ruleset::installed(socket, Table::Ports)?.is_some()),
        Err(error) if error.is(Errno::NOENT) => Ok(false),
        Err(error) => Err(error),
    }
}

fn not_forwarding(error: &io::Error) -> Error {
    Error::io("let the node forward packets", error)
}

fn not_installed(error: &NftError) -> Error {
    let code = match error {
        NftError::NotInstalled => code::INVALID_CONFIG,
        _ => code::IO_FAILURE,
    };
    Error::caused(code, error)
}

/// Lets the node forward IPv6 packets.
fn forward_ipv6() -> io::Result<()> {
    if sysctl::get("ipv6/conf/all/forwarding")? != one() {
        keep_router_advertisements()?;
        sysctl::set("ipv6/conf/all/forwarding", "1")?;
    }
    Ok(())
}

fn one() -> Option<String> {
    Some("1".to_owned())
}

fn set_unless(name: &str, value: &str) -> io::Result<()> {
    if sysctl::get(name)?.as_deref() != Some(value) {
        sysctl::set(name, value)?;
    }
    Ok(())
}

/// A node that forwards doesn't listen to routers unless it is told to (`accept_ra` 2): one whose
/// own default route comes from a router would lose it.
fn keep_router_advertisements() -> io::Result<()> {
    for entry in std::fs::read_dir("/proc/sys/net/ipv6/conf")? {
        let link = entry?.file_name();
        let Some(link) = link
            .to_str()
            .filter(|link| !["all", "default", "lo"].contains(link))
        else {
            continue;
        };
        let name = format!("ipv6/conf/{link}/accept_ra");
        if !link.starts_with("hc") && sysctl::get(&name)? == one() {
            sysctl::set(&name, "2")?;
        }
    }
    Ok(())
}
