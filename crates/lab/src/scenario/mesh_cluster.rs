//! Nodes that run the real headcni-daemon over a real Headscale.
//!
//! Node number N is called `node-N` and has the pod CIDRs 10.244.N.0/24 and `fd00:10:244:N::/64`, or
//! one of them.

use std::fs;
use std::mem;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result};
use ipnet::{IpNet, Ipv4Net, Ipv6Net};

use super::install_plugins;
use super::mesh_node::MeshNode;
use crate::headscale::{Headscale, open_policy};
use crate::netns::Netns;
use crate::node::Node;
use crate::sniffer::Sniffer;
use crate::tools::{self, GoModule};
use crate::traffic::Family;
use crate::underlay::{Nat, NatKind, Port, Underlay};
use crate::wait::eventually;

/// The tag of all nodes.
pub const NODE_TAG: &str = "tag:k8s-node";
/// How long a node may take to join, on a busy machine.
pub const JOIN_TIMEOUT: Duration = Duration::from_mins(1);
pub const CLUSTER_CIDRS: [IpNet; 2] = [
    IpNet::V4(Ipv4Net::new_assert(Ipv4Addr::new(10, 244, 0, 0), 16)),
    IpNet::V6(Ipv6Net::new_assert(
        Ipv6Addr::new(0xfd00, 0x10, 0x244, 0, 0, 0, 0, 0),
        48,
    )),
];

/// The daemon's route table; a host tailscaled has its own.
const MESH_TABLE: &str = "table 26723";
const BOTH: &[Family] = &[Family::V4, Family::V6];

/// Where a node is attached.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Site {
    /// To the switch.
    Open,
    /// Behind a router with NAT.
    BehindNat,
}

/// The machines and their cables: a switch, the server's node, and the cluster's nodes.
#[derive(Clone, Debug)]
pub struct Topology {
    pub underlay: Underlay,
    /// The node for Headscale and, if there is one, the Kubernetes control plane.
    pub server: Node,
    pub server_port: Port,
    pub nat: Option<Nat>,
    pub nodes: Vec<Node>,
    pub ports: Vec<Port>,
}

impl Topology {
    pub fn new(sites: &[Site]) -> Result<Self> {
        let underlay = Underlay::new()?;
        let server = Node::new("headscale")?;
        let server_port = underlay.plug(&server)?;
        let has_nat = sites.contains(&Site::BehindNat);
        let nat = has_nat.then(|| underlay.nat(NatKind::Easy)).transpose()?;
        let (mut nodes, mut ports) = (Vec::new(), Vec::new());
        for (index, site) in sites.iter().enumerate() {
            let node = Node::new(&format!("node-{}", index + 1))?;
            ports.push(match (site, &nat) {
                (Site::BehindNat, Some(nat)) => nat.plug(&node)?,
                _ => underlay.plug(&node)?,
            });
            nodes.push(node);
        }
        Ok(Self {
            underlay,
            server,
            server_port,
            nat,
            nodes,
            ports,
        })
    }

    /// Starts to sniff every cable: those of the switch, and those behind the NAT, which hides the
    /// addresses of its packets from the switch.
    pub fn sniff(&self) -> Result<Vec<Sniffer>> {
        let switch = self.underlay.sniff(&CLUSTER_CIDRS);
        let router = self.nat.as_ref().map(|nat| nat.sniff(&CLUSTER_CIDRS));
        [switch].into_iter().chain(router).collect()
    }
}

/// Headscale and nodes. When it is dropped, it fails the test if a packet of a pod, or for a tailnet
/// address, crossed a cable in clear.
#[derive(Debug)]
pub struct MeshCluster {
    pub topology: Topology,
    pub headscale: Headscale,
    pub nodes: Vec<MeshNode>,
    families: &'static [Family],
    sniffers: Vec<Sniffer>,
    forbid_strays: bool,
}

/// What a [`MeshCluster`] is made of. The default is two open nodes with dual-stack pods.
#[derive(Clone, Debug)]
pub struct MeshClusterBuilder {
    sites: Vec<Site>,
    families: &'static [Family],
    headscale: GoModule,
    is_sniffed: bool,
    forbid_strays: bool,
}

impl MeshClusterBuilder {
    #[must_use]
    pub fn sites(mut self, sites: &[Site]) -> Self {
        self.sites = sites.to_vec();
        self
    }

    /// The address families of pods.
    #[must_use]
    pub fn families(mut self, families: &'static [Family]) -> Self {
        self.families = families;
        self
    }

    #[must_use]
    pub fn headscale(mut self, version: &GoModule) -> Self {
        self.headscale = *version;
        self
    }

    /// Also fails the test if a packet was sent to an address outside the lab.
    #[must_use]
    pub fn forbid_strays(mut self) -> Self {
        self.forbid_strays = true;
        self
    }

    /// For tests where something else than headcni sends packets of pods in clear.
    #[must_use]
    pub fn without_sniffers(mut self) -> Self {
        self.is_sniffed = false;
        self
    }

    /// Makes the machines and starts Headscale. No daemon runs yet.
    ///
    /// # Panics
    ///
    /// If that fails, as a test would.
    #[track_caller]
    pub fn prepare(self) -> MeshCluster {
        self.try_prepare()
            .unwrap_or_else(|error| panic!("prepare a mesh cluster: {error:#}"))
    }

