//! The routes to other nodes' pods, and what protects them.

use std::fmt;
use std::net::{Ipv4Addr, Ipv6Addr};

use ipnet::IpNet;

use super::{Desired, Observed};
use node_core::cidr::overlap;
use node_core::tailnet::{TAILNET, guarded_destinations};

/// The desired routes into the mesh.
///
/// `None` in [`Desired`] disables the mesh and removes its routes. While tailscaled is down or Headscale
/// is unreachable, pass the last known routes: then no packet leaks to the default route.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MeshRoutes {
    /// tailscaled's interface, or the veth to its netns. It may be missing.
    pub link: String,
    /// The peer address of that veth; `None` where the link is tailscaled's own.
    pub via_ipv4: Option<Ipv4Addr>,
    pub via_ipv6: Option<Ipv6Addr>,
    /// Accepted pod CIDRs of other nodes.
    pub peer_routes: Vec<IpNet>,
    /// More specific prefixes that tailscaled would send to another peer: they become unreachable.
    pub shadowed: Vec<IpNet>,
    /// Tailnet addresses that no other interface may carry packets to.
    pub peer_ips: Vec<Ipv4Addr>,
    /// Addresses of local pods outside the node's pod CIDRs: the mesh must not carry packets to them.
    pub extra_host_routes: Vec<IpNet>,
    /// Tune the links that the mesh's packets arrive on.
    pub tune_links: bool,
    /// Our own tailscaled made the link, so it is set up if it is down.
    pub is_managed: bool,
}

/// A peer route that is not installed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RejectedRoute {
    pub route: IpNet,
    /// A pod CIDR of this node, or a prefix of the tailnet.
    pub overlaps: IpNet,
}

impl fmt::Display for RejectedRoute {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { route, overlaps } = self;
        write!(f, "peer route {route} rejected: it overlaps {overlaps}")
    }
}

impl MeshRoutes {
    /// Destinations besides pods that only the mesh may carry packets to. Where tailscaled has its own
    /// netns, these addresses may belong to the host's tailscaled in another tailnet.
    pub(super) fn guarded(&self) -> Vec<IpNet> {
        if self.is_in_netns() {
            return Vec::new();
        }
        guarded_destinations(&self.peer_ips)
    }

    fn is_in_netns(&self) -> bool {
        self.via_ipv4.is_some() || self.via_ipv6.is_some()
    }

    /// Why other nodes are unreachable, with the remedy.
    fn unreachable_reason(&self, observed: &Observed) -> Option<String> {
        let link = &self.link;
        let reason = match observed.mesh_link(self) {
            Some(found) if found.is_up => return None,
            // This reconcile sets it up.
            Some(_) if self.is_managed => return None,
            None if self.is_in_netns() => {
                format!("{link} is missing; the mesh controller creates it (MeshJoined)")
            }
            None => format!("{link} is missing; tailscaled creates it at start (MeshJoined)"),
            Some(_) if self.is_in_netns() => {
                format!("{link} is down; the mesh controller sets it up (MeshJoined)")
            }
            Some(_) => format!(
                "{link} is down: run \"ip link set {link} up\" on this node, then restart tailscaled, \
                 which does not restore the routes that the link lost"
            ),
        };
        Some(format!("other nodes are unreachable: {reason}"))
    }

    /// The same without peer routes that must not be installed. The mesh controller has selected them
    /// already; this is the last check that no route leads away from local pods.
    pub(super) fn without_overlaps(&self, local: &[IpNet]) -> (Self, Vec<RejectedRoute>) {
        let is_ipv4 = |net: &IpNet| net.addr().is_ipv4();
        let mut rejected = Vec::new();
        let mut peer_routes: Vec<IpNet> = self.peer_routes.iter().map(IpNet::trunc).collect();
        peer_routes.sort_unstable();
        peer_routes.dedup();
        peer_routes.retain(|route| {
            let mut taken = local.iter().chain(&TAILNET);
            let overlapped = taken.find(|net| overlap(net, route));
            rejected.extend(overlapped.map(|overlaps| RejectedRoute {
                route: *route,
                overlaps: *overlaps,
            }));
            // Without a local address of the family there is no source address.
            overlapped.is_none() && local.iter().any(|net| is_ipv4(net) == is_ipv4(route))
        });
        let accepted = Self {
            peer_routes,
            ..self.clone()
        };
        (accepted, rejected)
    }
}

pub(super) struct Summary<'a>(pub(super) &'a Desired);

impl fmt::Display for Summary<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self(desired) = self;
        write!(f, "{desired}")?;
        let Some(mesh) = &desired.mesh else {
            return Ok(());
        };
        let (link, count) = (&mesh.link, mesh.peer_routes.len());
        write!(f, ", {count} peer routes via {link}")?;
        let mut rejected = desired.rejected.iter();
        rejected.try_for_each(|rejected| write!(f, "; {rejected}"))
    }
}

/// What no reconcile can repair, with the remedy.
pub(super) fn unreachable_reason(desired: &Desired, observed: &Observed) -> Option<String> {
    desired.mesh.as_ref()?.unreachable_reason(observed)
}

#[cfg(test)]
mod tests {
    use super::*;
    use node_config::Networks;

    fn networks(text: &str) -> Vec<IpNet> {
        text.parse::<Networks>().unwrap().0
    }

    #[test]
    fn peer_routes_that_overlap_local_pod_cidrs_or_the_tailnet_are_rejected() {
        let peer_routes = "10.244.4.0/24,10.244.3.0/24,10.244.3.128/25,10.0.0.0/8,0.0.0.0/0,\
                           100.64.7.0/24,fd00:4::/64,10.244.2.0/24";
        let mesh = MeshRoutes {
            peer_routes: networks(peer_routes),
            ..MeshRoutes::default()
        };
        let (accepted, rejected) = mesh.without_overlaps(&networks("10.244.3.0/24"));
        assert_eq!(
            accepted.peer_routes,
            networks("10.244.2.0/24,10.244.4.0/24")
        );
        let rejected: Vec<String> = rejected.iter().map(RejectedRoute::to_string).collect();
        let expected = [
            "peer route 0.0.0.0/0 rejected: it overlaps 10.244.3.0/24",
            "peer route 10.0.0.0/8 rejected: it overlaps 10.244.3.0/24",
            "peer route 10.244.3.0/24 rejected: it overlaps 10.244.3.0/24",
            "peer route 10.244.3.128/25 rejected: it overlaps 10.244.3.0/24",
            "peer route 100.64.7.0/24 rejected: it overlaps 100.64.0.0/10",
        ];
        assert_eq!(rejected, expected);
    }
}
