//! A node starts pods when the mesh has served it once, and from then on for ever.

use lab::{Cluster, JOINED, Site, eventually};

use crate::scene::Scene;

const CONFLIST: &str = "/etc/cni/net.d/10-headcni.conflist";

#[test]
fn no_pod_starts_before_the_mesh_has_served_the_node_once() {
    let scene = Scene::new(&[Site::Open]);
    let mut cluster = Cluster::new(&scene.grounds).unwrap();
    cluster.headscale.kill().unwrap();
    let member = &mut cluster.members[0];
    member.launch().unwrap();
    let why = member
        .await_condition("HeadscaleReachable", false, JOINED)
        .unwrap();
    assert!(why.contains("10.99.0.1"), "{why}");
    let why = member
        .await_condition("CNIConfigWritten", false, JOINED)
        .unwrap();
    assert!(why.contains("RoutesServed"), "{why}");
    assert!(!member.file(CONFLIST).exists());

    cluster.headscale.resume().unwrap();
    member.await_ready(JOINED * 3).unwrap();
    assert!(member.file(CONFLIST).exists());

    cluster.headscale.kill().unwrap();
    member.kill_daemon().unwrap();
    member.launch().unwrap();
    member
        .await_condition("HeadscaleReachable", false, JOINED)
        .unwrap();
    member
        .await_condition("CNIConfigWritten", true, JOINED)
        .unwrap();
    eventually(JOINED, "a pod starts", || member.pod("p").ok()).unwrap();
}