    /// Also starts all daemons and waits until every node is ready and has routes to the others.
    ///
    /// # Panics
    ///
    /// If that fails, as a test would.
    #[track_caller]
    pub fn start(self) -> MeshCluster {
        let mut cluster = self.prepare();
        cluster
            .start_daemons()
            .unwrap_or_else(|error| panic!("start a mesh cluster: {error:#}"));
        cluster
    }

    fn try_prepare(self) -> Result<MeshCluster> {
        let topology = Topology::new(&self.sites)?;
        let sniffers = if self.is_sniffed {
            topology.sniff()?
        } else {
            Vec::new()
        };
        let mut cluster = MeshCluster::with(topology, &self.headscale, self.families)?;
        cluster.sniffers = sniffers;
        cluster.forbid_strays = self.forbid_strays;
        Ok(cluster)
    }
}

impl MeshCluster {
    /// `count` open nodes that have joined the mesh and have routes to each other's pods.
    #[track_caller]
    pub fn start(count: usize) -> Self {
        Self::builder().sites(&vec![Site::Open; count]).start()
    }

    /// `count` open nodes with their configuration in place and no daemon running.
    #[track_caller]
    pub fn prepare(count: usize) -> Self {
        Self::builder().sites(&vec![Site::Open; count]).prepare()
    }

    pub fn builder() -> MeshClusterBuilder {
        MeshClusterBuilder {
            sites: vec![Site::Open; 2],
            families: BOTH,
            headscale: tools::HEADSCALE,
            is_sniffed: true,
            forbid_strays: false,
        }
    }

    /// A cluster on machines that exist already, without sniffers.
    pub fn on(topology: Topology) -> Result<Self> {
        Self::with(topology, &tools::HEADSCALE, BOTH)
    }

    fn with(topology: Topology, version: &GoModule, families: &'static [Family]) -> Result<Self> {
        let address = IpAddr::V4(topology.server_port.v4);
        let headscale = Headscale::start(&topology.server, version, address)?;
        headscale.set_policy(&open_policy(NODE_TAG, &cluster_cidrs(families)))?;
        let mut cluster = Self {
            topology,
            headscale,
            nodes: Vec::new(),
            families,
            sniffers: Vec::new(),
            forbid_strays: false,
        };
        for (index, node) in cluster.topology.nodes.iter().enumerate() {
            let node = cluster.add_node(node, index + 1)?;
            cluster.nodes.push(node);
        }
        Ok(cluster)
    }

    /// Installs plugins, keys and configuration on one more node. Its number must be unused.
    pub fn add_node(&self, node: &Node, number: usize) -> Result<MeshNode> {
        let mesh_node = MeshNode::new(node, number, self.families);
        install_plugins(node)?;
        let ca = fs::read_to_string(self.headscale.ca_file()).context("read the CA")?;
        node.write("/etc/headcni/ca.pem", ca)?;
        node.write("/etc/headcni/api-key", self.headscale.api_key()?)?;
        node.run(["chmod", "0600", "/etc/headcni/api-key"])?;
        mesh_node.configure(&mesh_node.config(&self.headscale.url()))?;
        Ok(mesh_node)
    }

    /// Starts all daemons and waits until every node is ready and has routes to the others.
    pub fn start_daemons(&mut self) -> Result<()> {
        for node in &mut self.nodes {
            node.start_daemon()?;
        }
        for node in &self.nodes {
            node.await_ready(JOIN_TIMEOUT)?;
        }
        self.await_routes()
    }

    /// Waits until each node has a route to each other node's pod CIDRs.
    pub fn await_routes(&self) -> Result<()> {
        for node in &self.nodes {
            let peers = self.nodes.iter().filter(|peer| peer.number != node.number);
            let wanted: Vec<String> = peers.flat_map(MeshNode::pod_cidrs).collect();
            eventually(JOIN_TIMEOUT, "routes to all other nodes", || {
                let routes = node.node.routes().ok()?;
                let has_route = |cidr: &String| {
                    routes.iter().any(|route| {
                        route.split(' ').next() == Some(cidr) && route.contains(MESH_TABLE)
                    })
                };
                wanted.iter().all(has_route).then_some(())
            })
            .with_context(|| node.diagnostics())?;
        }
        Ok(())
    }

    /// A pod on each node, attached by the conflist that the daemon wrote.
    ///
    /// # Panics
    ///
    /// If an ADD fails.
    #[track_caller]
    pub fn pod_on_each(&self, name: &str) -> Vec<super::AttachedPod> {
        let attach = |node: &MeshNode| {
            node.pod(name)
                .unwrap_or_else(|error| panic!("{error:#}\n{}", node.diagnostics()))
        };
        self.nodes.iter().map(attach).collect()
    }
}

impl Drop for MeshCluster {
    fn drop(&mut self) {
        let sniffers = mem::take(&mut self.sniffers);
        // A second panic would abort the process and hide the first.
        if thread::panicking() {
            return;
        }
        for sniffer in sniffers {
            let report = sniffer.finish().and_then(|report| {
                report.check_nothing_in_clear()?;
                if self.forbid_strays {
                    report.check_no_strays()?;
                }
                Ok(())
            });
            if let Err(error) = report {
                panic!("{error:#}");
            }
        }
    }
}

pub(super) fn cluster_cidrs(families: &[Family]) -> Vec<IpNet> {
    let is_of = |net: &IpNet| match net {
        IpNet::V4(_) => families.contains(&Family::V4),
        IpNet::V6(_) => families.contains(&Family::V6),
    };
    CLUSTER_CIDRS.into_iter().filter(is_of).collect()
}
