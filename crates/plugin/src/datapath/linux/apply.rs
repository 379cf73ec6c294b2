//! Creates a planned pod network: one netlink batch on the host, one in the pod.

use std::net::IpAddr;
use std::os::fd::AsFd;

use attachment::NativeConf;
use cni::{Attachment, Error, code};
use net::{
    Address, Batch, Errno, Ipv4Conf, Neighbour, NetError, Netns, PROTO_HEADCNI, Route, RouteKind,
    Socket, TokenBucket, Tolerated, VethEnd, VethPair, VisitError, sysctl,
};

use super::multi_interface;
use super::plan::{PodNetwork, indexes};
use crate::datapath::NativeStep;

/// `lo` has this index in every netns.
const LO_INDEX: u32 = 1;

/// Tries with other interface indexes when they are taken.
const MAX_INDEX_TRIES: u32 = 8;

/// `IFALIASZ` less the final NUL.
const MAX_ALIAS_BYTES: usize = 255;

/// The table that has the routes of an interface of the pod.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RouteTable {
    Main,
    /// Another interface has the same routes in `main`.
    Own(u32),
}

/// Whether the ADD had to change the ruleset.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RulesetChange {
    /// Installed or extended: this is the first pod of its network since then.
    Changed,
    Unchanged,
}

/// The indexes of both ends of a veth pair.
#[derive(Clone, Copy)]
struct Indexes {
    host: u32,
    pod: u32,
}

impl NativeStep<'_> {
    /// Creates the pod network. After a failure, deleting the link undoes everything.
    ///
    /// The host end is set up last: until then it receives nothing.
    pub(super) fn apply(
        &self,
        to: &Attachment,
        network: &PodNetwork,
        host: &Netns,
        pod: &Netns,
        host_socket: &Socket,
        ruleset: RulesetChange,
    ) -> Result<RouteTable, Error> {
        let alias = attachment::link::alias(self.call.conf.name(), &to.container, &to.ifname);
        let visited = pod.visit(host, || {
            let socket = Socket::route().map_err(kernel_error)?;
            let indexes = create_veth(to, network, pod, host_socket, &socket, &alias)?;
            let table = self
                .apply_in_pod(network, &socket, indexes.pod)
                .map_err(kernel_error)?;
            Ok::<_, Error>((socket, indexes, table))
        });
        let (pod_socket, indexes, table) = visited.map_err(|error| visit_error(to, &error))??;
        self.harden_host_end(network);
        let batch = host_batch(self.conf, network, indexes.host, &alias, ruleset);
        host_socket.send(batch).map_err(kernel_error)?;
        // The pod's end was set up before it had a carrier, and the kernel activates it later. A
        // query makes it do so at once (since Linux 6.8).
        net::link(&pod_socket, &network.pod_name).map_err(kernel_error)?;
        // The kernel closes it when the process ends, which is faster.
        std::mem::forget(pod_socket);
        Ok(table)
    }

    /// Disables what a pod could abuse on the host end.
    fn harden_host_end(&self, network: &PodNetwork) {
        let link = &network.host_name;
        if network.has_ipv6() {
            self.set_sysctl("ipv6", link, "accept_ra", "0");
            self.set_sysctl("ipv6", link, "accept_redirects", "0");
        } else {
            self.set_sysctl("ipv6", link, "disable_ipv6", "1");
        }
    }

    /// These settings are a second line of defence behind the ruleset. Where `/proc/sys` is
    /// read-only, the pod starts without them.
    fn set_sysctl(&self, family: &str, link: &str, key: &str, value: &str) {
        let name = format!("{family}/conf/{link}/{key}");
        if let Err(error) = sysctl::set(&name, value) {
            self.log.warn(format!("set {name} to {value}: {error}"));
        }
    }

    /// In the pod: addresses, link up, routes.
    fn apply_in_pod(
        &self,
        network: &PodNetwork,
        socket: &Socket,
        link: u32,
    ) -> Result<RouteTable, NetError> {
        if network.has_ipv6() {
            self.set_sysctl("ipv6", &network.pod_name, "accept_ra", "0");
            self.set_sysctl("ipv6", &network.pod_name, "accept_redirects", "0");
        }
        let mut batch = Batch::new();
        for address in &network.addresses {
            let net = address.net;
            Address { link, net }.add_to(&mut batch);
        }
        batch.set_up(link);
        multi_interface::marker_route(link).add_to(&mut batch);
        batch.tolerating(&[Errno::EXIST]);
        for address in network.ips() {
            add_early_local(address, link, &mut batch);
        }
        for address in network.next_hops() {
            let mac = network.host_mac;
            Neighbour { link, address, mac }.add_to(&mut batch);
            // Another interface may have a route to the same gateway. The kernel accepts an IPv6
            // next hop only on a link that has a route to it, too.
            match address {
                IpAddr::V4(_) => direct_route(address, link).add_to(&mut batch),
                IpAddr::V6(_) => direct_route(address, link).append_in(&mut batch),
            }
            batch.tolerating(&[Errno::EXIST]);
        }
        for route in &network.routes {
            route.to_kernel(link, PROTO_HEADCNI).add_to(&mut batch);
            batch.tolerating(&[Errno::EXIST]);
        }
        if let Some(limit) = self.conf.egress_limit {
            TokenBucket::from(limit).add_to(&mut batch, link);
        }
        match socket.send_tolerant(batch)? {
            Tolerated::Nothing => Ok(RouteTable::Main),
            Tolerated::Something => {
                multi_interface::ensure_source_routing(socket, network, link)?;
                Ok(RouteTable::Own(link))
            }
        }
    }
}

