//! A network of its own for our tailscaled, beside a host's: a named namespace, and a veth pair that
//! joins it to the host. See docs/adr/0021.
//!
//! [`ensure`] may be called at any time, and finishes what somebody who was killed has begun; one that
//! finds all in order changes nothing. The network outlives the daemon, as tailscaled in it does.
//! What is to be there is said by [`sides`] and [`script`], which are pure.

mod links;
mod table;

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::path::Path;
use std::thread;

use ipnet::IpNet;
use net::nft::{self, NftError};
use net::{
    Batch, Errno, LinkSettings, Mac, NetError, Netns, Socket, VethEnd, VethPair, VisitError, sysctl,
};

use links::{Place, Side};
use node_core::MeshLink;
pub(crate) use table::TABLE;

/// Where the namespace is. `ip netns` shows what is in this directory.
pub(crate) const PATH: &str = "/run/netns/headcni-mesh";
/// The end of the pair that is on the host, and the one that is not.
const LINK: &str = "hcmesh0";
const PEER: &str = "host0";

/// The addresses of the other end, which the host reaches tailscaled by. tailscaled takes a
/// link-local IPv4 address for no connection at all and publishes all others; these are of a network
/// that is meant for documentation (RFC 5737) and of a unique local one (RFC 4193), so that nobody
/// else has them.
const INSIDE: (Ipv4Addr, Ipv6Addr) = (
    Ipv4Addr::new(198, 51, 100, 106),
    Ipv6Addr::new(0xfd8b, 0x5e1f, 0x7c42, 0, 0, 0, 0, 2),
);
/// What routes to the host lead to. The host does not have them, and publishes none of them: the
/// hardware address behind them is known for good.
const HOST: (Ipv4Addr, Ipv6Addr) = (
    Ipv4Addr::new(198, 51, 100, 105),
    Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0, 0, 1),
);
const HOST_MAC: Mac = Mac::local([0x02, b'h', b'c', b'm', 0, 1]);
const INSIDE_MAC: Mac = Mac::local([0x02, b'h', b'c', b'm', 0, 2]);
/// What tailscaled sends is some 60 bytes longer than what it carries, so this is not the mesh's.
const MTU_BYTES: u32 = 1500;

/// Settings of the network, below `/proc/sys/net`. New links have the defaults.
const SYSCTLS: [(&str, &str); 7] = [
    ("ipv4/conf/all/forwarding", "1"),
    ("ipv6/conf/default/disable_ipv6", "0"),
    ("ipv6/conf/all/disable_ipv6", "0"),
    ("ipv6/conf/all/forwarding", "1"),
    ("ipv4/conf/all/rp_filter", "0"),
    ("ipv4/conf/default/rp_filter", "0"),
    // For questions to a resolver on loopback, which are led elsewhere.
    ("ipv4/conf/all/route_localnet", "1"),
];
/// Whether the host's end has no IPv6.
const NO_IPV6: &str = "ipv6/conf/hcmesh0/disable_ipv6";

/// What the network is to know.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Desired {
    /// The mesh's interface, which tailscaled makes.
    pub(crate) interface: String,
    /// tailscaled's port; 0 if it is any.
    pub(crate) port: u16,
    /// The networks of this node's pods.
    pub(crate) local: Vec<IpNet>,
    /// The networks of all pods, as far as they are known.
    pub(crate) cluster: Vec<IpNet>,
    /// Who answers what a resolver on the host's loopback is asked.
    pub(crate) resolver: Option<Ipv4Addr>,
}

/// What had to be done.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Ensured {
    /// Whether the namespace was made: whoever was in another one is not in it.
    pub(crate) is_new: bool,
    /// All of it, in words.
    pub(crate) repairs: Vec<String>,
}

/// LoginReason the network is not there, or not gone.
#[derive(Debug, thiserror::Error)]
pub(crate) enum NamespaceError {
    /// The namespace can't be made.
    #[error(
        "{attempt} the network namespace {PATH}: the daemon must be allowed to mount, and \
         /run/netns must be the host's"
    )]
    Named {
        attempt: &'static str,
        #[source]
        source: io::Error,
    },
    #[error("enter the network namespace {PATH}")]
    Visit(#[source] VisitError),
    #[error("set the sysctl net/{name} for tailscaled's netns")]
    Sysctl {
        name: &'static str,
        #[source]
        source: io::Error,
    },
    #[error(transparent)]
    Net(#[from] NetError),
    #[error("set the nftables table inet {TABLE}")]
    Nft(#[from] NftError),
    #[error("the link {LINK} exists and is not our veth: rename or delete it")]
    Taken,
    #[error("the link {LINK} was deleted while it was being created")]
    Gone,
    #[error(
        "tailscale.interface can't be {0} in tailscaled's netns: use letters, digits, dots and dashes, \
         and not {PEER}"
    )]
    Interface(String),
}

