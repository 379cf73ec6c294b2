//! The mesh as the rest of the agent sees it.

use std::net::{IpAddr, Ipv4Addr};

use ipnet::IpNet;
use serde::{Deserialize, Serialize};

/// What the mesh controller publishes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MeshState {
    /// The host's interface into the mesh; nothing while it is unknown.
    pub link: Option<MeshLink>,
    /// The accepted routes of peers, sorted.
    pub peer_routes: Vec<IpNet>,
    /// Parts of them that the mesh would send to another peer, sorted.
    pub shadowed: Vec<IpNet>,
    /// IPv4 addresses of all peers that the no-clear-text guard knows one by one.
    pub peer_ips: Vec<Ipv4Addr>,
    /// Addresses of this node's pods outside its pod CIDRs.
    pub extra_host_routes: Vec<IpNet>,
    /// Whether Headscale ever made this node the primary of its pod CIDRs.
    pub has_served: bool,
    /// This node's tailnet addresses; none until they are known.
    pub tailnet_ips: Vec<IpAddr>,
}

/// The interface that packets enter the mesh by.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct MeshLink {
    /// Its name in the host's netns.
    pub name: String,
    /// The next hop per IP family, if the interface is not tailscaled's own but leads to its netns.
    pub via: Vec<IpAddr>,
}