/// Creates the veth pair; both ends are down.
fn create_veth(
    to: &Attachment,
    network: &PodNetwork,
    pod_netns: &Netns,
    host_socket: &Socket,
    pod_socket: &Socket,
    alias: &str,
) -> Result<Indexes, Error> {
    for attempt in 0..MAX_INDEX_TRIES {
        let (host, pod) = indexes(to, attempt);
        // In a batch of its own: if the index is taken, other messages would change that link.
        let mut batch = Batch::new();
        VethPair {
            host: VethEnd {
                name: &network.host_name,
                index: host,
                mac: network.host_mac,
            },
            pod: VethEnd {
                name: &network.pod_name,
                index: pod,
                mac: network.pod_mac,
            },
            netns: pod_netns.as_fd(),
            mtu: network.mtu_bytes,
            group: ruleset::LINK_GROUP,
        }
        .add_to(&mut batch);
        match host_socket.send(batch) {
            Ok(()) => return Ok(Indexes { host, pod }),
            // EBUSY: the index is taken in the pod.
            Err(error) if error.is(Errno::EXIST) || error.is(Errno::BUSY) => {
                resolve_conflict(to, network, host_socket, pod_socket, alias, error)?;
            }
            Err(error) => return Err(kernel_error(error)),
        }
    }
    Err(Error::new(
        code::TRY_AGAIN_LATER,
        format!(
            "no interface index is free for {} after {MAX_INDEX_TRIES} tries",
            network.host_name
        ),
    ))
}

/// Finds out why a veth pair can't be created; an error unless a retry can help.
fn resolve_conflict(
    to: &Attachment,
    network: &PodNetwork,
    host_socket: &Socket,
    pod_socket: &Socket,
    alias: &str,
    error: NetError,
) -> Result<(), Error> {
    let PodNetwork {
        host_name,
        pod_name,
        ..
    } = network;
    if net::link(pod_socket, pod_name)
        .map_err(kernel_error)?
        .is_some()
    {
        return Err(already_exists(to));
    }
    match net::link(host_socket, host_name).map_err(kernel_error)? {
        // The indexes are taken.
        None => Ok(()),
        // Left by a killed ADD, whose pod end is in another netns.
        Some(link) if link.alias == alias || link.alias.is_empty() => {
            net::delete_link(host_socket, host_name).map_err(kernel_error)?;
            Ok(())
        }
        Some(link) => {
            Err(kernel_error(error)
                .with_details(&format!("{host_name} belongs to {:?}", link.alias)))
        }
    }
}

