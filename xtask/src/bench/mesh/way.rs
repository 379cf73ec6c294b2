//! The ways that are compared, all from the first node to the second.

use std::net::IpAddr;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use lab::{Attached, Cluster, Latency, Load, MeshPath, Netns, Node, Pulse, eventually};

use super::Family;

/// How long two nodes on one switch may look for a direct path.
const SEARCH: Duration = Duration::from_secs(30);

/// Who sends to whom.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Way {
    /// Node to node, in clear.
    Underlay,
    /// Node to node by their tailscaleds.
    Nodes,
    /// Pod to pod by the same tailscaleds.
    Pods,
}

impl Way {
    pub(super) const ALL: [Self; 3] = [Self::Underlay, Self::Nodes, Self::Pods];

    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Underlay => "node to node, no mesh",
            Self::Nodes => "node to node, mesh",
            Self::Pods => "pod to pod, mesh",
        }
    }
}

/// Two nodes and a pod on each.
pub(super) struct Stage<'a> {
    nodes: [&'a Node; 2],
    pods: [Attached<'a>; 2],
    /// The second node's on the underlay, then on the mesh.
    addresses: [[IpAddr; 2]; 2],
}

impl<'a> Stage<'a> {
    pub(super) fn new(cluster: &Cluster<'a>) -> Result<Self> {
        let [first, second] = &cluster.members[..] else {
            anyhow::bail!("a comparison takes two nodes");
        };
        let port = &cluster.grounds.ports[1];
        let v6 = port.v6.context("no IPv6 on the underlay")?;
        let mesh = second.mesh_addresses()?;
        ensure!(mesh.len() == 2, "the second node has {mesh:?} on the mesh");
        Ok(Self {
            nodes: [first.node, second.node],
            pods: [first.pod("p")?, second.pod("p")?],
            addresses: [[port.v4.into(), v6.into()], [mesh[0], mesh[1]]],
        })
    }

    /// Packets go by the relay at first, which is not what is compared.
    pub(super) fn await_direct(&self, cluster: &Cluster<'_>) -> Result<()> {
        let _pulse = Pulse::ping(&self.pods[0].pod, self.address(Way::Pods, Family::Ipv4)?)?;
        let [first, second] = &cluster.members[..] else {
            anyhow::bail!("a comparison takes two nodes");
        };
        for (from, to) in [(first, second), (second, first)] {
            eventually(SEARCH, "a direct path", || {
                (from.path_to(to).ok()? == MeshPath::Direct).then_some(())
            })?;
        }
        Ok(())
    }

    /// Bits per second.
    pub(super) fn throughput(
        &self,
        way: Way,
        family: Family,
        load: Load,
        time: Duration,
    ) -> Result<f64> {
        let address = self.address(way, family)?;
        let measured = if way == Way::Pods {
            let [from, to] = &self.pods;
            lab::throughput(&from.pod, (&to.pod, address), load, time)
        } else {
            let [from, to] = self.nodes;
            lab::throughput(from, (to, address), load, time)
        };
        Ok(measured?.bits_per_second)
    }

    pub(super) fn latency(&self, way: Way, family: Family, count: u32) -> Result<Latency> {
        let address = self.address(way, family)?;
        if way == Way::Pods {
            lab::latency(&self.pods[0].pod, address, count)
        } else {
            lab::latency(self.nodes[0], address, count)
        }
    }

    /// Where the second one is called.
    fn address(&self, way: Way, family: Family) -> Result<IpAddr> {
        let [underlay, mesh] = &self.addresses;
        let of = |all: &[IpAddr]| {
            let is_wanted = |ip: &&IpAddr| ip.is_ipv4() == (family == Family::Ipv4);
            all.iter().find(is_wanted).copied()
        };
        let found = match way {
            Way::Underlay => of(underlay),
            Way::Nodes => of(mesh),
            Way::Pods => of(&self.pods[1].ips),
        };
        found.with_context(|| format!("no {} address: {}", family.name(), way.name()))
    }

    /// Runs a program on both nodes.
    pub(super) fn on_nodes(&self, line: &[&str]) -> Result<()> {
        for node in self.nodes {
            node.run(line)?;
        }
        Ok(())
    }
}