/// How packets get into the mesh.
pub(crate) fn link() -> MeshLink {
    MeshLink {
        name: LINK.to_owned(),
        via: vec![INSIDE.0.into(), INSIDE.1.into()],
    }
}

/// Whether there is anything of it; blocks. A part may be there when others are gone: somebody took its
/// name away, or was killed half-way. What can't be asked for is not there either, as where the kernel
/// has no nftables.
pub(crate) fn is_there() -> bool {
    Path::new(PATH).exists()
        || has_link().unwrap_or_default()
        || has_rules().unwrap_or_default()
        || has_table().unwrap_or_default()
}

/// Whether all of it was made; blocks. Parts of it may be gone since.
pub(crate) fn is_made() -> bool {
    Path::new(PATH).exists()
        && has_link().unwrap_or_default()
        && has_table().unwrap_or_default()
        && has_rules().unwrap_or_default()
}

/// Makes the network what it should be; blocks.
pub(crate) fn ensure(desired: &Desired) -> Result<Ensured, NamespaceError> {
    if !table::is_plain(&desired.interface) || desired.interface == PEER {
        return Err(NamespaceError::Interface(desired.interface.clone()));
    }
    // A thread that could not come back from there would do all that follows in the wrong place.
    apart(|| ensure_here(desired))
}

/// Takes all of it away, as far as possible; blocks. Nobody may be in it any more. The name goes last,
/// and only with all the rest: people look for it.
pub(crate) fn remove() -> Result<(), Vec<NamespaceError>> {
    let named = |source| NamespaceError::Named {
        attempt: "remove",
        source,
    };
    let outcomes = [take_link(), take_rules(), take_table()];
    let mut errors: Vec<_> = outcomes.into_iter().filter_map(Result::err).collect();
    if errors.is_empty() {
        let outcome = Netns::remove_named(Path::new(PATH)).map_err(named);
        errors.extend(outcome.err());
    }
    if errors.is_empty() {
        Ok(())
    } else {
        Err(errors)
    }
}

fn apart<T: Send>(work: impl FnOnce() -> T + Send) -> T {
    match thread::scope(|scope| scope.spawn(work).join()) {
        Ok(outcome) => outcome,
        Err(panic) => std::panic::resume_unwind(panic),
    }
}

/// What the kernel is spoken to by, on one side.
struct Sockets {
    route: Socket,
    netfilter: Socket,
}

impl Sockets {
    fn open() -> Result<Self, NetError> {
        Ok(Self {
            route: Socket::route()?,
            netfilter: Socket::netfilter()?,
        })
    }
}

fn ensure_here(desired: &Desired) -> Result<Ensured, NamespaceError> {
    let named = |attempt| move |source| NamespaceError::Named { attempt, source };
    let home = Netns::current().map_err(named("enter"))?;
    let (inside, is_new) = Netns::ensure_named(Path::new(PATH)).map_err(named("create"))?;
    let mut repairs = Vec::new();
    if is_new {
        repairs.push(format!("the network namespace {PATH} was missing"));
    }
    // First what guards, then what leads: a packet that gets out too early stays untranslated for as
    // long as its flow lasts.
    let here = Sockets::open()?;
    let host_table = table::on_host(desired);
    put_table(&here.netfilter, &host_table, "on the host", &mut repairs)?;
    let (there, has_ipv6) = inside
        .visit(&home, || {
            let there = Sockets::open()?;
            set_sysctls(&mut repairs)?;
            let table = table::inside(desired);
            put_table(&there.netfilter, &table, "in the netns", &mut repairs)?;
            Ok::<_, NamespaceError>((there, has_ipv6()))
        })
        .map_err(NamespaceError::Visit)??;

    let pair = ensure_pair(&here.route, &there.route, &inside, &mut repairs)?;
    if switch_on(&there.route, &desired.interface)? {
        repairs.push(format!("the mesh interface {} was down", desired.interface));
    }
    let has_ipv6 = has_ipv6 && lets_ipv6_pass(desired)?;
    let sides = [
        (Side::of_host(pair.0), &here.route),
        (Side::of_inside(pair.1, desired), &there.route),
    ];
    for (side, socket) in sides {
        let side = if has_ipv6 { side } else { side.without_ipv6() };
        repairs.extend(side.repair(socket)?);
    }
    Ok(Ensured { is_new, repairs })
}

fn has_ipv6() -> bool {
    matches!(sysctl::get("ipv6/conf/all/forwarding"), Ok(Some(_)))
}

/// Whether the host's end has IPv6. Where it is switched off on the host it stays so, unless pods
/// have it.
fn lets_ipv6_pass(desired: &Desired) -> Result<bool, NamespaceError> {
    let failed = |source| NamespaceError::Sysctl {
        name: NO_IPV6,
        source,
    };
    let has_pods = desired.local.iter().any(|net| net.addr().is_ipv6());
    match sysctl::get(NO_IPV6).map_err(failed)?.as_deref() {
        Some("0") => Ok(true),
        Some(_) if has_pods => sysctl::set(NO_IPV6, "0").map_err(failed),
        _ => Ok(false),
    }
}

