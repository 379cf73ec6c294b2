//! A mesh cluster fails its test if a pod's packet crosses a cable in clear.

use std::panic::{AssertUnwindSafe, catch_unwind};

use lab::Netns;
use lab::scenario::{MeshCluster, Site};

#[test]
fn a_packet_of_a_pod_in_clear_fails_the_test_on_either_side_of_a_nat() {
    for leaky in [None, Some(0), Some(1)] {
        let cluster = MeshCluster::builder()
            .sites(&[Site::Open, Site::BehindNat])
            .prepare();
        let server = cluster.topology.server_port.v4.to_string();
        for node in &cluster.topology.nodes {
            node.ping(&server).unwrap();
        }
        if let Some(leaky) = leaky {
            let node = &cluster.topology.nodes[leaky];
            node.run(["ip", "address", "add", "10.244.9.9/32", "dev", "lo"])
                .unwrap();
            // Only one side of the NAT sees this source.
            let ping = ["ping", "-n", "-c", "1", "-W", "0.2", "-I", "10.244.9.9"];
            let ping = ping.into_iter().chain([server.as_str()]);
            node.attempt(ping).unwrap();
        }
        let outcome = catch_unwind(AssertUnwindSafe(|| drop(cluster)));
        let message = outcome.map_err(|panic| *panic.downcast::<String>().unwrap());
        match (leaky, message) {
            (None, Ok(())) => {}
            (Some(_), Err(message)) if message.contains("in clear") => {}
            (leaky, message) => panic!("{leaky:?}: {message:?}"),
        }
    }
}
