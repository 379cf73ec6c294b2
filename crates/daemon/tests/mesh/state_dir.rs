//! A tailscaled that is to keep its keys elsewhere, while it runs.

use std::path::Path;

use lab::scenario::{JOIN_TIMEOUT, MeshCluster};
use lab::eventually;

use crate::host_tailscaled::uninstall;

#[test]
fn with_another_state_directory_there_is_one_tailscaled_and_uninstall_ends_it() {
    let mut cluster = MeshCluster::start(1);
    let url = cluster.headscale.url();
    let node = &mut cluster.nodes[0];
    let config = node.config(&url);
    let with_dir = |dir: &str| format!("{config}  stateDir: {dir}\n");
    let before = node.tailscaled_pid().unwrap();

    node
        .configure(&with_dir("/var/lib/headcni/elsewhere"))
        .unwrap();
    node.reload();
    let log = eventually(JOIN_TIMEOUT, "it is a node by the new directory", || {
        let is_gone = !Path::new(&format!("/proc/{before}")).exists();
        let state = node.tailscaled_status().ok()?["BackendState"].clone();
        node
            .sh("test -e /var/lib/headcni/elsewhere/tailscaled.state")
            .ok()?;
        (is_gone && state == "Running").then(|| node.log())
    })
    .unwrap_or_else(|error| panic!("{error:#}\n{}", node.log()));
    assert!(!log.contains("tailscaled has ended"), "{log}");
    node.await_ready(JOIN_TIMEOUT).unwrap();

    // It is found by yet another configuration, which no daemon has seen.
    node.stop_daemon().unwrap();
    node
        .configure(&with_dir("/var/lib/headcni/nowhere"))
        .unwrap();
    let said = uninstall(node);
    assert!(
        said.contains("left: the keys in /var/lib/headcni/elsewhere"),
        "{said}"
    );
    assert!(node.tailscaled_pid().is_err(), "it runs on: {said}");
}
