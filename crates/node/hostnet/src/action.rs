//! What can be done about the network, and how it is told.

use std::fmt;
use std::net::IpAddr;

use ipnet::IpNet;
use net::ethtool::Switch;
use net::{DestinationRule, Neighbour, Route};
use ruleset::host_ports::HostPort;
use ruleset::{Sets, Table};

use node_core::text::truncate_list;

/// What is wrong with a table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Edit {
    /// It isn't there.
    Missing,
    /// It says that it is of another version.
    OtherVersion,
    /// It isn't as we left it, or not from us.
    Changed,
}

/// Something to be done.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Action {
    /// A sysctl gets another value.
    SetSysctl {
        /// Its name below `/proc/sys/net`.
        name: String,
        /// The new value.
        value: &'static str,
        /// The old one.
        found: String,
    },
    /// A table is put in place.
    PutTable(Table, Edit),
    /// The sets of the table for pods are filled.
    SetContents,
    /// Networks are added to the sets of both tables.
    Cover(Sets),
    /// Networks are taken out of the sets of both tables.
    Uncover(Vec<IpNet>),
    /// `lo` gets a gateway's address.
    AddGateway(IpAddr),
    /// `lo` loses one.
    RemoveGateway(IpAddr),
    /// A network of ours becomes unreachable where no pod has the address.
    AddRoute(IpNet),
    /// One that isn't ours any more is not unreachable any more.
    RemoveRoute(IpNet),
    /// Routes of the mesh's table are made, in place of others that lead there.
    SetRoutes(Vec<Route>),
    /// Routes of the mesh's table are removed.
    RemoveRoutes(Vec<Route>),
    /// A rule is added.
    AddRule(DestinationRule),
    /// A rule is removed.
    RemoveRule(DestinationRule),
    /// The mesh's link is switched on.
    SwitchOn {
        /// The link's number.
        link: u32,
        /// The link's name.
        name: String,
    },
    /// A feature of a link is switched.
    SetFeature {
        /// The link's number.
        link: u32,
        /// The link's name.
        name: String,
        /// The feature, as ethtool names it.
        feature: String,
        /// How it is to be.
        switch: Switch,
    },
    /// A pod's address leads by its link again.
    RestoreRoute {
        /// The pod's address.
        address: IpAddr,
        /// The number of the link.
        link: u32,
    },
    /// A pod's hardware address is known again.
    RestoreNeighbour(Neighbour),
    /// A hostPort leads to its pod again.
    Publish(HostPort),
    /// A hostPort that leads to no pod is taken back.
    Unpublish(HostPort),
}

impl Action {
    /// The table that looks different afterwards.
    pub(super) fn table(&self) -> Option<Table> {
        match self {
            Self::PutTable(table, _) => Some(*table),
            _ => None,
        }
    }
}

impl fmt::Display for Action {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::SetSysctl { name, value, found } => {
                write!(f, "net/{name} was {found}, and is {value} now")
            }
            Self::PutTable(table, edit) => {
                let was = match edit {
                    Edit::Missing => "was missing",
                    Edit::OtherVersion => "was of another version",
                    Edit::Changed => "was not as we left it",
                };
                write!(f, "nftables table inet {} {was}", table.name())
            }
            Self::SetContents => f.write_str("sets of nftables table inet headcni were changed"),
            Self::Cover(Sets::Cluster) => {
                f.write_str("networks were missing from masquerade's sets")
            }
            Self::Cover(Sets::Excluded) => {
                f.write_str("networks were missing from hostPorts' sets")
            }
            Self::Uncover(networks) => write!(f, "{networks:?} are no networks of the cluster now"),
            Self::AddGateway(gateway) => write!(f, "gateway {gateway} was missing on lo"),
            Self::RemoveGateway(gateway) => write!(f, "{gateway} is no gateway now"),
            Self::AddRoute(network) => write!(f, "route unreachable {network} was missing"),
            Self::RemoveRoute(network) => write!(f, "{network} is no network of this node now"),
            Self::SetRoutes(routes) => {
                write!(f, "routes of the mesh were missing: to {}", listed(routes))
            }
            Self::RemoveRoutes(routes) => {
                write!(f, "routes of the mesh were too much: to {}", listed(routes))
            }
            Self::AddRule(rule) => write!(
                f,
                "rule {} for packets to {} was missing",
                rule.priority, rule.to
            ),
            Self::RemoveRule(rule) => write!(
                f,
                "rule {} for packets to {} was too much",
                rule.priority, rule.to
            ),
            Self::SwitchOn { name, .. } => write!(f, "the mesh's link {name} was off"),
            Self::SetFeature {
                name,
                feature,
                switch,
                ..
            } => write!(f, "{feature} of {name} is {switch} now"),
            Self::RestoreRoute { address, .. } => write!(f, "route to pod {address} was missing"),
            Self::RestoreNeighbour(neighbour) => {
                write!(f, "neighbour of pod {} was missing", neighbour.address)
            }
            Self::Publish(port) => write!(f, "hostPort {port} of {} was missing", port.pod),
            Self::Unpublish(port) => write!(f, "hostPort {port} led to no pod, at {}", port.pod),
        }
    }
}

/// Where routes lead, as far as there is room.
fn listed(routes: &[Route]) -> String {
    truncate_list(routes.iter().map(|route| route.dst), ", ")
}

#[cfg(test)]
mod tests {
    use net::{PROTO_HEADCNI, RouteKind};

    use super::*;

    #[test]
    fn many_routes_are_told_in_one_line() {
        let route = |n| {
            let network: IpNet = format!("10.244.{n}.0/24").parse().unwrap();
            Route::new(network, RouteKind::Unreachable, PROTO_HEADCNI)
        };
        let text = |count| Action::SetRoutes((0..count).map(route).collect()).to_string();
        assert_eq!(text(1), "routes of the mesh were missing: to 10.244.0.0/24");
        let all = "10.244.0.0/24, 10.244.1.0/24, 10.244.2.0/24, 10.244.3.0/24 and 196 more";
        assert_eq!(
            text(200),
            format!("routes of the mesh were missing: to {all}")
        );
    }
}
