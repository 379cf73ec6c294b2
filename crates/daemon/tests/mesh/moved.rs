//! A tailscaled that is to keep its keys elsewhere, while it runs.

use std::path::Path;

use lab::{MeshCluster, JOIN_TIMEOUT, Signal, Site, eventually};

use crate::hosts::uninstall;
use crate::scene::Scene;

#[test]
fn with_another_state_directory_there_is_one_tailscaled_and_uninstall_ends_it() {
    let scene = Scene::new(&[Site::Open]);
    let mut cluster = MeshCluster::new(&scene.grounds).unwrap();
    cluster.start().unwrap();
    let url = cluster.headscale.url();
    let member = &mut cluster.members[0];
    let config = member.config(&url);
    let with_dir = |dir: &str| format!("{config}  stateDir: {dir}\n");
    let before = member.tailscaled_pid().unwrap();

    member
        .configure(&with_dir("/var/lib/headcni/elsewhere"))
        .unwrap();
    member.signal(Signal::HUP);
    let log = eventually(JOIN_TIMEOUT, "it is a member by the new directory", || {
        let is_gone = !Path::new(&format!("/proc/{before}")).exists();
        let state = member.tailscaled_status().ok()?["BackendState"].clone();
        member
            .sh("test -e /var/lib/headcni/elsewhere/tailscaled.state")
            .ok()?;
        (is_gone && state == "Running").then(|| member.log())
    })
    .unwrap_or_else(|error| panic!("{error:#}\n{}", member.log()));
    assert!(!log.contains("tailscaled has ended"), "{log}");
    member.await_ready(JOIN_TIMEOUT).unwrap();

    // It is found by yet another configuration, which no daemon has seen.
    member.stop_daemon().unwrap();
    member
        .configure(&with_dir("/var/lib/headcni/nowhere"))
        .unwrap();
    let said = uninstall(member);
    assert!(
        said.contains("left: the keys in /var/lib/headcni/elsewhere"),
        "{said}"
    );
    assert!(member.tailscaled_pid().is_err(), "it runs on: {said}");
}