fn set_sysctls(repairs: &mut Vec<String>) -> Result<(), NamespaceError> {
    for (name, value) in SYSCTLS {
        let failed = |source| NamespaceError::Sysctl { name, source };
        // Without IPv6 there are none of its settings.
        let found = sysctl::get(name).map_err(failed)?;
        if found.is_some_and(|found| found != value) {
            sysctl::set(name, value).map_err(failed)?;
            repairs.push(format!("sysctl net/{name} was not {value}"));
        }
    }
    Ok(())
}

/// A table says in its comment what is in it, so that another one is known. One whose rules were flushed
/// still says so.
fn put_table(
    socket: &Socket,
    table: &table::Script,
    whose: &str,
    repairs: &mut Vec<String>,
) -> Result<(), NamespaceError> {
    let found = nft::table(socket, TABLE)?;
    if found.is_some_and(|found| found.comment == table.comment)
        && ruleset::is_intact(socket, TABLE, &table.text)?
    {
        return Ok(());
    }
    nft::run(&table.text)?;
    repairs.push(format!(
        "the nftables table inet {TABLE} {whose} was missing or changed"
    ));
    Ok(())
}

/// The numbers of both ends, which are on.
fn ensure_pair(
    here: &Socket,
    there: &Socket,
    inside: &Netns,
    repairs: &mut Vec<String>,
) -> Result<(u32, u32), NamespaceError> {
    let look = || Ok::<_, NetError>((net::link(here, LINK)?, net::link(there, PEER)?));
    let mut found = look()?;
    if found.0.as_ref().is_some_and(|link| link.kind != "veth") {
        return Err(NamespaceError::Taken);
    }
    // The peer of one whose other end is not there is in a namespace that has lost its name.
    if found.0.is_none() || found.1.is_none() {
        net::delete_link(here, LINK)?;
        net::delete_link(there, PEER)?;
        let end = |name, mac| VethEnd {
            name,
            index: 0,
            mac,
        };
        let mut batch = Batch::new();
        let pair = VethPair {
            host: end(LINK, HOST_MAC),
            pod: end(PEER, INSIDE_MAC),
            netns: std::os::fd::AsFd::as_fd(inside),
            mtu: MTU_BYTES,
            group: 0,
        };
        pair.add_to(&mut batch);
        here.send(batch)?;
        repairs.push(format!("the link {LINK} was missing"));
        found = look()?;
    }
    let (Some(link), Some(peer)) = found else {
        return Err(NamespaceError::Gone);
    };
    for (socket, link) in [(here, &link), (there, &peer)] {
        let mut batch = Batch::new();
        if !link.is_up {
            // Only the addresses that it is given, and no waiting for whether others have them.
            let settings = LinkSettings {
                addr_gen_mode_none: true,
                ..LinkSettings::default()
            };
            settings.add_to(&mut batch, link.index);
            batch.tolerating(&[Errno::AFNOSUPPORT, Errno::OPNOTSUPP]);
            batch.set_up(link.index);
            repairs.push(format!("the link {} was down", link.name));
        }
        socket.send(batch)?;
    }
    // Of a new namespace it is off.
    switch_on(there, "lo")?;
    Ok((link.index, peer.index))
}

/// Switches a link on that is there; whether it was off.
fn switch_on(there: &Socket, name: &str) -> Result<bool, NetError> {
    let Some(link) = net::link(there, name)?.filter(|link| !link.is_up) else {
        return Ok(false);
    };
    let mut batch = Batch::new();
    batch.set_up(link.index);
    // tailscaled may just have ended.
    batch.tolerating(&[Errno::NODEV]);
    there.send(batch).map(|()| true)
}

fn has_link() -> Result<bool, NetError> {
    let link = net::link(&Socket::route()?, LINK)?;
    Ok(link.is_some_and(|link| link.kind == "veth"))
}

fn has_rules() -> Result<bool, NetError> {
    Side::has_rules(&Socket::route()?, Place::Host)
}

fn has_table() -> Result<bool, NetError> {
    Ok(nft::table(&Socket::netfilter()?, TABLE)?.is_some())
}

/// Its routes and neighbours go with it.
fn take_link() -> Result<(), NamespaceError> {
    if has_link()? {
        net::delete_link(&Socket::route()?, LINK)?;
    }
    Ok(())
}

fn take_rules() -> Result<(), NamespaceError> {
    Ok(Side::take_rules(&Socket::route()?, Place::Host)?)
}

fn take_table() -> Result<(), NamespaceError> {
    if has_table()? {
        nft::run(&table::none())?;
    }
    Ok(())
}

/// An address for the other end of a route, by the family of where it leads.
fn by_family(network: &IpNet, addresses: (Ipv4Addr, Ipv6Addr)) -> IpAddr {
    match network {
        IpNet::V4(_) => addresses.0.into(),
        IpNet::V6(_) => addresses.1.into(),
    }
}
