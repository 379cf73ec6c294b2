//! How soon a node that knows nothing serves its pods.

use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use lab::scenario::{JOIN_TIMEOUT, MeshCluster};
use lab::{Node};

/// Numbers that the cluster's own nodes don't have.
const FIRST: usize = 100;

/// Has one new machine after the other join.
pub(super) fn times(cluster: &MeshCluster, count: usize) -> Result<Vec<Duration>> {
    let join = |nth| {
        let number = FIRST + nth;
        let node = Node::new(&format!("node-{number}"))?;
        cluster.topology.underlay.plug(&node)?;
        let mut member = cluster.add_node(&node, number)?;
        let start = Instant::now();
        member.start_daemon()?;
        member.await_ready(JOIN_TIMEOUT)?;
        let time = start.elapsed();
        let (is_served, message) = member.condition("RoutesServed")?;
        ensure!(is_served, "ready, and yet not served: {message}");
        Ok(time)
    };
    (0..count).map(join).collect()
}
