//! Throughput of one TCP connection from the first node to the second.

use std::net::IpAddr;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use lab::scenario::MeshCluster;
use lab::{Family, Load, Netns, throughput};

use super::pairs::DemoPod;

const LOAD: Load = Load::Tcp { streams: 1 };

#[derive(Debug)]
pub(super) struct PathThroughput {
    pub(super) path: &'static str,
    /// Over IPv4 and IPv6.
    pub(super) bits_per_second: [f64; 2],
}

/// Between pods, and between their nodes over the same tailscaled.
pub(super) fn over_mesh(
    cluster: &MeshCluster,
    pods: &[DemoPod],
    time: Duration,
) -> Result<Vec<PathThroughput>> {
    let pod_on = |index: usize| {
        let found = pods.iter().find(|pod| pod.index == index);
        found.with_context(|| format!("no pod on node {}", index + 1))
    };
    let (from, to) = (pod_on(0)?, pod_on(1)?);
    let addresses = [to.ip(Family::V4)?, to.ip(Family::V6)?];
    let between_pods = PathThroughput {
        path: "pod to pod, over the mesh",
        bits_per_second: measure(&from.pod.pod, &to.pod.pod, addresses, time)?,
    };
    let [first, second] = [0, 1].map(|index| &cluster.nodes[index]);
    let addresses = second.tailnet_ips()?;
    ensure!(addresses.len() == 2, "node-2 has {addresses:?} on the mesh");
    let between_nodes = PathThroughput {
        path: "node to node, over the same mesh",
        bits_per_second: measure(
            &first.node,
            &second.node,
            [addresses[0], addresses[1]],
            time,
        )?,
    };
    Ok(vec![between_pods, between_nodes])
}

pub(super) fn over_underlay(cluster: &MeshCluster, time: Duration) -> Result<PathThroughput> {
    let [first, second] = [0, 1].map(|index| &cluster.nodes[index]);
    let port = &cluster.topology.ports[1];
    let v6 = port.v6.context("node-2 has no IPv6 on the underlay")?;
    Ok(PathThroughput {
        path: "node to node, without the mesh (unencrypted)",
        bits_per_second: measure(&first.node, &second.node, [port.v4.into(), v6.into()], time)?,
    })
}

fn measure(
    from: &impl Netns,
    to: &impl Netns,
    addresses: [IpAddr; 2],
    time: Duration,
) -> Result<[f64; 2]> {
    let [v4, v6] = addresses.map(|address| throughput(from, (to, address), LOAD, time));
    Ok([v4?.bits_per_second, v6?.bits_per_second])
}