/// On the host: link up, a route and a neighbour per address of the pod, gateway addresses on `lo`.
fn host_batch(
    conf: &NativeConf,
    network: &PodNetwork,
    link: u32,
    alias: &str,
    ruleset: RulesetChange,
) -> Batch {
    let mut batch = Batch::new();
    net::LinkSettings {
        alias: Some(alias).filter(|alias| alias.len() <= MAX_ALIAS_BYTES),
        ipv4: &[
            (Ipv4Conf::Forwarding, 1),
            (Ipv4Conf::AcceptRedirects, 0),
            (Ipv4Conf::SendRedirects, 0),
            // The ruleset drops spoofed sources in both families, so that the kernel need not do a
            // reverse path lookup for every packet.
            (Ipv4Conf::RpFilter, 0),
            (Ipv4Conf::AcceptLocal, 1),
            // Otherwise a pod could fill the neighbour table of the node.
            (Ipv4Conf::ArpFilter, 1),
            (
                Ipv4Conf::RouteLocalnet,
                u32::from(conf.port_mappings.needs_route_localnet()),
            ),
        ],
        // Duplicate address detection of a link-local address would delay IPv6 packets to the pod
        // by two seconds.
        addr_gen_mode_none: network.has_ipv6(),
    }
    .add_to(&mut batch, link);
    batch.set_up(link);
    for gateway in network.gateways() {
        let net = gateway.into();
        Address {
            link: LO_INDEX,
            net,
        }
        .add_to(&mut batch);
        // The ADD of the first pod has added it.
        batch.tolerating(&[Errno::EXIST]);
        if ruleset == RulesetChange::Changed {
            add_early_local(gateway, LO_INDEX, &mut batch);
        }
    }
    for address in network.ips() {
        // Replaces the stale route of an earlier pod with this address.
        direct_route(address, link).replace_in(&mut batch);
        let mac = network.pod_mac;
        Neighbour { link, address, mac }.add_to(&mut batch);
    }
    if let Some(limit) = conf.ingress_limit {
        TokenBucket::from(limit).add_to(&mut batch, link);
    }
    batch
}

pub(super) fn direct_route(to: IpAddr, link: u32) -> Route {
    let kind = RouteKind::Via {
        link,
        gateway: None,
    };
    Route::new(to.into(), kind, PROTO_HEADCNI)
}

fn add_early_local(address: IpAddr, link: u32, batch: &mut Batch) {
    if let IpAddr::V6(address) = address {
        Route::early_local(address, link, PROTO_HEADCNI).add_to(batch);
        batch.tolerating(&[Errno::EXIST]);
    }
}

/// The netns of the pod could not be entered or left.
pub(super) fn visit_error(of: &Attachment, error: &VisitError) -> Error {
    let path = of.netns.as_deref().unwrap_or_default();
    match error {
        VisitError::Enter(source) => Error::variable(
            "CNI_NETNS",
            format_args!("{path:?} is not a network namespace: {source}"),
        ),
        VisitError::Return(_) => Error::caused(code::IO_FAILURE, error),
    }
}

/// The pod has an interface of this name, which must not be touched.
pub(super) fn already_exists(to: &Attachment) -> Error {
    let netns = to.netns.as_deref().unwrap_or_default();
    Error::new(
        code::ALREADY_ATTACHED,
        format!(
            "CNI_IFNAME {} already exists in CNI_NETNS {netns}",
            to.ifname
        ),
    )
}

#[expect(clippy::needless_pass_by_value, reason = "for map_err")]
pub(super) fn kernel_error(error: NetError) -> Error {
    Error::caused(code::IO_FAILURE, &error)
}
