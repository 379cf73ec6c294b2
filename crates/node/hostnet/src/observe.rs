//! Reads the state of the host network from the kernel.

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
use super::{Desired, HostnetError, HostnetRecord, MeshRoutes, Sockets};

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Observed {
    /// By names relative to `/proc/sys/net`; those that do not exist are omitted.
    pub sysctls: BTreeMap<String, String>,
    pub links: Vec<Link>,
    /// Addresses that can be a source.
    pub addresses: Vec<Address>,
    pub routes: Vec<Route>,
    pub rules: Vec<DestinationRule>,
    /// Permanent ones.
    pub neighbours: Vec<Neighbour>,
    /// ethtool features of the links that may have to be tuned, by link index.
    pub features: BTreeMap<u32, Features>,
    pub tables: Tables,
}

/// Our nftables tables.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Tables {
    /// `inet headcni`.
    pub pods: Option<TableState>,
    /// `inet headcni-ports`.
    pub ports: Option<TableState>,
    /// The masquerade sets hold all prefixes of the cluster.
    pub covers_cluster: bool,
    /// The hostPort sets hold them.
    pub covers_excluded: bool,
    /// The other sets of `inet headcni` are as desired.
    pub has_contents: bool,
    pub published: Vec<HostPort>,
    /// Pods that may reach themselves by their hostPorts.
    pub hairpins: Vec<IpAddr>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TableState {
    pub version: Option<u32>,
    pub fingerprint: Fingerprint,
}

impl Observed {
    pub(super) fn read(
        sockets: &Sockets,
        desired: &Desired,
        record: &HostnetRecord,
    ) -> Result<Self, HostnetError> {
        let route = &sockets.route;
        let mut observed = Self {
            sysctls: BTreeMap::new(),
            links: net::links(route)?,
            addresses: net::usable_addresses(route)?,
            routes: net::routes(route)?,
            rules: net::destination_rules(route)?,
            neighbours: net::permanent_neighbours(route)?,
            features: BTreeMap::new(),
            tables: Tables::read(&sockets.netfilter, desired)?,
        };
        observed.features = observed.features_of_links(desired, record);
        if desired.has(Family::Ipv4) {
            observed.read_sysctl(FORWARD_IPV4)?;
        }
        if desired.has(Family::Ipv6) {
            observed.read_sysctl(FORWARD_IPV6)?;
            for name in observed.accept_ra_sysctls() {
                observed.read_sysctl(&name)?;
            }
        }
        Ok(observed)
    }

    pub(super) fn mesh_link(&self, mesh: &MeshRoutes) -> Option<&Link> {
        self.links.iter().find(|link| link.name == mesh.link)
    }

    /// Of links that are tuned or were. A link that cannot be queried is not tuned: only speed is lost.
    fn features_of_links(
        &self,
        desired: &Desired,
        record: &HostnetRecord,
    ) -> BTreeMap<u32, Features> {
        let is_on_record = |link: &&Link| record.features.contains_key(&link.name);
        let links: Vec<&Link> = if desired.has_tuned_links() {
            uplinks(desired, self)
        } else {
            self.links.iter().filter(is_on_record).collect()
        };
        if links.is_empty() {
            return BTreeMap::new();
        }
        let Ok(Some(ethtool)) = Ethtool::open() else {
            return BTreeMap::new();
        };
        let query = |link: &&Link| Some((link.index, ethtool.features(link.index).ok()??));
        links.iter().filter_map(query).collect()
    }

    fn read_sysctl(&mut self, name: &str) -> Result<(), HostnetError> {
        let value = sysctl::get(name).map_err(|source| HostnetError::Sysctl {
            attempt: "read",
            name: name.to_owned(),
            source,
        })?;
        if let Some(value) = value {
            self.sysctls.insert(name.to_owned(), value);
        }
        Ok(())
    }

    /// `accept_ra` of the links that may accept router advertisements: all but the pods' while the node
    /// does not forward, then only those with a default route from a router.
    fn accept_ra_sysctls(&self) -> Vec<String> {
        let is_forwarding = self.sysctls.get(FORWARD_IPV6).is_some_and(|on| on == "1");
        let may_accept = |link: &&Link| {
            let is_pods = link.group == ruleset::LINK_GROUP || link.name == "lo";
            !is_pods && (!is_forwarding || self.has_router(link.index))
        };
        let links = self.links.iter().filter(may_accept);
        links.map(|link| accept_ra(&link.name)).collect()
    }

    fn has_router(&self, index: u32) -> bool {
        self.routes.iter().any(|route| {
            let is_by_link = matches!(route.kind, RouteKind::Via { link, .. } if link == index);
            is_by_link && route.protocol == PROTO_RA && route.dst.prefix_len() == 0
        })
    }
}

impl Tables {
    fn read(socket: &Socket, desired: &Desired) -> Result<Self, HostnetError> {
        let covers = |sets| or_missing(ruleset::covers(socket, sets, &desired.cluster), false);
        Ok(Self {
            pods: TableState::read(socket, Table::Pods)?,
            ports: TableState::read(socket, Table::Ports)?,
            covers_cluster: covers(Sets::Cluster)?,
            covers_excluded: covers(Sets::Excluded)?,
            has_contents: or_missing(ruleset::has_contents(socket, &desired.contents), false)?,
            published: or_no_table(host_ports::list(socket))?,
            hairpins: or_no_table(host_ports::hairpins(socket))?,
        })
    }
}

impl TableState {
    fn read(socket: &Socket, table: Table) -> Result<Option<Self>, NetError> {
        let installed = ruleset::installed(socket, table)?;
        let fingerprint = ruleset::fingerprint(socket, table)?;
        Ok(installed
            .zip(fingerprint)
            .map(|(installed, fingerprint)| Self {
                version: installed.version,
                fingerprint,
            }))
    }
}

/// A missing table is empty.
fn or_no_table<T: Default>(answer: Result<T, HostPortError>) -> Result<T, HostnetError> {
    match answer {
        Err(HostPortError::NoTable) => Ok(T::default()),
        Err(HostPortError::Net(error)) => Err(error.into()),
        answer => answer.map_err(HostnetError::HostPort),
    }
}

fn or_missing<T>(answer: Result<T, NetError>, missing: T) -> Result<T, NetError> {
    match answer {
        Err(error) if error.is(Errno::NOENT) => Ok(missing),
        answer => answer,
    }
}
