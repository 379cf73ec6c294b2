//! CHECK: compares the result of an ADD with the kernel.
//!
//! Additions by others are ignored; missing or changed parts are reported by name.

use std::net::IpAddr;

use cni::{Attachment, Error, Interface, IpConfig, NetResult, code};
use ipnet::IpNet;
use net::{Link, Mac, Neighbour, NetError, Netns, RouteKind, Socket, TABLE_MAIN, VisitError};
use ruleset::host_ports::{self, HostPort};

use super::apply::{kernel_error, visit_error};
use crate::datapath::NativeStep;

fn mismatch(what: impl Into<String>) -> Error {
    Error::new(code::NOT_AS_STATED, what)
}

impl NativeStep<'_> {
    /// Fails unless the attachment is as its ADD left it.
    pub(crate) fn check(&self, of: &Attachment) -> Result<(), Error> {
        let stated = self.prev_result.clone().unwrap_or_default();
        let expected = Expected::new(&stated, of)?;
        self.check_lease(of)?;
        let Some(path) = of.netns.as_deref() else {
            return Err(Error::variable("CNI_NETNS", "is missing"));
        };
        let attempt = format!("inspect CNI_NETNS {path}");
        let host = Netns::current().map_err(|error| Error::io(&attempt, &error))?;
        let pod = Netns::open(path).map_err(|error| Error::io(&attempt, &error))?;
        let visit_error = |error: VisitError| visit_error(of, &error);
        let pod_link = pod
            .visit(&host, || expected.check_pod())
            .map_err(visit_error)??;
        let host_link = expected.check_host(&pod_link)?;
        pod.visit(&host, || expected.check_gateways(&pod_link, &host_link))
            .map_err(visit_error)??;
        check_ruleset(&self.conf.port_mappings.host_ports(&expected.addresses()))
    }
}

struct Expected<'a> {
    host_name: String,
    host: Option<&'a Interface>,
    pod: &'a Interface,
    ips: Vec<&'a IpConfig>,
    routes: &'a [cni::Route],
}

impl<'a> Expected<'a> {
    fn new(stated: &'a NetResult, of: &Attachment) -> Result<Self, Error> {
        let name = of.ifname.as_str();
        let interfaces = stated.interfaces.iter().enumerate();
        let Some((index, pod)) = interfaces
            .filter(|(_, interface)| interface.is_sandboxed())
            .find(|(_, interface)| interface.name == name)
        else {
            return Err(Error::config(format!(
                "prevResult has no interface {name} in the container"
            )));
        };
        let host_name = attachment::link::host_name(&of.container, &of.ifname);
        let mut interfaces = stated.interfaces.iter();
        Ok(Self {
            host: interfaces.find(|interface| interface.name == host_name),
            host_name,
            pod,
            ips: stated
                .ips
                .iter()
                .filter(|ip| ip.interface == Some(index))
                .collect(),
            routes: &stated.routes,
        })
    }

    fn addresses(&self) -> Vec<IpAddr> {
        self.ips.iter().map(|ip| ip.address.addr()).collect()
    }

    /// Checks the host; `pod` is the link at the other end.
    fn check_host(&self, pod: &Link) -> Result<Link, Error> {
        let socket = Socket::route().map_err(kernel_error)?;
        let name = &self.host_name;
        let link = link_up(&socket, name, "on the host")?;
        if let Some(stated) = self.host {
            check_interface(&link, stated)?;
        }
        let routes = net::routes(&socket).map_err(kernel_error)?;
        let neighbours = net::permanent_neighbours(&socket).map_err(kernel_error)?;
        for address in self.addresses() {
            let has_route = routes.iter().any(|route| {
                let is_by_link =
                    matches!(route.kind, RouteKind::Via { link: by, .. } if by == link.index);
                route.dst == IpNet::from(address) && route.table == TABLE_MAIN && is_by_link
            });
            if !has_route {
                return Err(mismatch(format!(
                    "the host has no route to {address} via {name}"
                )));
            }
            check_neighbour(&neighbours, &link, address, pod.mac)
                .map_err(|what| mismatch(format!("the host {what}")))?;
        }
        Ok(link)
    }

