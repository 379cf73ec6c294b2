//! Makes a pod's network: one batch of messages on the host, one in the pod.

use std::net::IpAddr;
use std::os::fd::AsFd;

use calllog::CallLog;
use cni::{Attachment, Error, code};
use net::{
    Address, Batch, End, Errno, Ipv4Conf, Neighbour, NetError, Netns, NewVeth, PROTO_HEADCNI,
    Route, RouteKind, Socket, Tolerated, VisitError, sysctl,
};

use super::settings::Settings;
use super::several;
use super::wiring::{Wiring, indexes};

/// Every namespace has its `lo` at this place.
const LO_INDEX: u32 = 1;

/// How often interface numbers are drawn when they are taken.
const MAX_DRAWS: u32 = 8;

/// The longest text that a link can have for an alias, `IFALIASZ` less its closing zero.
const MAX_ALIAS: usize = 255;

/// Where a pod's network is made.
pub(crate) struct Site<'a> {
    pub(crate) home: &'a Netns,
    pub(crate) pod: &'a Netns,
    /// Belongs to the host.
    pub(crate) host_socket: &'a Socket,
    pub(crate) log: &'a CallLog<'a>,
}

/// How an interface has its place among the pod's others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Place {
    /// The pod's routes lead out by it.
    First,
    /// Others have the same routes, so its own are in this table.
    Second { table: u32 },
}

/// What a pod's network is made from.
pub(crate) struct Blueprint<'a> {
    pub(crate) wiring: &'a Wiring,
    pub(crate) settings: &'a Settings,
    pub(crate) to: &'a Attachment,
    /// What the link is for, in a form that [`super::links`] reads.
    pub(crate) alias: &'a str,
    pub(crate) novelty: Novelty,
}

/// Whether this node has had pods of the network since its rules were installed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Novelty {
    /// This is the first.
    First,
    /// It has.
    Known,
}

/// The interface numbers of both ends.
#[derive(Clone, Copy)]
struct Indexes {
    host: u32,
    pod: u32,
}

impl Site<'_> {
    /// Makes the network. What a failure leaves is for [`net::delete_link`] to remove.
    ///
    /// The host's end is switched on last: until then nothing can come in by it.
    pub(crate) fn build(&self, plan: &Blueprint<'_>) -> Result<Place, Error> {
        let visited = self.pod.visit(self.home, || {
            let socket = Socket::route().map_err(refused)?;
            let indexes = self.create(plan, &socket)?;
            let place = self
                .build_pod_side(plan, &socket, indexes.pod)
                .map_err(refused)?;
            Ok::<_, Error>((socket, indexes, place))
        });
        let (pod_socket, indexes, place) =
            visited.map_err(|error| not_visited(plan.to, &error))??;
        self.harden_host_side(plan.wiring);
        let batch = host_batch(plan, indexes.host);
        self.host_socket.send(batch).map_err(refused)?;
        // The pod's end was switched on before it had a carrier, and the kernel makes it ready to
        // send in its own time. It does so at once for whoever asks (since Linux 6.8).
        net::link(&pod_socket, &plan.wiring.pod_name).map_err(refused)?;
        // The process ends in a moment, and closes it then.
        std::mem::forget(pod_socket);
        Ok(place)
    }

    /// Makes the pair, both ends switched off.
    fn create(&self, plan: &Blueprint<'_>, pod_socket: &Socket) -> Result<Indexes, Error> {
        let wiring = plan.wiring;
        for attempt in 0..MAX_DRAWS {
            let (host, pod) = indexes(plan.to, attempt);
            // A batch of its own: were a number taken, what comes next would change another link.
            let mut batch = Batch::new();
            NewVeth {
                host: End {
                    name: &wiring.host_name,
                    index: host,
                    mac: wiring.host_mac,
                },
                pod: End {
                    name: &wiring.pod_name,
                    index: pod,
                    mac: wiring.pod_mac,
                },
                netns: self.pod.as_fd(),
                mtu: wiring.mtu_bytes,
                group: ruleset::LINK_GROUP,
            }
            .add_to(&mut batch);
            match self.host_socket.send(batch) {
                Ok(()) => return Ok(Indexes { host, pod }),
                // The second one is for a number that is taken in the pod.
                Err(error) if error.is(Errno::EXIST) || error.is(Errno::BUSY) => {
                    self.make_room(plan, pod_socket, error)?;
                }
                Err(error) => return Err(refused(error)),
            }
        }
        Err(Error::new(
            code::TRY_AGAIN_LATER,
            format!(
                "no interface number is free for {} after {MAX_DRAWS} draws",
                wiring.host_name
            ),
        ))
    }

    /// Finds out what is in the way of a new pair; an error unless another draw can help.
    fn make_room(
        &self,
        plan: &Blueprint<'_>,
        pod_socket: &Socket,
        error: NetError,
    ) -> Result<(), Error> {
        let Wiring {
            host_name,
            pod_name,
            ..
        } = plan.wiring;
        if net::link(pod_socket, pod_name).map_err(refused)?.is_some() {
            return Err(already_there(plan.to));
        }
        match net::link(self.host_socket, host_name).map_err(refused)? {
            // The numbers are taken.
            None => Ok(()),
            // Of an attempt that was killed; its other end is in no namespace that matters.
            Some(link) if link.alias == plan.alias || link.alias.is_empty() => {
                net::delete_link(self.host_socket, host_name).map_err(refused)?;
                Ok(())
            }
            Some(link) => {
                Err(refused(error)
                    .with_details(&format!("{host_name} is there for {:?}", link.alias)))
            }
        }
    }

    /// Takes from the host's end what a pod could do with it.
    fn harden_host_side(&self, wiring: &Wiring) {
        let link = &wiring.host_name;
        if wiring.has_ipv6() {
            self.set("ipv6", link, "accept_ra", "0");
            self.set("ipv6", link, "accept_redirects", "0");
        } else {
            self.set("ipv6", link, "disable_ipv6", "1");
        }
    }

    /// The ruleset drops what these settings refuse, so that they are a second line of defence:
    /// where `/proc/sys` can't be written, the pod starts all the same.
    fn set(&self, family: &str, link: &str, key: &str, value: &str) {
        let name = format!("{family}/conf/{link}/{key}");
        if let Err(error) = sysctl::set(&name, value) {
            self.log.warn(format!("set {name} to {value}: {error}"));
        }
    }

    /// Pod: its addresses, its end switched on, its routes.
    fn build_pod_side(
        &self,
        plan: &Blueprint<'_>,
        socket: &Socket,
        link: u32,
    ) -> Result<Place, NetError> {
        let wiring = plan.wiring;
        if wiring.has_ipv6() {
            self.set("ipv6", &wiring.pod_name, "accept_ra", "0");
            self.set("ipv6", &wiring.pod_name, "accept_redirects", "0");
        }
        let mut batch = Batch::new();
        for address in &wiring.addresses {
            let net = address.net;
            Address { link, net }.add_to(&mut batch);
        }
        batch.switch_on(link);
        several::mark(link).add_to(&mut batch);
        batch.tolerating(&[Errno::EXIST]);
        for address in wiring.ips() {
            add_early_local(address, link, &mut batch);
        }
        for address in wiring.next_hops() {
            let mac = wiring.host_mac;
            Neighbour { link, address, mac }.add_to(&mut batch);
            // Another interface may have one to the same gateway. The kernel takes an IPv6 next
            // hop only by a link that has one, too.
            match address {
                IpAddr::V4(_) => direct_route(address, link).add_to(&mut batch),
                IpAddr::V6(_) => direct_route(address, link).append_in(&mut batch),
            }
            batch.tolerating(&[Errno::EXIST]);
        }
        for route in &wiring.routes {
            route.to_kernel(link, PROTO_HEADCNI).add_to(&mut batch);
            batch.tolerating(&[Errno::EXIST]);
        }
        if let Some(limit) = &plan.settings.from_pod {
            limit.add_to(&mut batch, link);
        }
        match socket.send_tolerant(batch)? {
            Tolerated::Nothing => Ok(Place::First),
            Tolerated::Something => {
                several::arrange(socket, wiring, link)?;
                Ok(Place::Second { table: link })
            }
        }
    }
}

