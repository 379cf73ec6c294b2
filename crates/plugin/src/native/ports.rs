//! hostPorts: elements of maps in the kernel, kept on record with the attachment.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use cni::{Attachment, Error, Verb, code};
use ipnet::IpNet;
use net::{PROTO_HEADCNI, RouteKind, Socket};
use ruleset::host_ports::{self, HostPort, HostPortError, Protocol};
use state::link::host_name;
use state::{Ports, addresses_in};

use super::Native;
use super::firewall::networks_of;
use super::kernel::refused;

/// An address of each family, for asking whether there is anything to do at all.
const EITHER_FAMILY: [IpAddr; 2] = [
    IpAddr::V4(Ipv4Addr::UNSPECIFIED),
    IpAddr::V6(Ipv6Addr::UNSPECIFIED),
];

impl Native<'_> {
    /// Publishes a pod's ports.
    ///
    /// Where they don't apply, in these networks, nothing changes.
    pub(super) fn open_ports(
        &self,
        socket: &Socket,
        ports: &[HostPort],
        excluded: &[IpNet],
    ) -> Result<(), Error> {
        if ports.is_empty() {
            return Ok(());
        }
        host_ports::add(socket, ports).map_err(not_published)?;
        self.forget_flows(socket, ports, excluded);
        Ok(())
    }

    /// Takes back the ports of an attachment, as far as they are still its own. The socket that it
    /// took, if it did, is for the caller to close.
    pub(super) fn close_ports(&self, of: &Attachment) -> Result<Option<Socket>, Error> {
        let asked = Ports::for_cleaning(self.call.conf.keys());
        if asked.on(&EITHER_FAMILY).is_empty() {
            return Ok(None);
        }
        let result = self.call.conf.prev_result().ok().flatten();
        let addresses = match &result {
            Some(result) => addresses_in(result, &of.ifname),
            // The record is lost: the link still knows.
            None => addresses_by_link(of)?,
        };
        let mut ports = asked.on(&addresses);
        if ports.is_empty() {
            return Ok(None);
        }
        self.log.step("ports", Verb::Del, || {
            let others = addresses_of_others(of)?;
            ports.retain(|port| !others.contains(&port.pod));
            let socket = Socket::netfilter().map_err(refused)?;
            host_ports::remove(&socket, &ports).map_err(refused)?;
            self.forget_flows(
                &socket,
                &ports,
                &networks_of(self.keys(), &result.unwrap_or_default()),
            );
            Ok(Some(socket))
        })
    }

    /// A UDP flow that the kernel remembers would go on to where it went before.
    fn forget_flows(&self, socket: &Socket, ports: &[HostPort], excluded: &[IpNet]) {
        if !ports.iter().any(|port| port.protocol == Protocol::Udp) {
            return;
        }
        let forgotten = local_addresses(excluded)
            .and_then(|local| host_ports::delete_udp_flows(socket, ports, &local).map_err(refused));
        if let Err(error) = forgotten {
            self.log
                .warn(format!("old UDP flows may go on: {}", error.msg));
        }
    }
}

/// The addresses that lead to an attachment by its link.
fn addresses_by_link(of: &Attachment) -> Result<Vec<IpAddr>, Error> {
    let socket = Socket::route().map_err(refused)?;
    let Some(link) = net::link(&socket, &host_name(&of.container, &of.ifname)).map_err(refused)?
    else {
        return Ok(Vec::new());
    };
    let routes = net::routes(&socket).map_err(refused)?;
    let by_link = routes.iter().filter(|route| leads_by(route, link.index));
    Ok(by_link.map(|route| route.dst.addr()).collect())
}

/// Takes back the ports that lead to no pod: whoever had them is gone, and nothing of it is on
/// record. A pod's ports come after its route, so this harms none that is being made.
pub(super) fn collect() -> Result<(), Error> {
    let filter = Socket::netfilter().map_err(refused)?;
    let mut ports = match host_ports::list(&filter) {
        Err(HostPortError::NoTable) => return Ok(()),
        ports => ports.map_err(not_published)?,
    };
    if ports.is_empty() {
        return Ok(());
    }
    let routes = net::routes(&Socket::route().map_err(refused)?).map_err(refused)?;
    let leads_to = |pod: IpAddr| {
        routes
            .iter()
            .any(|route| route.protocol == PROTO_HEADCNI && route.dst == pod.into())
    };
    ports.retain(|port| !leads_to(port.pod));
    host_ports::remove(&filter, &ports).map_err(refused)
}

fn leads_by(route: &net::Route, wanted: u32) -> bool {
    let is_by_link = matches!(route.kind, RouteKind::Via { link, .. } if link == wanted);
    route.protocol == PROTO_HEADCNI && is_by_link
}

/// The addresses that lead to other pods by now: a late DEL is of a pod that had them before.
fn addresses_of_others(of: &Attachment) -> Result<Vec<IpAddr>, Error> {
    let socket = Socket::route().map_err(refused)?;
    let own = net::link(&socket, &host_name(&of.container, &of.ifname)).map_err(refused)?;
    let is_own = |route: &net::Route| own.as_ref().is_some_and(|link| leads_by(route, link.index));
    let routes = net::routes(&socket).map_err(refused)?;
    let others = routes
        .iter()
        .filter(|route| route.protocol == PROTO_HEADCNI && !is_own(route));
    Ok(others.map(|route| route.dst.addr()).collect())
}

/// The node's addresses that a hostPort of all addresses is reached by.
fn local_addresses(excluded: &[IpNet]) -> Result<Vec<IpAddr>, Error> {
    let socket = Socket::route().map_err(refused)?;
    let addresses = net::addresses(&socket).map_err(refused)?;
    let addresses = addresses.iter().map(|found| found.net.addr());
    let is_link_local = |address: &IpAddr| matches!(address, IpAddr::V4(ip) if ip.is_link_local());
    let is_reached = |address: &IpAddr| {
        !address.is_loopback()
            && !is_link_local(address)
            && !excluded.iter().any(|network| network.contains(address))
    };
    Ok(addresses.filter(is_reached).collect())
}

#[expect(clippy::needless_pass_by_value, reason = "it is for map_err")]
fn not_published(error: HostPortError) -> Error {
    let code = match &error {
        // The pod that has it may be on its way out.
        HostPortError::Taken { .. } | HostPortError::NoTable => code::TRY_AGAIN_LATER,
        HostPortError::MixedFamilies { .. } => code::INVALID_CONFIG,
        HostPortError::Net(_) => code::IO_FAILURE,
    };
    let error = Error::caused(code, &error);
    Error {
        msg: format!("hostPort: {}", error.msg),
        ..error
    }
}
