//! Host ports: elements of nft maps, recorded with the attachment.

use std::net::IpAddr;

use attachment::addresses_in;
use attachment::link::host_name;
use cni::{Attachment, Error, Verb, code};
use ipnet::IpNet;
use net::{PROTO_HEADCNI, RouteKind, Socket};
use ruleset::host_ports::{self, HostPort, HostPortError, Protocol};

use super::apply::kernel_error;
use super::firewall::exempt_cidrs_of;
use crate::datapath::NativeStep;

impl NativeStep<'_> {
    /// Opens the host ports of a pod. They are not open on addresses in `exempt`.
    pub(super) fn open_ports(
        &self,
        socket: &Socket,
        ports: &[HostPort],
        exempt: &[IpNet],
    ) -> Result<(), Error> {
        if ports.is_empty() {
            return Ok(());
        }
        host_ports::add(socket, ports).map_err(host_port_error)?;
        self.delete_udp_flows(socket, ports, exempt);
        Ok(())
    }

    /// Closes the host ports of an attachment, unless another pod has its address by now. The caller
    /// drops the socket.
    pub(super) fn close_ports(&self, of: &Attachment) -> Result<Option<Socket>, Error> {
        let mappings = &self.conf.port_mappings;
        if mappings.is_empty() {
            return Ok(None);
        }
        let addresses = match &self.prev_result {
            Some(result) => addresses_in(result, &of.ifname),
            // Without a result, the routes of the link have the addresses.
            None => addresses_by_link(of)?,
        };
        let mut ports = mappings.host_ports(&addresses);
        if ports.is_empty() {
            return Ok(None);
        }
        self.log.step("ports", Verb::Del, || {
            let others = addresses_of_others(of)?;
            ports.retain(|port| !others.contains(&port.pod));
            let socket = Socket::netfilter().map_err(kernel_error)?;
            host_ports::remove(&socket, &ports).map_err(kernel_error)?;
            let exempt = exempt_cidrs_of(self.conf, self.prev_result.as_ref());
            self.delete_udp_flows(&socket, &ports, &exempt);
            Ok(Some(socket))
        })
    }

    /// An established UDP flow would keep its old destination.
    fn delete_udp_flows(&self, socket: &Socket, ports: &[HostPort], exempt: &[IpNet]) {
        if !ports.iter().any(|port| port.protocol == Protocol::Udp) {
            return;
        }
        let deleted = local_addresses(exempt).and_then(|local| {
            host_ports::delete_udp_flows(socket, ports, &local).map_err(kernel_error)
        });
        if let Err(error) = deleted {
            self.log.warn(format!(
                "old UDP flows may keep their destination: {}",
                error.msg
            ));
        }
    }
}

/// The addresses that are routed to the link of an attachment.
fn addresses_by_link(of: &Attachment) -> Result<Vec<IpAddr>, Error> {
    let socket = Socket::route().map_err(kernel_error)?;
    let Some(link) =
        net::link(&socket, &host_name(&of.container, &of.ifname)).map_err(kernel_error)?
    else {
        return Ok(Vec::new());
    };
    let routes = net::routes(&socket).map_err(kernel_error)?;
    let by_link = routes.iter().filter(|route| leads_by(route, link.index));
    Ok(by_link.map(|route| route.dst.addr()).collect())
}

/// Closes host ports without a pod. An ADD opens ports after it has added the route, so that ports
/// of a pod that is being attached stay.
pub(super) fn remove_orphans() -> Result<(), Error> {
    let filter = Socket::netfilter().map_err(kernel_error)?;
    let mut ports = match host_ports::list(&filter) {
        Err(HostPortError::NoTable) => return Ok(()),
        ports => ports.map_err(host_port_error)?,
    };
    if ports.is_empty() {
        return Ok(());
    }
    let routes = net::routes(&Socket::route().map_err(kernel_error)?).map_err(kernel_error)?;
    let leads_to = |pod: IpAddr| {
        routes
            .iter()
            .any(|route| route.protocol == PROTO_HEADCNI && route.dst == pod.into())
    };
    ports.retain(|port| !leads_to(port.pod));
    host_ports::remove(&filter, &ports).map_err(kernel_error)
}

fn leads_by(route: &net::Route, wanted: u32) -> bool {
    let is_by_link = matches!(route.kind, RouteKind::Via { link, .. } if link == wanted);
    route.protocol == PROTO_HEADCNI && is_by_link
}

/// The addresses of other pods: after a late DEL, another pod may have the address.
fn addresses_of_others(of: &Attachment) -> Result<Vec<IpAddr>, Error> {
    let socket = Socket::route().map_err(kernel_error)?;
    let own = net::link(&socket, &host_name(&of.container, &of.ifname)).map_err(kernel_error)?;
    let is_own = |route: &net::Route| own.as_ref().is_some_and(|link| leads_by(route, link.index));
    let routes = net::routes(&socket).map_err(kernel_error)?;
    let others = routes
        .iter()
        .filter(|route| route.protocol == PROTO_HEADCNI && !is_own(route));
    Ok(others.map(|route| route.dst.addr()).collect())
}

/// The addresses of the node on which a host port without `hostIP` is open.
fn local_addresses(exempt: &[IpNet]) -> Result<Vec<IpAddr>, Error> {
    let socket = Socket::route().map_err(kernel_error)?;
    let addresses = net::addresses(&socket).map_err(kernel_error)?;
    let addresses = addresses.iter().map(|found| found.net.addr());
    let is_link_local = |address: &IpAddr| matches!(address, IpAddr::V4(ip) if ip.is_link_local());
    let is_reached = |address: &IpAddr| {
        !address.is_loopback()
            && !is_link_local(address)
            && !exempt.iter().any(|network| network.contains(address))
    };
    Ok(addresses.filter(is_reached).collect())
}

#[expect(clippy::needless_pass_by_value, reason = "for map_err")]
fn host_port_error(error: HostPortError) -> Error {
    let code = match &error {
        // The pod that has it may be terminating.
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