/// Host: the pod's link switched on, with a route and a neighbour for each address of the pod, and
/// the gateways' addresses on `lo`.
fn host_batch(plan: &Blueprint<'_>, link: u32) -> Batch {
    let Blueprint {
        wiring, settings, ..
    } = plan;
    let mut batch = Batch::new();
    net::Settings {
        alias: Some(plan.alias).filter(|alias| alias.len() <= MAX_ALIAS),
        ipv4: &[
            (Ipv4Conf::Forwarding, 1),
            (Ipv4Conf::AcceptRedirects, 0),
            (Ipv4Conf::SendRedirects, 0),
            // A forged source is found by the ruleset, which knows both families. With these two the
            // kernel does not look for the way back to it as well, for every packet.
            (Ipv4Conf::RpFilter, 0),
            (Ipv4Conf::AcceptLocal, 1),
            // Else a pod could fill the node's neighbour table with names that it makes up.
            (Ipv4Conf::ArpFilter, 1),
            (
                Ipv4Conf::RouteLocalnet,
                u32::from(settings.ports.is_on_localhost()),
            ),
        ],
        // The kernel would look for duplicates of a link-local address for two seconds, and let
        // no IPv6 packet go to the pod until then.
        no_ipv6_of_its_own: wiring.has_ipv6(),
    }
    .add_to(&mut batch, link);
    batch.switch_on(link);
    for gateway in wiring.gateways() {
        let net = gateway.into();
        Address {
            link: LO_INDEX,
            net,
        }
        .add_to(&mut batch);
        // The first pod's ADD has put it there.
        batch.tolerating(&[Errno::EXIST]);
        if plan.novelty == Novelty::First {
            add_early_local(gateway, LO_INDEX, &mut batch);
        }
    }
    for address in wiring.ips() {
        // In place of one that a pod which had the address before has left behind.
        direct_route(address, link).replace_in(&mut batch);
        let mac = wiring.pod_mac;
        Neighbour { link, address, mac }.add_to(&mut batch);
    }
    if let Some(limit) = &settings.to_pod {
        limit.add_to(&mut batch, link);
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

/// The pod's namespace could not be entered.
pub(crate) fn not_visited(of: &Attachment, error: &VisitError) -> Error {
    let path = of.netns.as_deref().unwrap_or_default();
    match error {
        VisitError::Enter(source) => Error::variable(
            "CNI_NETNS",
            format_args!("{path:?} is not a network namespace: {source}"),
        ),
        VisitError::Return(_) => Error::caused(code::IO_FAILURE, error),
    }
}

/// The pod has an interface of this name, and whoever made it is not to be harmed.
pub(crate) fn already_there(to: &Attachment) -> Error {
    let netns = to.netns.as_deref().unwrap_or_default();
    Error::new(
        code::ALREADY_ATTACHED,
        format!(
            "CNI_IFNAME {} exists already in CNI_NETNS {netns}",
            to.ifname
        ),
    )
}

/// The kernel's refusal as the answer to the runtime.
#[expect(clippy::needless_pass_by_value, reason = "it is for map_err")]
pub(crate) fn refused(error: NetError) -> Error {
    Error::caused(code::IO_FAILURE, &error)
}
