//! The changes that a plan consists of.

use std::fmt;
use std::net::IpAddr;

use ipnet::IpNet;
use net::ethtool::Switch;
use net::{DestinationRule, Neighbour, Route};
use ruleset::host_ports::HostPort;
use ruleset::{Sets, Table};

use node_core::text::truncate_list;

/// Why a table is replaced.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TableFault {
    Missing,
    OtherVersion,
    /// Its fingerprint is not the one on record.
    Changed,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Action {
    SetSysctl {
        /// Relative to `/proc/sys/net`.
        name: String,
        value: &'static str,
        found: String,
    },
    ReplaceTable(Table, TableFault),
    /// Fills the sets of the table `inet headcni`.
    FillSets,
    /// Adds the cluster's prefixes to the sets of both tables.
    AddToSets(Sets),
    RemoveFromSets(Vec<IpNet>),
    /// On `lo`.
    AddGateway(IpAddr),
    RemoveGateway(IpAddr),
    AddUnreachableRoute(IpNet),
    RemoveUnreachableRoute(IpNet),
    ReplaceMeshRoutes(Vec<Route>),
    RemoveMeshRoutes(Vec<Route>),
    AddRule(DestinationRule),
    RemoveRule(DestinationRule),
    SetLinkUp {
        link: u32,
        name: String,
    },
    /// An ethtool feature.
    SetFeature {
        link: u32,
        name: String,
        feature: String,
        switch: Switch,
    },
    RestorePodRoute {
        address: IpAddr,
        link: u32,
    },
    RestorePodNeighbour(Neighbour),
    PublishHostPort(HostPort),
    UnpublishHostPort(HostPort),
}

impl Action {
    pub(super) fn replaced_table(&self) -> Option<Table> {
        match self {
            Self::ReplaceTable(table, _) => Some(*table),
            _ => None,
        }
    }
}

impl fmt::Display for Action {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::SetSysctl { name, value, found } => {
                write!(f, "set sysctl net/{name} to {value} (was {found})")
            }
            Self::ReplaceTable(table, fault) => {
                let fault = match fault {
                    TableFault::Missing => "was missing",
                    TableFault::OtherVersion => "had another version",
                    TableFault::Changed => "was changed",
                };
                write!(f, "replace nftables table inet {} ({fault})", table.name())
            }
            Self::FillSets => f.write_str("fill the sets of nftables table inet headcni"),
            Self::AddToSets(Sets::Cluster) => {
                f.write_str("add the cluster's prefixes to the masquerade sets")
            }
            Self::AddToSets(Sets::Excluded) => {
                f.write_str("add the cluster's prefixes to the hostPort sets")
            }
            Self::RemoveFromSets(prefixes) => {
                write!(f, "remove {} from the sets", truncate_list(prefixes, ", "))
            }
            Self::AddGateway(gateway) => write!(f, "add gateway {gateway} to lo"),
            Self::RemoveGateway(gateway) => write!(f, "remove gateway {gateway} from lo"),
            Self::AddUnreachableRoute(prefix) => write!(f, "add route unreachable {prefix}"),
            Self::RemoveUnreachableRoute(prefix) => write!(f, "remove route unreachable {prefix}"),
            Self::ReplaceMeshRoutes(routes) => {
                write!(f, "replace mesh routes to {}", destinations(routes))
            }
            Self::RemoveMeshRoutes(routes) => {
                write!(f, "remove mesh routes to {}", destinations(routes))
            }
            Self::AddRule(rule) => write!(f, "add rule {} to {}", rule.priority, rule.to),
            Self::RemoveRule(rule) => write!(f, "remove rule {} to {}", rule.priority, rule.to),
            Self::SetLinkUp { name, .. } => write!(f, "set mesh link {name} up"),
            Self::SetFeature {
                name,
                feature,
                switch,
                ..
            } => write!(f, "set {feature} of {name} {switch}"),
            Self::RestorePodRoute { address, .. } => write!(f, "restore route to pod {address}"),
            Self::RestorePodNeighbour(neighbour) => {
                write!(f, "restore neighbour of pod {}", neighbour.address)
            }
            Self::PublishHostPort(port) => write!(f, "publish hostPort {port} of {}", port.pod),
            Self::UnpublishHostPort(port) => {
                write!(f, "remove hostPort {port} of {}, which is gone", port.pod)
            }
        }
    }
}

fn destinations(routes: &[Route]) -> String {
    truncate_list(routes.iter().map(|route| route.dst), ", ")
}

#[cfg(test)]
mod tests {
    use net::{PROTO_HEADCNI, RouteKind};

    use super::*;

    #[test]
    fn a_long_list_of_routes_is_truncated() {
        let route = |n| {
            let prefix: IpNet = format!("10.244.{n}.0/24").parse().unwrap();
            Route::new(prefix, RouteKind::Unreachable, PROTO_HEADCNI)
        };
        let text = |count| Action::ReplaceMeshRoutes((0..count).map(route).collect()).to_string();
        assert_eq!(text(1), "replace mesh routes to 10.244.0.0/24");
        let all = "10.244.0.0/24, 10.244.1.0/24, 10.244.2.0/24, 10.244.3.0/24 and 196 more";
        assert_eq!(text(200), format!("replace mesh routes to {all}"));
    }
}
