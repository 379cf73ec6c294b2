//! A tailscaled that somebody else starts where ours would be, as a chart does in a container of its own.

use lab::{MeshCluster, JOIN_TIMEOUT, MeshNode, Netns, Running, Site, tools};

use crate::scene::Scene;
use crate::{talk, told};

/// Just as the chart says it.
fn start(member: &MeshNode) -> Running {
    let program = tools::TAILSCALE.program("tailscaled");
    let mut command = member.node.command("sh");
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
fn a_tailscaled_of_somebody_else_is_waited_for_and_never_started() {
    let scene = Scene::new(&[Site::Open, Site::Open]);
    let mut cluster = MeshCluster::new(&scene.grounds).unwrap();
    let url = cluster.headscale.url();
    let member = &mut cluster.members[0];
    let config = member.config(&url) + "  mode: container\n";
    member.configure(&config).unwrap();
    member.launch().unwrap();
    told::await_failing(member, "MeshJoined", &["see that it runs"]);
    assert!(member.tailscaled_pid().is_err(), "the daemon started one");

    let tailscaled = start(member);
    cluster.members[1].launch().unwrap();
    for member in &cluster.members {
        member.await_ready(JOIN_TIMEOUT).unwrap();
    }
    cluster.await_mesh().unwrap();
    let members = cluster.members.iter();
    let pods: Vec<_> = members.map(|member| member.pod("p").unwrap()).collect();
    talk::await_all_to_all(&pods);

    // It outlives the daemon, and comes back by somebody else's hand.
    let member = &mut cluster.members[0];
    let pid = member.tailscaled_pid().unwrap();
    member.kill_daemon().unwrap();
    member.launch().unwrap();
    member.await_ready(JOIN_TIMEOUT).unwrap();
    assert_eq!(member.tailscaled_pid().unwrap(), pid);
    tailscaled.kill();
    member.await_condition("MeshJoined", false, JOIN_TIMEOUT).unwrap();
    let _tailscaled = start(member);
    member.await_ready(JOIN_TIMEOUT).unwrap();
    talk::await_all_to_all(&pods);
}
