//! A node starts pods when the mesh has served it once, and from then on for ever.

use lab::{MeshCluster, JOIN_TIMEOUT, Site, eventually};

use crate::scene::Scene;

const CONFLIST: &str = "/etc/cni/net.d/10-headcni.conflist";

#[test]
fn no_pod_starts_before_the_mesh_has_served_the_node_once() {
    let scene = Scene::new(&[Site::Open]);
    let mut cluster = MeshCluster::new(&scene.grounds).unwrap();
    cluster.headscale.kill().unwrap();
    let member = &mut cluster.members[0];
    member.launch().unwrap();
    let why = member
        .await_condition("HeadscaleReachable", false, JOIN_TIMEOUT)
        .unwrap();
    assert!(why.contains("10.99.0.1"), "{why}");
    let why = member
        .await_condition("CNIConfigWritten", false, JOIN_TIMEOUT)
        .unwrap();
    assert!(why.contains("NetworksServed"), "{why}");
    assert!(!member.file(CONFLIST).exists());

    cluster.headscale.resume().unwrap();
    member.await_ready(JOIN_TIMEOUT * 3).unwrap();
    assert!(member.file(CONFLIST).exists());

    cluster.headscale.kill().unwrap();
    member.kill_daemon().unwrap();
    member.launch().unwrap();
    member
        .await_condition("HeadscaleReachable", false, JOIN_TIMEOUT)
        .unwrap();
    member
        .await_condition("CNIConfigWritten", true, JOIN_TIMEOUT)
        .unwrap();
    eventually(JOIN_TIMEOUT, "a pod starts", || member.pod("p").ok()).unwrap();
}
