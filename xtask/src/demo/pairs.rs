//! Every pod to every other pod: latency, path, and the source address that the receiver sees.

use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use anyhow::{Context, Result};
use lab::scenario::{AttachedPod, MeshCluster, MeshNode, MeshPath};
use lab::{EchoServer, Family, Netns, PingStream, eventually, latency};

const PINGS: u32 = 10;
/// Meanwhile packets go through the relay.
const DIRECT_PATH_TIMEOUT: Duration = Duration::from_secs(15);

pub(super) struct DemoPod {
    /// Index of its node in the cluster.
    pub(super) index: usize,
    pub(super) pod: AttachedPod,
}

impl DemoPod {
    /// Attaches two pods on every node with the plugin.
    pub(super) fn two_each(cluster: &MeshCluster) -> Result<Vec<Self>> {
        let mut all = Vec::new();
        for (index, member) in cluster.nodes.iter().enumerate() {
            for name in ["a", "b"] {
                let pod = member
                    .pod(name)
                    .with_context(|| format!("attach pod {name} on {}", member.node.name()))?;
                all.push(Self { index, pod });
            }
        }
        Ok(all)
    }

    /// As in `node-1/a`.
    pub(super) fn name(&self) -> String {
        let pod = &self.pod.pod;
        format!("{}/{}", pod.node().name(), pod.name())
    }
}

/// The results from one pod to another.
#[derive(Debug)]
pub(super) struct Pair {
    pub(super) from: String,
    pub(super) to: String,
    pub(super) path: String,
    /// Over IPv4 and IPv6.
    pub(super) results: [PairResult; 2],
}

#[derive(Debug)]
pub(super) enum PairResult {
    Reached {
        latency: Duration,
        /// The receiver sees the sender's own address.
        is_source_kept: bool,
    },
    Failed(String),
}

/// Gives nodes time to find direct paths. A pair without one is not a failure.
pub(super) fn await_direct(cluster: &MeshCluster, pods: &[DemoPod]) {
    let pairs = pods
        .iter()
        .flat_map(|from| pods.iter().map(move |to| (from, to)));
    let on_two_nodes = pairs.filter(|(from, to)| from.index < to.index);
    // tailscaled searches for a path only while there is traffic.
    let pulses = on_two_nodes
        .filter_map(|(from, to)| PingStream::ping(&from.pod.pod, *to.pod.ips.first()?).ok());
    let _pulses: Vec<PingStream> = pulses.collect();
    let members = &cluster.nodes;
    let is_direct = |from: &MeshNode, to: &MeshNode| {
        from.number == to.number || from.path_to(to).is_ok_and(|path| path == MeshPath::Direct)
    };
    let _ = eventually(DIRECT_PATH_TIMEOUT, "direct paths", || {
        let mut all = members.iter();
        all.all(|from| members.iter().all(|to| is_direct(from, to)))
            .then_some(())
    });
}

pub(super) fn test_all(cluster: &MeshCluster, pods: &[DemoPod]) -> Result<Vec<Pair>> {
    let mut tested = Vec::new();
    for from in pods {
        for to in pods.iter().filter(|to| to.name() != from.name()) {
            let results = [Family::V4, Family::V6].map(|family| test(from, to, family));
            let path = if from.index == to.index {
                "same node".to_owned()
            } else {
                let [source, target] = [from, to].map(|pod| &cluster.nodes[pod.index]);
                source.path_to(target)?.to_string()
            };
            let (from, to) = (from.name(), to.name());
            tested.push(Pair {
                from,
                to,
                path,
                results,
            });
        }
    }
    Ok(tested)
}

fn test(from: &DemoPod, to: &DemoPod, family: Family) -> PairResult {
    // Packets are lost when a path changes, so one retry.
    match try_once(from, to, family).or_else(|_| try_once(from, to, family)) {
        Ok((latency, is_source_kept)) => PairResult::Reached {
            latency,
            is_source_kept,
        },
        Err(error) => PairResult::Failed(format!("{error:#}")),
    }
}

fn try_once(from: &DemoPod, to: &DemoPod, family: Family) -> Result<(Duration, bool)> {
    let (own, address) = (from.ip(family)?, to.ip(family)?);
    let times = latency(&from.pod.pod, address, PINGS)?;
    let server = EchoServer::start(&to.pod.pod, family, 0)?;
    let server_address = SocketAddr::new(address, server.port()?);
    let seen = from.pod.pod.call_echo(server_address, "hello")?;
    Ok((times.p50, seen == own))
}

impl DemoPod {
    pub(super) fn ip(&self, family: Family) -> Result<IpAddr> {
        let is_of_family = |ip: &&IpAddr| ip.is_ipv4() == (family == Family::V4);
        let found = self.pod.ips.iter().find(is_of_family);
        found
            .copied()
            .with_context(|| format!("{} has no {family:?} address", self.name()))
    }
}
