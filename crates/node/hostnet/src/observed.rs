//! How the network is.

use std::collections::BTreeMap;
use std::net::IpAddr;

use net::ethtool::{Ethtool, Features};
use net::{
    Address, DestinationRule, Errno, Link, Neighbour, NetError, PROTO_RA, Route, RouteKind, Socket,
    sysctl,
};
use ruleset::host_ports::{self, HostPort, HostPortError};
use ruleset::{Fingerprint, Sets, Table};

use super::desired::Family;
use super::plan::{FORWARD_IPV4, FORWARD_IPV6, accept_ra, uplinks};
use super::{Desired, Memory, Mesh, NetworkError, Sockets};

/// How the network is, as far as it matters.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Observed {
    /// By their names below `/proc/sys/net`; those that don't exist are left out.
    pub sysctls: BTreeMap<String, String>,
    /// All links.
    pub links: Vec<Link>,
    /// All addresses that can be sent from.
    pub addresses: Vec<Address>,
    /// All routes.
    pub routes: Vec<Route>,
    /// All rules by destination.
    pub rules: Vec<DestinationRule>,
    /// All permanent neighbours.
    pub neighbours: Vec<Neighbour>,
    /// What links can do, by their numbers, as far as it may have to be changed.
    pub features: BTreeMap<u32, Features>,
    /// nftables.
    pub tables: Tables,
}

/// Our nftables tables.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Tables {
    /// The one with the rules for pods.
    pub pods: Option<TableState>,
    /// The one with the hostPorts.
    pub ports: Option<TableState>,
    /// Whether the former knows all networks that pods reach under their own address.
    pub knows_cluster: bool,
    /// Whether the latter knows them.
    pub knows_excluded: bool,
    /// Whether the former's other sets hold what they should.
    pub has_contents: bool,
    /// The hostPorts that are published.
    pub published: Vec<HostPort>,
    /// The pods that may reach themselves by theirs.
    pub hairpins: Vec<IpAddr>,
}

/// A table that is there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TableState {
    /// Its version, if it says one.
    pub version: Option<u32>,
    /// How it looks.
    pub mark: Fingerprint,
}

impl Observed {
    pub(super) fn look(
        sockets: &Sockets,
        desired: &Desired,
        memory: &Memory,
    ) -> Result<Self, NetworkError> {
        let route = &sockets.route;
        let mut observed = Self {
            sysctls: BTreeMap::new(),
            links: net::links(route)?,
            addresses: net::usable_addresses(route)?,
            routes: net::routes(route)?,
            rules: net::destination_rules(route)?,
            neighbours: net::permanent_neighbours(route)?,
            features: BTreeMap::new(),
            tables: Tables::look(&sockets.netfilter, desired)?,
        };
        observed.features = observed.features_of_links(desired, memory);
        if desired.has(Family::Ipv4) {
            observed.read(FORWARD_IPV4)?;
        }
        if desired.has(Family::Ipv6) {
            observed.read(FORWARD_IPV6)?;
            for name in observed.listeners() {
                observed.read(&name)?;
            }
        }
        Ok(observed)
    }

    /// The mesh's link, if it is there.
    pub(super) fn mesh_link(&self, mesh: &Mesh) -> Option<&Link> {
        self.links.iter().find(|link| link.name == mesh.link)
    }

    /// Of links that are to be tuned, or were. Who can't be asked is as good as one that can't do it:
    /// only speed is lost.
    fn features_of_links(&self, desired: &Desired, memory: &Memory) -> BTreeMap<u32, Features> {
        let is_known = |link: &&Link| memory.features.contains_key(&link.name);
        let links: Vec<&Link> = if desired.has_tuned_links() {
            uplinks(desired, self)
        } else {
            self.links.iter().filter(is_known).collect()
        };
        if links.is_empty() {
            return BTreeMap::new();
        }
        let Ok(Some(ethtool)) = Ethtool::open() else {
            return BTreeMap::new();
        };
        let ask = |link: &&Link| Some((link.index, ethtool.features(link.index).ok()??));
        links.iter().filter_map(ask).collect()
    }

    fn read(&mut self, name: &str) -> Result<(), NetworkError> {
        let value = sysctl::get(name).map_err(|source| NetworkError::Sysctl {
            attempt: "read",
            name: name.to_owned(),
            source,
        })?;
        if let Some(value) = value {
            self.sysctls.insert(name.to_owned(), value);
        }
        Ok(())
    }

    /// The sysctls that say whether links listen to routers, of those links that may: while the node
    /// doesn't forward all but the pods' may, and then those that a router's default route leads by.
    fn listeners(&self) -> Vec<String> {
        let is_forwarding = self.sysctls.get(FORWARD_IPV6).is_some_and(|on| on == "1");
        let may_listen = |link: &&Link| {
            let is_pods = link.group == ruleset::LINK_GROUP || link.name == "lo";
            !is_pods && (!is_forwarding || self.has_router(link.index))
        };
        let links = self.links.iter().filter(may_listen);
        links.map(|link| accept_ra(&link.name)).collect()
    }

    /// Whether a default route by this link came from a router.
    fn has_router(&self, index: u32) -> bool {
        self.routes.iter().any(|route| {
            let is_by_link = matches!(route.kind, RouteKind::Via { link, .. } if link == index);
            is_by_link && route.protocol == PROTO_RA && route.dst.prefix_len() == 0
        })
    }
}

impl Tables {
    fn look(socket: &Socket, desired: &Desired) -> Result<Self, NetworkError> {
        let covers = |sets| or_missing(ruleset::covers(socket, sets, &desired.cluster), false);
        Ok(Self {
            pods: TableState::look(socket, Table::Pods)?,
            ports: TableState::look(socket, Table::Ports)?,
            knows_cluster: covers(Sets::Cluster)?,
            knows_excluded: covers(Sets::Excluded)?,
            has_contents: or_missing(ruleset::has_contents(socket, &desired.contents), false)?,
            published: or_no_table(host_ports::list(socket))?,
            hairpins: or_no_table(host_ports::hairpins(socket))?,
        })
    }
}

impl TableState {
    fn look(socket: &Socket, table: Table) -> Result<Option<Self>, NetError> {
        let installed = ruleset::installed(socket, table)?;
        let mark = ruleset::fingerprint(socket, table)?;
        Ok(installed.zip(mark).map(|(installed, mark)| Self {
            version: installed.version,
            mark,
        }))
    }
}

/// What is in a table that isn't there.
fn or_no_table<T: Default>(answer: Result<T, HostPortError>) -> Result<T, NetworkError> {
    match answer {
        Err(HostPortError::NoTable) => Ok(T::default()),
        Err(HostPortError::Net(error)) => Err(error.into()),
        answer => answer.map_err(NetworkError::HostPort),
    }
}

/// What is said of a table that isn't there.
fn or_missing<T>(answer: Result<T, NetError>, missing: T) -> Result<T, NetError> {
    match answer {
        Err(error) if error.is(Errno::NOENT) => Ok(missing),
        answer => answer,
    }
}
