//! CHECK: compares what an ADD said with what the kernel has.
//!
//! What others have added since is their business; what is missing or changed is told by name.

use std::net::IpAddr;

use cni::{Attachment, Error, Interface, NetResult, code};
use ipnet::IpNet;
use net::host_ports::{self, HostPort};
use net::{Link, NetError, Netns, RouteKind, Socket, TABLE_MAIN, ruleset};

use super::Native;
use super::kernel::{not_visited, refused};
use super::settings::Settings;
use super::wiring;

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
        claim.check_host()?;
        let Some(path) = of.netns.as_deref() else {
            return Err(Error::variable("CNI_NETNS", "is missing"));
        };
        let attempt = format!("look into CNI_NETNS {path}");
        let home = Netns::current().map_err(|error| Error::io(&attempt, &error))?;
        let pod = Netns::open(path).map_err(|error| Error::io(&attempt, &error))?;
        pod.visit(&home, || claim.check_pod())
            .map_err(|error| not_visited(of, &error))??;
        check_rules(&settings.host_ports(&claim.ips()))
    }
}

/// What the result of an ADD says about one attachment.
struct Claim<'a> {
    host_name: String,
    pod: &'a Interface,
    addresses: Vec<IpNet>,
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
        let ips = stated.ips.iter();
        let addresses = ips
            .filter(|ip| ip.interface == Some(index))
            .map(|ip| ip.address);
        Ok(Self {
            host_name: wiring::host_name(of),
            pod,
            addresses: addresses.collect(),
            routes: &stated.routes,
        })
    }

    fn ips(&self) -> Vec<IpAddr> {
        self.addresses.iter().map(IpNet::addr).collect()
    }

    fn check_host(&self) -> Result<(), Error> {
        let socket = Socket::route().map_err(refused)?;
        let link = switched_on(&socket, &self.host_name, "on the host")?;
        let routes = net::routes(&socket).map_err(refused)?;
        let neighbours = net::permanent_neighbours(&socket).map_err(refused)?;
        for address in self.ips() {
            let leads_there = routes.iter().any(|route| {
                let is_by_link =
                    matches!(route.kind, RouteKind::Via { link: by, .. } if by == link.index);
                route.dst == IpNet::from(address) && route.table == TABLE_MAIN && is_by_link
            });
            if !leads_there {
                return Err(broken(format!(
                    "the host has no route to {address} by {}",
                    self.host_name
                )));
            }
            if !neighbours
                .iter()
                .any(|known| known.link == link.index && known.address == address)
            {
                return Err(broken(format!(
                    "the host doesn't know the neighbour {address} by {}",
                    self.host_name
                )));
            }
        }
        Ok(())
    }

    fn check_pod(&self) -> Result<(), Error> {
        let socket = Socket::route().map_err(refused)?;
        let name = &self.pod.name;
        let link = switched_on(&socket, name, "in the container")?;
        let mac = link.mac.map(|mac| mac.to_string());
        let is_other = |stated: &String| {
            !mac.as_ref()
                .is_some_and(|mac| mac.eq_ignore_ascii_case(stated))
        };
        if let Some(stated) = self.pod.mac.as_ref().filter(|stated| is_other(stated)) {
            return Err(broken(format!(
                "{name} has the hardware address {} and not {stated}",
                mac.unwrap_or_default()
            )));
        }
        if let Some(stated) = self.pod.mtu.filter(|stated| *stated != link.mtu) {
            return Err(broken(format!(
                "{name} has the MTU {} and not {stated}",
                link.mtu
            )));
        }
        let found = net::addresses(&socket).map_err(refused)?;
        for net in &self.addresses {
            if !found
                .iter()
                .any(|address| address.link == link.index && address.net == *net)
            {
                return Err(broken(format!("{name} doesn't have the address {net}")));
            }
        }
        self.check_pod_routes(net::routes(&socket))
    }

    fn check_pod_routes(&self, found: Result<Vec<net::Route>, NetError>) -> Result<(), Error> {
        let found = found.map_err(refused)?;
        for stated in self.routes {
            let is_it = |route: &net::Route| {
                let gateway = match route.kind {
                    RouteKind::Via { gateway, .. } => gateway,
                    RouteKind::Local { .. } | RouteKind::Unreachable => None,
                };
                route.dst == stated.dst.trunc()
                    && stated.table.is_none_or(|table| route.table == table)
                    && (stated.gw.is_none() || stated.gw == gateway)
            };
            if !found.iter().any(is_it) {
                return Err(broken(format!(
                    "the container has no route to {}{}",
                    stated.dst,
                    stated.gw.map(|gw| format!(" by {gw}")).unwrap_or_default()
                )));
            }
        }
        Ok(())
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
