//! CHECK: compares what an ADD said with what the kernel has.
//!
//! What others have added since is their business; what is missing or changed is told by name.

use std::net::IpAddr;

use cni::{Attachment, Error, Interface, IpConfig, NetResult, code};
use ipnet::IpNet;
use net::{Link, Mac, Neighbour, NetError, Netns, RouteKind, Socket, TABLE_MAIN, VisitError};
use ruleset::host_ports::{self, HostPort};

use super::Native;
use super::kernel::{not_visited, refused};
use super::settings::Settings;

/// What is wrong with an attachment.
fn broken(what: impl Into<String>) -> Error {
    Error::new(code::NOT_AS_STATED, what)
}

impl Native<'_> {
    /// Fails unless the attachment is as its ADD left it.
    pub(crate) fn check(&self, of: &Attachment) -> Result<(), Error> {
        let settings = Settings::parse(self.keys(), &of.args)?;
        let stated = self.call.conf.prev_result()?.unwrap_or_default();
        let claim = Claim::new(&stated, of)?;
        self.check_lease(of)?;
        let Some(path) = of.netns.as_deref() else {
            return Err(Error::variable("CNI_NETNS", "is missing"));
        };
        let attempt = format!("look into CNI_NETNS {path}");
        let home = Netns::current().map_err(|error| Error::io(&attempt, &error))?;
        let pod = Netns::open(path).map_err(|error| Error::io(&attempt, &error))?;
        let away = |error: VisitError| not_visited(of, &error);
        let pod_link = pod.visit(&home, || claim.check_pod()).map_err(away)??;
        let host_link = claim.check_host(&pod_link)?;
        pod.visit(&home, || claim.check_gateways(&pod_link, &host_link))
            .map_err(away)??;
        check_rules(&settings.host_ports(&claim.addresses()))
    }
}

/// What the result of an ADD says about one attachment.
struct Claim<'a> {
    host_name: String,
    host: Option<&'a Interface>,
    pod: &'a Interface,
    ips: Vec<&'a IpConfig>,
    routes: &'a [cni::Route],
}

impl<'a> Claim<'a> {
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
        let host_name = state::link::host_name(&of.container, &of.ifname);
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

    /// What is on the host; `pod` is the link at its other end.
    fn check_host(&self, pod: &Link) -> Result<Link, Error> {
        let socket = Socket::route().map_err(refused)?;
        let name = &self.host_name;
        let link = switched_on(&socket, name, "on the host")?;
        if let Some(stated) = self.host {
            is_as_stated(&link, stated)?;
        }
        let routes = net::routes(&socket).map_err(refused)?;
        let neighbours = net::permanent_neighbours(&socket).map_err(refused)?;
        for address in self.addresses() {
            let leads_there = routes.iter().any(|route| {
                let is_by_link =
                    matches!(route.kind, RouteKind::Via { link: by, .. } if by == link.index);
                route.dst == IpNet::from(address) && route.table == TABLE_MAIN && is_by_link
            });
            if !leads_there {
                return Err(broken(format!(
                    "the host has no route to {address} by {name}"
                )));
            }
            knows(&neighbours, &link, address, pod.mac)
                .map_err(|what| broken(format!("the host {what}")))?;
        }
        Ok(link)
    }

    /// What is in the pod.
    fn check_pod(&self) -> Result<Link, Error> {
        let socket = Socket::route().map_err(refused)?;
        let name = &self.pod.name;
        let link = switched_on(&socket, name, "in the container")?;
        is_as_stated(&link, self.pod)?;
        let found = net::addresses(&socket).map_err(refused)?;
        for ip in &self.ips {
            let net = ip.address;
            if !found
                .iter()
                .any(|address| address.link == link.index && address.net == net)
            {
                return Err(broken(format!("{name} doesn't have the address {net}")));
            }
        }
        self.check_routes(&link, net::routes(&socket))?;
        Ok(link)
    }

    /// That the pod knows where its gateways are; `host` is the link at its other end.
    fn check_gateways(&self, pod: &Link, host: &Link) -> Result<(), Error> {
        let socket = Socket::route().map_err(refused)?;
        let neighbours = net::permanent_neighbours(&socket).map_err(refused)?;
        for gateway in self.ips.iter().filter_map(|ip| ip.gateway) {
            knows(&neighbours, pod, gateway, host.mac)
                .map_err(|what| broken(format!("the container {what}")))?;
        }
        Ok(())
    }

    fn check_routes(
        &self,
        link: &Link,
        found: Result<Vec<net::Route>, NetError>,
    ) -> Result<(), Error> {
        let found = found.map_err(refused)?;
        let is_our_gateway =
            |gateway: IpAddr| self.ips.iter().any(|ip| ip.gateway == Some(gateway));
        for stated in self.routes {
            let is_it = |route: &net::Route| {
                let RouteKind::Via { link: by, gateway } = route.kind else {
                    return false;
                };
                // Those of another gateway are of another plugin's interface.
                let is_by_link = by == link.index || !stated.gw.is_some_and(is_our_gateway);
                route.dst == stated.dst.trunc()
                    && stated.table.is_none_or(|table| route.table == table)
                    && (stated.gw.is_none() || stated.gw == gateway)
                    && is_by_link
            };
            if !found.iter().any(is_it) {
                return Err(broken(format!(
                    "the container has no route to {}{} by {}",
                    stated.dst,
                    stated.gw.map(|gw| format!(" by {gw}")).unwrap_or_default(),
                    link.name
                )));
            }
        }
        Ok(())
    }
}

/// That a link has the hardware address and the MTU that were stated.
fn is_as_stated(link: &Link, stated: &Interface) -> Result<(), Error> {
    let name = &link.name;
    let mac = link.mac.map(|mac| mac.to_string()).unwrap_or_default();
    if let Some(stated) = &stated.mac
        && !mac.eq_ignore_ascii_case(stated)
    {
        return Err(broken(format!(
            "{name} has the hardware address {mac} and not {stated}"
        )));
    }
    match stated.mtu {
        Some(stated) if stated != link.mtu => Err(broken(format!(
            "{name} has the MTU {} and not {stated}",
            link.mtu
        ))),
        _ => Ok(()),
    }
}

/// That an address is known by a link, with the hardware address at the link's other end.
fn knows(
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
            "doesn't know the neighbour {address} by {}",
            link.name
        )),
        Some(known) if Some(known.mac) != mac => Err(format!(
            "knows the neighbour {address} by {} as {}, which it isn't",
            link.name, known.mac
        )),
        Some(_) => Ok(()),
    }
}

fn switched_on(socket: &Socket, name: &str, place: &str) -> Result<Link, Error> {
    let link = net::link(socket, name).map_err(refused)?;
    let Some(link) = link else {
        return Err(broken(format!("there is no interface {name} {place}")));
    };
    if !link.is_up {
        return Err(broken(format!("the interface {name} {place} is down")));
    }
    Ok(link)
}

/// The rules for every pod, and this one's hostPorts.
fn check_rules(ports: &[HostPort]) -> Result<(), Error> {
    let socket = Socket::netfilter().map_err(refused)?;
    if !ruleset::missing(&socket).map_err(refused)?.is_empty() {
        return Err(broken("the nftables rules of headcni are missing"));
    }
    if ports.is_empty() {
        return Ok(());
    }
    let published =
        host_ports::list(&socket).map_err(|error| Error::caused(code::IO_FAILURE, &error))?;
    match ports.iter().find(|port| !published.contains(port)) {
        None => Ok(()),
        Some(port) => Err(broken(format!("the {port} is not published"))),
    }
}
