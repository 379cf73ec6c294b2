//! The static nft ruleset.
//!
//! The daemon owns it. Without a daemon, the first ADD after a boot, or after the ruleset was
//! flushed, installs it.

use std::io;

use attachment::{NativeConf, Record, addresses_in, for_each_unlocked, link};
use cni::{Attachment, Error, NetResult, code};
use ipnet::IpNet;
use net::nft::NftError;
use net::{Errno, NetError, Socket, sysctl};
use ruleset::{Sets, Table};

use super::apply::{RulesetChange, kernel_error};
use super::plan::{PodAddress, PodNetwork};
use super::{links, unavailable};
use crate::datapath::NativeStep;

/// Retries when the daemon replaces a table while it is read.
const MAX_TRIES: u32 = 5;

impl NativeStep<'_> {
    /// Ensures that the ruleset is installed and that its sets have the CIDRs of this network.
    /// Returns the socket for further use.
    pub(super) fn ensure_ruleset(
        &self,
        network: &PodNetwork,
    ) -> Result<(Socket, RulesetChange), Error> {
        let socket = Socket::netfilter().map_err(kernel_error)?;
        let cidrs = exempt_cidrs(self.conf, &network.addresses);
        let mut change = RulesetChange::Unchanged;
        let mut tries = 0;
        while !is_complete(&socket, &cidrs).map_err(kernel_error)? {
            change = RulesetChange::Changed;
            self.install_ruleset(&socket)?;
            match add_to_sets(&socket, &cidrs) {
                // The daemon has replaced the table meanwhile.
                Err(error) if error.is(Errno::NOENT) && tries < MAX_TRIES => tries += 1,
                outcome => {
                    outcome.map_err(kernel_error)?;
                    break;
                }
            }
        }
        if network.has_ipv6() {
            // The ruleset may have been installed for an IPv4 network.
            forward_ipv6().map_err(|error| forwarding_error(&error))?;
        }
        Ok((socket, change))
    }

    fn install_ruleset(&self, socket: &Socket) -> Result<(), Error> {
        let guarded: &[IpNet] = if self.conf.guard_pod_cidr {
            &self.conf.pod_cidrs
        } else {
            &[]
        };
        let missing = ruleset::missing(socket).map_err(kernel_error)?;
        if !missing.is_empty() {
            ruleset::install(&missing, guarded).map_err(|error| install_error(&error))?;
            self.restore_all(socket);
        }
        // After the ruleset, so that nothing is forwarded unfiltered.
        set_sysctl("ipv4/ip_forward", "1").map_err(|error| forwarding_error(&error))
    }

    fn restore_all(&self, socket: &Socket) {
        for_each_unlocked(self.data_dir, |of, record| {
            if let Err(error) = self.restore(socket, of, record) {
                self.log.warn(format!(
                    "failed to restore the nft elements of container {}: {}",
                    of.container, error.msg
                ));
            }
        });
    }

    /// Adds the elements of a pod that is older than the ruleset.
    fn restore(&self, socket: &Socket, of: &Attachment, record: &Record) -> Result<(), Error> {
        let Some(result) = &record.result else {
            return Ok(());
        };
        // A node that is itself a container restarts with the same boot id, so that the record may
        // be of a pod that is gone.
        if !links::exists(&link::host_name(&of.container, &of.ifname)) {
            return Ok(());
        }
        let addresses = addresses_in(result, &of.ifname);
        for conf in record.native_confs() {
            let cidrs = exempt_cidrs_of(conf, Some(result));
            add_to_sets(socket, &cidrs).map_err(kernel_error)?;
            let ports = conf.port_mappings.host_ports(&addresses);
            self.open_ports(socket, &ports, &cidrs)?;
        }
        Ok(())
    }
}

/// Fails if the ruleset is neither installed nor installable.
pub(super) fn check_installable() -> Result<(), Error> {
    let socket = Socket::netfilter().map_err(|error| unavailable(error.to_string()))?;
    let missing =
        ruleset::missing(&socket).map_err(|error| unavailable(kernel_error(error).msg))?;
    if missing.is_empty() || net::nft::is_installed() {
        return Ok(());
    }
    Err(unavailable(NftError::NotInstalled.to_string()))
}

/// Pod CIDRs, service CIDRs and gateways: never masqueraded, and without host ports.
pub(super) fn exempt_cidrs(conf: &NativeConf, addresses: &[PodAddress]) -> Vec<IpNet> {
    let mut networks = conf.exempt_cidrs();
    let subnets = addresses.iter().map(|address| address.net.trunc());
    let gateways = addresses.iter().filter_map(|address| address.gateway);
    for network in subnets.chain(gateways.map(IpNet::from)) {
        if !networks.iter().any(|covered| covered.contains(&network)) {
            networks.push(network);
        }
    }
    networks
}

/// As [`exempt_cidrs`], from the result of an ADD.
pub(super) fn exempt_cidrs_of(conf: &NativeConf, result: Option<&NetResult>) -> Vec<IpNet> {
    let ips = result.into_iter().flat_map(|result| &result.ips);
    let addresses: Vec<PodAddress> = ips.map(PodAddress::from).collect();
    exempt_cidrs(conf, &addresses)
}

/// Adds CIDRs to the sets of both tables.
fn add_to_sets(socket: &Socket, networks: &[IpNet]) -> Result<(), NetError> {
    // In this order: `is_complete` only checks the second set.
    ruleset::ensure_covered(socket, Sets::Excluded, networks)?;
    ruleset::ensure_covered(socket, Sets::Cluster, networks)
}

/// Whether both tables are installed and have these CIDRs.
fn is_complete(socket: &Socket, networks: &[IpNet]) -> Result<bool, NetError> {
    match ruleset::covers(socket, Sets::Cluster, networks) {
        Ok(true) => Ok(ruleset::installed(socket, Table::Ports)?.is_some()),
        Ok(false) => Ok(false),
        Err(error) if error.is(Errno::NOENT) => Ok(false),
        Err(error) => Err(error),
    }
}

fn forwarding_error(error: &io::Error) -> Error {
    Error::io("enable IP forwarding", error)
}

fn install_error(error: &NftError) -> Error {
    let code = match error {
        NftError::NotInstalled => code::INVALID_CONFIG,
        _ => code::IO_FAILURE,
    };
    Error::caused(code, error)
}

fn forward_ipv6() -> io::Result<()> {
    if sysctl::get("ipv6/conf/all/forwarding")?.as_deref() != Some("1") {
        keep_router_advertisements()?;
        sysctl::set("ipv6/conf/all/forwarding", "1")?;
    }
    Ok(())
}

fn set_sysctl(name: &str, value: &str) -> io::Result<()> {
    if sysctl::get(name)?.as_deref() != Some(value) {
        sysctl::set(name, value)?;
    }
    Ok(())
}

/// A forwarding node ignores router advertisements unless `accept_ra` is 2, and would lose a default
/// route that it got from a router.
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
