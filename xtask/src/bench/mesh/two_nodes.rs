//! Two nodes with a pod each; traffic goes from the first to the second.

use std::fs;
use std::net::IpAddr;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use lab::scenario::{AttachedPod, MeshCluster, MeshPath};
use lab::{Latency, Load, Netns, Node, PingStream, eventually};

use super::IpFamily;

const DIRECT_PATH_TIMEOUT: Duration = Duration::from_secs(30);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Endpoints {
    /// Node to node, unencrypted.
    Underlay,
    /// Node to node over the mesh.
    Nodes,
    /// Pod to pod over the same mesh.
    Pods,
}

impl Endpoints {
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Underlay => "node to node, no mesh",
            Self::Nodes => "node to node, mesh",
            Self::Pods => "pod to pod, mesh",
        }
    }
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Sent {
    pub(super) bits_per_second: f64,
    /// CPU seconds of both tailscaleds per gigabyte.
    pub(super) cpu_per_gigabyte: f64,
}

pub(super) struct TwoNodes {
    nodes: [Node; 2],
    pods: [AttachedPod; 2],
    /// Of the second node, on the underlay and on the mesh.
    addresses: [[IpAddr; 2]; 2],
    tailscaleds: [u32; 2],
}

impl TwoNodes {
    pub(super) fn new(cluster: &MeshCluster) -> Result<Self> {
        let [first, second] = &cluster.nodes[..] else {
            anyhow::bail!("the cluster must have two nodes");
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

    /// The first packets go through the relay, which is not measured.
    pub(super) fn await_direct(&self, cluster: &MeshCluster) -> Result<()> {
        let _pulse = PingStream::ping(
            &self.pods[0].pod,
            self.address(Endpoints::Pods, IpFamily::Ipv4)?,
        )?;
        let [first, second] = &cluster.nodes[..] else {
            anyhow::bail!("the cluster must have two nodes");
        };
        for (from, to) in [(first, second), (second, first)] {
            eventually(DIRECT_PATH_TIMEOUT, "a direct path", || {
                (from.path_to(to).ok()? == MeshPath::Direct).then_some(())
            })?;
        }
        Ok(())
    }

    pub(super) fn throughput(
        &self,
        ends: Endpoints,
        family: IpFamily,
        load: Load,
        time: Duration,
    ) -> Result<Sent> {
        let before = self.cpu_seconds()?;
        let address = self.address(ends, family)?;
        let measured = if ends == Endpoints::Pods {
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
            cpu_per_gigabyte: (self.cpu_seconds()? - before) / gigabytes,
        })
    }

    /// Of both tailscaleds.
    fn cpu_seconds(&self) -> Result<f64> {
        let mut seconds = 0.0;
        for pid in self.tailscaleds {
            let path = format!("/proc/{pid}/stat");
            let stat = fs::read_to_string(&path).with_context(|| format!("read {path}"))?;
            seconds += cpu_seconds(&stat).with_context(|| format!("parse {path}"))?;
        }
        Ok(seconds)
    }

    pub(super) fn latency(&self, ends: Endpoints, family: IpFamily, count: u32) -> Result<Latency> {
        let address = self.address(ends, family)?;
        if ends == Endpoints::Pods {
            lab::latency(&self.pods[0].pod, address, count)
        } else {
            lab::latency(&self.nodes[0], address, count)
        }
    }

    /// The destination address.
    fn address(&self, ends: Endpoints, family: IpFamily) -> Result<IpAddr> {
        let [underlay, mesh] = &self.addresses;
        let of = |all: &[IpAddr]| {
            let is_of_family = |ip: &&IpAddr| ip.is_ipv4() == (family == IpFamily::Ipv4);
            all.iter().find(is_of_family).copied()
        };
        let found = match ends {
            Endpoints::Underlay => of(underlay),
            Endpoints::Nodes => of(mesh),
            Endpoints::Pods => of(&self.pods[1].ips),
        };
        found.with_context(|| format!("no {} address: {}", family.name(), ends.name()))
    }

    /// Runs a program on both nodes.
    pub(super) fn run_on_both(&self, line: &[&str]) -> Result<()> {
        for node in &self.nodes {
            node.run(line)?;
        }
        Ok(())
    }
}

/// User and system time, in hundredths of a second on every Linux.
fn cpu_seconds(stat: &str) -> Option<f64> {
    let (_, fields) = stat.rsplit_once(')')?;
    let times = fields.split_whitespace().skip(11).take(2);
    let ticks: Vec<f64> = times.filter_map(|text| text.parse().ok()).collect();
    (ticks.len() == 2).then(|| ticks.iter().sum::<f64>() / 100.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cpu_time_is_parsed_after_any_program_name() {
        let stat = "7 (a) b (c) S 1 2 3 4 5 6 7 8 9 10 250 50 0 0 20 0 9 0";
        assert_eq!(cpu_seconds(stat), Some(3.0));
        assert_eq!(cpu_seconds("7 (a) S 1 2"), None);
    }
}
