//! Whether pods reach each other, by which way, and as whom.

use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use anyhow::{Context, Result};
use lab::scenario::{AttachedPod, MeshCluster, MeshNode, MeshPath};
use lab::{EchoServer, Family, Netns, PingStream, eventually, latency};

/// How often one pod pings another.
const PINGS: u32 = 10;
/// How long nodes may look for direct paths. Packets flow meanwhile, by the relay.
const SEARCH: Duration = Duration::from_secs(15);

/// A pod, and where it lives.
pub(super) struct Inhabitant {
    /// Of the node among the cluster's.
    pub(super) index: usize,
    pub(super) pod: AttachedPod,
}

impl Inhabitant {
    /// Has the plugin attach two pods on every node.
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

/// What was seen from one pod to another.
#[derive(Debug)]
pub(super) struct Way {
    pub(super) from: String,
    pub(super) to: String,
    pub(super) path: String,
    /// By IPv4 and by IPv6.
    pub(super) by: [Outcome; 2],
}

/// What was seen by one family.
#[derive(Debug)]
pub(super) enum Outcome {
    /// It came.
    Reached {
        latency: Duration,
        /// As whom the receiver saw the sender.
        is_source_kept: bool,
    },
    /// Why it didn't.
    Failed(String),
}

/// Gives nodes a while to find direct paths. That some have none is no failure.
pub(super) fn await_direct(cluster: &MeshCluster, pods: &[Inhabitant]) {
    let pairs = pods
        .iter()
        .flat_map(|from| pods.iter().map(move |to| (from, to)));
    let apart = pairs.filter(|(from, to)| from.index < to.index);
    // A path is looked for while there is something to send.
    let pulses =
        apart.filter_map(|(from, to)| PingStream::ping(&from.pod.pod, *to.pod.ips.first()?).ok());
    let _pulses: Vec<PingStream> = pulses.collect();
    let members = &cluster.nodes;
    let is_direct = |from: &MeshNode, to: &MeshNode| {
        from.number == to.number || from.path_to(to).is_ok_and(|path| path == MeshPath::Direct)
    };
    let _ = eventually(SEARCH, "direct paths", || {
        let mut all = members.iter();
        all.all(|from| members.iter().all(|to| is_direct(from, to)))
            .then_some(())
    });
}

/// From every pod to every other.
pub(super) fn all(cluster: &MeshCluster, pods: &[Inhabitant]) -> Result<Vec<Way>> {
    let mut ways = Vec::new();
    for from in pods {
        for to in pods.iter().filter(|to| to.name() != from.name()) {
            let by = [Family::V4, Family::V6].map(|family| outcome(from, to, family));
            let path = if from.index == to.index {
                "same node".to_owned()
            } else {
                let [source, target] = [from, to].map(|pod| &cluster.nodes[pod.index]);
                source.path_to(target)?.to_string()
            };
            let (from, to) = (from.name(), to.name());
            ways.push(Way { from, to, path, by });
        }
    }
    Ok(ways)
}

fn outcome(from: &Inhabitant, to: &Inhabitant, family: Family) -> Outcome {
    // Packets are lost when a path changes, as it does soon after nodes have met. That is no failure
    // unless it lasts.
    let outcome = try_way(from, to, family).or_else(|_| try_way(from, to, family));
    match outcome {
        Ok((latency, is_source_kept)) => Outcome::Reached {
            latency,
            is_source_kept,
        },
        Err(error) => Outcome::Failed(format!("{error:#}")),
    }
}

fn try_way(from: &Inhabitant, to: &Inhabitant, family: Family) -> Result<(Duration, bool)> {
    let (own, address) = (from.ip(family)?, to.ip(family)?);
    let times = latency(&from.pod.pod, address, PINGS)?;
    let server = EchoServer::start(&to.pod.pod, family, 0)?;
    let server_address = SocketAddr::new(address, server.port()?);
    let seen = from.pod.pod.call_echo(server_address, "hello")?;
    Ok((times.p50, seen == own))
}

impl Inhabitant {
    /// Its address of a family.
    pub(super) fn ip(&self, family: Family) -> Result<IpAddr> {
        let is_wanted = |ip: &&IpAddr| ip.is_ipv4() == (family == Family::V4);
        let found = self.pod.ips.iter().find(is_wanted);
        found
            .copied()
            .with_context(|| format!("{} has no address by {family:?}", self.name()))
    }
}
