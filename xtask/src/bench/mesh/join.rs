//! Time from the start of a new node's daemon until its pod CIDRs are served.

use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use lab::{Cluster, JOINED, Node};

/// The cluster's nodes have smaller numbers.
const FIRST: usize = 100;

/// One new node after the other joins.
pub(super) fn times(cluster: &Cluster<'_>, count: usize) -> Result<Vec<Duration>> {
    let join = |nth| {
        let number = FIRST + nth;
        let node = Node::new(&format!("node-{number}"))?;
        cluster.grounds.underlay.plug(&node)?;
        let mut member = cluster.newcomer(&node, number)?;
        let start = Instant::now();
        member.launch()?;
        member.await_ready(JOINED)?;
        let time = start.elapsed();
        let (is_served, message) = member.condition("RoutesServed")?;
        ensure!(is_served, "the node is ready but not served: {message}");
        Ok(time)
    };
    (0..count).map(join).collect()
}
