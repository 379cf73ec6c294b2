//! Time from the start of a new node's daemon until its pod CIDRs are served.

use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use lab::Node;
use lab::scenario::{JOIN_TIMEOUT, MeshCluster};

/// The cluster's nodes have smaller numbers.
const FIRST: usize = 100;

/// One new node after the other joins.
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
        ensure!(is_served, "the node is ready but not served: {message}");
        Ok(time)
    };
    (0..count).map(join).collect()
}
