//! The ways that are compared, all from the first node to the second.

use std::fs;
use std::net::IpAddr;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use lab::scenario::{AttachedPod, MeshCluster, MeshPath};
use lab::{Latency, Load, Netns, Node, PingStream, eventually};

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
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Underlay => "node to node, no mesh",
            Self::Nodes => "node to node, mesh",
            Self::Pods => "pod to pod, mesh",
        }
    }
}

/// What came of sending for a while.
#[derive(Clone, Copy, Debug)]
pub(super) struct Sent {
    pub(super) bits_per_second: f64,
    /// Seconds of processors that both tailscaleds needed for a gigabyte.
    pub(super) cost: f64,
}

/// Two nodes and a pod on each.
pub(super) struct Stage {
    nodes: [Node; 2],
    pods: [AttachedPod; 2],
    /// The second node's on the underlay, then on the mesh.
    addresses: [[IpAddr; 2]; 2],
    tailscaleds: [u32; 2],
}

impl Stage {
    pub(super) fn new(cluster: &MeshCluster) -> Result<Self> {
        let [first, second] = &cluster.nodes[..] else {
            anyhow::bail!("a comparison takes two nodes");
        };
        let port = &cluster.topology.ports[1];
        let v6 = port.v6.context("no IPv6 on the underlay")?;
        let mesh = second.tailnet_ips()?;
        ensure!(mesh.len() == 2, "the second node has {mesh:?} on the mesh");
        Ok(Self {
            nodes: [first.node.clone(), second.node.clone()],
            pods: [first.pod("p")?, second.pod("p")?],
            addresses: [[port.v4.into(), v6.into()], [mesh[0], mesh[1]]],
            tailscaleds: [first.tailscaled_pid()?, second.tailscaled_pid()?],
        })
    }

    /// Packets go by the relay at first, which is not what is compared.
    pub(super) fn await_direct(&self, cluster: &MeshCluster) -> Result<()> {
        let _pulse = PingStream::ping(&self.pods[0].pod, self.address(Way::Pods, Family::Ipv4)?)?;
        let [first, second] = &cluster.nodes[..] else {
            anyhow::bail!("a comparison takes two nodes");
        };
        for (from, to) in [(first, second), (second, first)] {
            eventually(SEARCH, "a direct path", || {
                (from.path_to(to).ok()? == MeshPath::Direct).then_some(())
            })?;
        }
        Ok(())
    }

    /// Sends as fast as it goes.
    pub(super) fn throughput(
        &self,
        way: Way,
        family: Family,
        load: Load,
        time: Duration,
    ) -> Result<Sent> {
        let used = self.used()?;
        let address = self.address(way, family)?;
        let measured = if way == Way::Pods {
            let [from, to] = &self.pods;
            lab::throughput(&from.pod, (&to.pod, address), load, time)
        } else {
            let [from, to] = &self.nodes;
            lab::throughput(from, (to, address), load, time)
        };
        let bits_per_second = measured?.bits_per_second;
        let gigabytes = bits_per_second * time.as_secs_f64() / 8e9;
        Ok(Sent {
            bits_per_second,
            cost: (self.used()? - used) / gigabytes,
        })
    }

    /// Seconds of processors that both tailscaleds have had.
    fn used(&self) -> Result<f64> {
        let mut seconds = 0.0;
        for pid in self.tailscaleds {
            let path = format!("/proc/{pid}/stat");
            let stat = fs::read_to_string(&path).with_context(|| format!("read {path}"))?;
            seconds += seconds_used(&stat).with_context(|| format!("understand {path}"))?;
        }
        Ok(seconds)
    }

    pub(super) fn latency(&self, way: Way, family: Family, count: u32) -> Result<Latency> {
        let address = self.address(way, family)?;
        if way == Way::Pods {
            lab::latency(&self.pods[0].pod, address, count)
        } else {
            lab::latency(&self.nodes[0], address, count)
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
        for node in &self.nodes {
            node.run(line)?;
        }
        Ok(())
    }
}

/// User and system time, in hundredths of a second on every Linux.
fn seconds_used(stat: &str) -> Option<f64> {
    let (_, fields) = stat.rsplit_once(')')?;
    let times = fields.split_whitespace().skip(11).take(2);
    let ticks: Vec<f64> = times.filter_map(|text| text.parse().ok()).collect();
    (ticks.len() == 2).then(|| ticks.iter().sum::<f64>() / 100.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn processor_time_is_read_whatever_the_program_is_called() {
        let stat = "7 (a) b (c) S 1 2 3 4 5 6 7 8 9 10 250 50 0 0 20 0 9 0";
        assert_eq!(seconds_used(stat), Some(3.0));
        assert_eq!(seconds_used("7 (a) S 1 2"), None);
    }
}
