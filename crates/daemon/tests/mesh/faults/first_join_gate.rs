//! The conflist is written once the mesh has served the node, and is never withdrawn.

use lab::eventually;
use lab::scenario::{JOIN_TIMEOUT, MeshCluster};

const CONFLIST: &str = "/etc/cni/net.d/10-headcni.conflist";

#[test]
fn the_conflist_appears_after_the_first_join_and_then_stays() {
    let mut cluster = MeshCluster::prepare(1);
    cluster.headscale.kill().unwrap();
    let node = &mut cluster.nodes[0];
    node.start_daemon().unwrap();
    let message = node
        .await_condition("HeadscaleReachable", false, JOIN_TIMEOUT)
        .unwrap();
    assert!(message.contains("10.99.0.1"), "{message}");
    let message = node
        .await_condition("CNIConfigWritten", false, JOIN_TIMEOUT)
        .unwrap();
    assert!(message.contains("RoutesServed"), "{message}");
    assert!(!node.file(CONFLIST).exists());

    cluster.headscale.restart().unwrap();
    node.await_ready(JOIN_TIMEOUT * 3).unwrap();
    assert!(node.file(CONFLIST).exists());

    cluster.headscale.kill().unwrap();
    node.kill_daemon().unwrap();
    node.start_daemon().unwrap();
    node.await_condition("HeadscaleReachable", false, JOIN_TIMEOUT)
        .unwrap();
    node.await_condition("CNIConfigWritten", true, JOIN_TIMEOUT)
        .unwrap();
    eventually(JOIN_TIMEOUT, "a pod starts", || node.pod("p").ok()).unwrap();
}
