//! `tailscale.mode: container`: another container runs tailscaled, as with the chart.

use lab::scenario::{JOIN_TIMEOUT, MeshCluster, MeshNode, connectivity};
use lab::{Netns, Running, tools};

/// As in the chart.
fn start(node: &MeshNode) -> Running {
    let program = tools::TAILSCALE.program("tailscaled");
    let mut command = node.node.command("sh");
    command
        .args(["-c", "exec \"$@\" >/run/tailscaled.log 2>&1", "sh"])
        .arg(program)
        .args(["--no-logs-no-support", "--tun=headcni01", "--port=41642"])
        .arg("--statedir=/var/lib/headcni/tailscale")
        .arg("--socket=/run/headcni/tailscaled.sock")
        .env("TS_NO_LOGS_NO_SUPPORT", "true")
        .env("TS_LOGS_DIR", "/var/lib/headcni/tailscale")
        .env("SSL_CERT_FILE", "/etc/headcni/ca.pem");
    Running::spawn(&mut command, b"").unwrap()
}

#[test]
fn a_sidecar_tailscaled_is_awaited_and_never_started() {
    let mut cluster = MeshCluster::prepare(2);
    let url = cluster.headscale.url();
    let node = &mut cluster.nodes[0];
    let config = node.config(&url) + "  mode: container\n";
    node.configure(&config).unwrap();
    node.start_daemon().unwrap();
    node.await_reported_false("MeshJoined", &["check that it is running"]);
    assert!(node.tailscaled_pid().is_err(), "the daemon started one");

    let tailscaled = start(node);
    cluster.nodes[1].start_daemon().unwrap();
    for node in &cluster.nodes {
        node.await_ready(JOIN_TIMEOUT).unwrap();
    }
    cluster.await_routes().unwrap();
    let pods = cluster.pod_on_each("p");
    connectivity::await_all_to_all(&pods);

    // It outlives the daemon, and only the other container restarts it.
    let node = &mut cluster.nodes[0];
    let pid = node.tailscaled_pid().unwrap();
    node.kill_daemon().unwrap();
    node.start_daemon().unwrap();
    node.await_ready(JOIN_TIMEOUT).unwrap();
    assert_eq!(node.tailscaled_pid().unwrap(), pid);
    tailscaled.kill();
    node.await_condition("MeshJoined", false, JOIN_TIMEOUT)
        .unwrap();
    let _tailscaled = start(node);
    node.await_ready(JOIN_TIMEOUT).unwrap();
    connectivity::await_all_to_all(&pods);
}
