//! How much goes through, from the first node to the second.

use std::net::IpAddr;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use lab::scenario::{MeshCluster};
use lab::{Family, Load, Netns, throughput};

use super::reach::Inhabitant;

const LOAD: Load = Load::Tcp { streams: 1 };

/// What one way carries.
#[derive(Clone, Debug)]
pub(super) struct Speed {
    pub(super) way: &'static str,
    /// Bits per second by IPv4 and IPv6.
    pub(super) by: [f64; 2],
}

/// From pod to pod, and between their nodes by the same tailscaled.
pub(super) fn over_mesh(
    cluster: &MeshCluster,
    pods: &[Inhabitant],
    time: Duration,
) -> Result<Vec<Speed>> {
    let pod_on = |index: usize| {
        let found = pods.iter().find(|pod| pod.index == index);
        found.with_context(|| format!("no pod on node {}", index + 1))
    };
    let (from, to) = (pod_on(0)?, pod_on(1)?);
    let addresses = [to.ip(Family::V4)?, to.ip(Family::V6)?];
    let between_pods = Speed {
        way: "pod to pod, over the mesh",
        by: measure(&from.pod.pod, &to.pod.pod, addresses, time)?,
    };
    let [first, second] = [0, 1].map(|index| &cluster.nodes[index]);
    let addresses = second.tailnet_ips()?;
    ensure!(addresses.len() == 2, "node-2 has {addresses:?} on the mesh");
    let between_nodes = Speed {
        way: "node to node, over the same mesh",
        by: measure(&first.node, &second.node, [addresses[0], addresses[1]], time)?,
    };
    Ok(vec![between_pods, between_nodes])
}

/// Between the same nodes without the mesh.
pub(super) fn over_underlay(cluster: &MeshCluster, time: Duration) -> Result<Speed> {
    let [first, second] = [0, 1].map(|index| &cluster.nodes[index]);
    let port = &cluster.topology.ports[1];
    let v6 = port.v6.context("node-2 has no IPv6 on the underlay")?;
    Ok(Speed {
        way: "node to node, without the mesh (in clear)",
        by: measure(&first.node, &second.node, [port.v4.into(), v6.into()], time)?,
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
