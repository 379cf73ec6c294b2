//! The numbers of our rules and routes, all ahead of Tailscale's rules, which begin at 5210.

use net::Mark;

/// Keeps packets to this node's own pods in table `main`, whatever else is configured: in native mode
/// it has a route to each pod, in bridge mode the bridge's, and under both an unreachable one.
pub const PRIORITY_LOCAL: u32 = 5190;
/// Keeps tailscaled's own packets out of the mesh: it takes the pods' gateways for endpoints of
/// peers and tries them.
pub const PRIORITY_MARKED: u32 = 5195;
/// Sends packets to the cluster CIDR to our table.
pub const PRIORITY_MESH: u32 = 5200;
/// Worse than any route to a pod, and than a bridge's to all of them.
pub const METRIC_UNREACHABLE: u32 = 4_000_000;
/// What tailscaled puts on its own packets: `linuxfw.TailscaleBypassMark`.
pub const TAILSCALED_MARK: Mark = Mark {
    value: 0x8_0000,
    mask: 0xff_0000,
};
/// The nftables table between the host and the netns of our tailscaled.
pub const NETNS_TABLE: &str = "headcni-mesh";

/// A node gets at most this many extra host routes: each is a route on every other node.
pub const MAX_EXTRA_HOST_ROUTES: usize = 64;
/// The most routes that one node can serve: one per family, the former ones while they change, and
/// the extra host routes.
pub const MAX_NODE_ROUTES: usize = MAX_EXTRA_HOST_ROUTES + 4;
