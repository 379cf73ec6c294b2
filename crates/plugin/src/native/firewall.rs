//! The rules that every pod needs and no pod changes.
//!
//! The daemon owns them. Where none runs, the first ADD after a boot installs them, and so does
//! the first one after somebody has wiped the ruleset.

use std::io;

use cni::{Attachment, Error, Keys, NetResult, code};
use ipnet::IpNet;
use net::nft::NftError;
use net::{Errno, NetError, Socket, sysctl};
use ruleset::{Sets, Table};
use state::{Ports, Record, addresses_in, link};

use super::kernel::{Novelty, refused};
use super::links;
use super::settings::{Settings, exempt};
use super::wiring::{PodAddress, Wiring};
use super::{Native, unavailable};

/// How often tables that are replaced while they are read are read again.
const MAX_TRIES: u32 = 5;

impl Native<'_> {
    /// Makes sure that the rules are there, and that they know this network. The socket is for
    /// whatever else is to be said to nftables.
    pub(super) fn ensure_ruleset(
        &self,
        settings: &Settings,
        wiring: &Wiring,
    ) -> Result<(Socket, Novelty), Error> {
        let socket = Socket::netfilter().map_err(refused)?;
        let networks = networks(&settings.exempt, &wiring.addresses);
        let mut novelty = Novelty::Known;
        let mut tries = 0;
        while !is_complete(&socket, &networks).map_err(refused)? {
            novelty = Novelty::First;
            self.install(&socket, &settings.guarded)?;
            match cover(&socket, &networks) {
                // A daemon has put another table in the place of the one that was being read.
                Err(error) if error.is(Errno::NOENT) && tries < MAX_TRIES => tries += 1,
                outcome => {
                    outcome.map_err(refused)?;
                    break;
                }
            }
        }
        if wiring.has_ipv6() {
            // Whoever installed the rules may have had no IPv6.
            forward_ipv6().map_err(|error| not_forwarding(&error))?;
        }
        Ok((socket, novelty))
    }

    fn install(&self, socket: &Socket, guarded: &[IpNet]) -> Result<(), Error> {
        let missing = ruleset::missing(socket).map_err(refused)?;
        if !missing.is_empty() {
            ruleset::install(&missing, guarded).map_err(|error| not_installed(&error))?;
            self.restore_all(socket);
        }
        // Not before: what is forwarded is guarded.
        set_unless("ipv4/ip_forward", "1").map_err(|error| not_forwarding(&error))
    }

    fn restore_all(&self, socket: &Socket) {
        state::for_each_settled(self.data_dir, |of, record| {
            if let Err(error) = self.restore(socket, of, record) {
                self.log.warn(format!(
                    "the rules for container {} could not be restored: {}",
                    of.container, error.msg
                ));
            }
        });
    }

    /// Puts back what the rules knew of a pod that was there before them.
    fn restore(&self, socket: &Socket, of: &Attachment, record: &Record) -> Result<(), Error> {
        let Some(result) = &record.result else {
            return Ok(());
        };
        // A pod lives as long as its link; a node that is itself a container restarts without a
        // new boot.
        if !links::is_there(&link::host_name(&of.container, &of.ifname)) {
            return Ok(());
        }
        let addresses = addresses_in(result, &of.ifname);
        for step in record.native_steps() {
            let keys = Keys::new(&step.config, "");
            let known = networks_of(keys, result);
            cover(socket, &known).map_err(refused)?;
            let ports = Ports::for_cleaning(&step.config).on(&addresses);
            self.open_ports(socket, &ports, &known)?;
        }
        Ok(())
    }

    /// Fails if the rules are not there and can't be installed either.
    pub(super) fn check_ruleset_can_be() -> Result<(), Error> {
        let socket = Socket::netfilter().map_err(|error| unavailable(error.to_string()))?;
        let missing = ruleset::missing(&socket).map_err(|error| unavailable(refused(error).msg))?;
        if missing.is_empty() || net::nft::is_installed() {
            return Ok(());
        }
        Err(unavailable(NftError::NotInstalled.to_string()))
    }
}

/// What is never masqueraded, and where hostPorts don't apply: pods, services, gateways.
pub(super) fn networks(exempt: &[IpNet], addresses: &[PodAddress]) -> Vec<IpNet> {
    let mut networks = exempt.to_vec();
    let subnets = addresses.iter().map(|address| address.net.trunc());
    let gateways = addresses.iter().filter_map(|address| address.gateway);
    for network in subnets.chain(gateways.map(IpNet::from)) {
        if !networks.iter().any(|covered| covered.contains(&network)) {
            networks.push(network);
        }
    }
    networks
}

/// As [`networks`], of a pod that has been there for a while.
pub(super) fn networks_of(conf: Keys<'_>, result: &NetResult) -> Vec<IpNet> {
    // It was right when the pod was made; what can't be read now is not worth failing for.
    let exempt = exempt(conf).unwrap_or_default();
    let addresses: Vec<PodAddress> = result.ips.iter().map(PodAddress::from).collect();
    networks(&exempt, &addresses)
}

/// Makes these networks known to both tables.
fn cover(socket: &Socket, networks: &[IpNet]) -> Result<(), NetError> {
    // In this order: what is in the second set is in the first one, too.
    ruleset::ensure_covered(socket, Sets::Excluded, networks)?;
    ruleset::ensure_covered(socket, Sets::Cluster, networks)
}

/// Whether both tables are there and know these networks.
fn is_complete(socket: &Socket, networks: &[IpNet]) -> Result<bool, NetError> {
    match ruleset::covers(socket, Sets::Cluster, networks) {
        Ok(true) => Ok(ruleset::installed(socket, Table::Ports)?.is_some()),
        Ok(false) => Ok(false),
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
    if sysctl::get("ipv6/conf/all/forwarding")?.as_deref() != Some("1") {
        keep_router_advertisements()?;
        sysctl::set("ipv6/conf/all/forwarding", "1")?;
    }
    Ok(())
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
        if !link.starts_with("hc") && sysctl::get(&name)?.as_deref() == Some("1") {
            sysctl::set(&name, "2")?;
        }
    }
    Ok(())
}
