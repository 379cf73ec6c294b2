//! `tailscale.stateDir` changes at runtime.

use std::path::Path;

use lab::eventually;
use lab::scenario::{JOIN_TIMEOUT, MeshCluster};

use crate::host_tailscaled::uninstall;

#[test]
fn a_new_state_dir_restarts_tailscaled_and_uninstall_stops_it() {
    let mut cluster = MeshCluster::start(1);
    let url = cluster.headscale.url();
    let node = &mut cluster.nodes[0];
    let config = node.config(&url);
    let with_dir = |dir: &str| format!("{config}  stateDir: {dir}\n");
    let before = node.tailscaled_pid().unwrap();

    node.configure(&with_dir("/var/lib/headcni/elsewhere"))
        .unwrap();
    node.reload();
    let log = eventually(
        JOIN_TIMEOUT,
        "tailscaled runs with the new directory",
        || {
            let is_gone = !Path::new(&format!("/proc/{before}")).exists();
            let state = node.tailscaled_status().ok()?["BackendState"].clone();
            node.sh("test -e /var/lib/headcni/elsewhere/tailscaled.state")
                .ok()?;
            (is_gone && state == "Running").then(|| node.log())
        },
    )
    .unwrap_or_else(|error| panic!("{error:#}\n{}", node.log()));
    assert!(!log.contains("tailscaled exited"), "{log}");
    node.await_ready(JOIN_TIMEOUT).unwrap();

    // Uninstall finds it by a configuration that no daemon has loaded.
    node.stop_daemon().unwrap();
    node.configure(&with_dir("/var/lib/headcni/nowhere"))
        .unwrap();
    let output = uninstall(node);
    assert!(
        output.contains("not removed: the keys in /var/lib/headcni/elsewhere"),
        "{output}"
    );
    assert!(
        node.tailscaled_pid().is_err(),
        "tailscaled still runs: {output}"
    );
}