    fn check_pod(&self) -> Result<Link, Error> {
        let socket = Socket::route().map_err(kernel_error)?;
        let name = &self.pod.name;
        let link = link_up(&socket, name, "in the container")?;
        check_interface(&link, self.pod)?;
        let found = net::addresses(&socket).map_err(kernel_error)?;
        for ip in &self.ips {
            let net = ip.address;
            if !found
                .iter()
                .any(|address| address.link == link.index && address.net == net)
            {
                return Err(mismatch(format!("{name} does not have the address {net}")));
            }
        }
        self.check_routes(&link, net::routes(&socket))?;
        Ok(link)
    }

    /// Checks the neighbour entries of the gateways; `host` is the link at the other end.
    fn check_gateways(&self, pod: &Link, host: &Link) -> Result<(), Error> {
        let socket = Socket::route().map_err(kernel_error)?;
        let neighbours = net::permanent_neighbours(&socket).map_err(kernel_error)?;
        for gateway in self.ips.iter().filter_map(|ip| ip.gateway) {
            check_neighbour(&neighbours, pod, gateway, host.mac)
                .map_err(|what| mismatch(format!("the container {what}")))?;
        }
        Ok(())
    }

    fn check_routes(
        &self,
        link: &Link,
        found: Result<Vec<net::Route>, NetError>,
    ) -> Result<(), Error> {
        let found = found.map_err(kernel_error)?;
        let is_our_gateway =
            |gateway: IpAddr| self.ips.iter().any(|ip| ip.gateway == Some(gateway));
        for stated in self.routes {
            let is_it = |route: &net::Route| {
                let RouteKind::Via { link: by, gateway } = route.kind else {
                    return false;
                };
                // Routes via another gateway belong to the interface of another plugin.
                let is_by_link = by == link.index || !stated.gw.is_some_and(is_our_gateway);
                route.dst == stated.dst.trunc()
                    && stated.table.is_none_or(|table| route.table == table)
                    && (stated.gw.is_none() || stated.gw == gateway)
                    && is_by_link
            };
            if !found.iter().any(is_it) {
                return Err(mismatch(format!(
                    "the container has no route to {}{} dev {}",
                    stated.dst,
                    stated.gw.map(|gw| format!(" via {gw}")).unwrap_or_default(),
                    link.name
                )));
            }
        }
        Ok(())
    }
}

/// Checks hardware address and MTU.
fn check_interface(link: &Link, stated: &Interface) -> Result<(), Error> {
    let name = &link.name;
    let mac = link.mac.map(|mac| mac.to_string()).unwrap_or_default();
    if let Some(stated) = &stated.mac
        && !mac.eq_ignore_ascii_case(stated)
    {
        return Err(mismatch(format!(
            "{name} has the hardware address {mac} and not {stated}"
        )));
    }
    match stated.mtu {
        Some(stated) if stated != link.mtu => Err(mismatch(format!(
            "{name} has the MTU {} and not {stated}",
            link.mtu
        ))),
        _ => Ok(()),
    }
}

/// Checks the permanent neighbour entry of an address.
fn check_neighbour(
    neighbours: &[Neighbour],
    link: &Link,
    address: IpAddr,
    mac: Option<Mac>,
) -> Result<(), String> {
    let known = neighbours
        .iter()
        .find(|known| known.link == link.index && known.address == address);
    match known {
        None => Err(format!(
            "has no permanent neighbour {address} dev {}",
            link.name
        )),
        Some(known) if Some(known.mac) != mac => Err(format!(
            "has the neighbour {address} dev {} with the wrong hardware address {}",
            link.name, known.mac
        )),
        Some(_) => Ok(()),
    }
}

fn link_up(socket: &Socket, name: &str, place: &str) -> Result<Link, Error> {
    let link = net::link(socket, name).map_err(kernel_error)?;
    let Some(link) = link else {
        return Err(mismatch(format!("there is no interface {name} {place}")));
    };
    if !link.is_up {
        return Err(mismatch(format!("the interface {name} {place} is down")));
    }
    Ok(link)
}

/// Checks the static ruleset and the host ports of the pod.
fn check_ruleset(ports: &[HostPort]) -> Result<(), Error> {
    let socket = Socket::netfilter().map_err(kernel_error)?;
    if !ruleset::missing(&socket).map_err(kernel_error)?.is_empty() {
        return Err(mismatch("the nftables ruleset of headcni is missing"));
    }
    if ports.is_empty() {
        return Ok(());
    }
    let published =
        host_ports::list(&socket).map_err(|error| Error::caused(code::IO_FAILURE, &error))?;
    match ports.iter().find(|port| !published.contains(port)) {
        None => Ok(()),
        Some(port) => Err(mismatch(format!("the {port} is not open"))),
    }
}
