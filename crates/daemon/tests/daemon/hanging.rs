//! A pass that hangs holds up neither the end nor a reload nor a question.

use std::time::{Duration, Instant};

use crate::scene::{CONFLIST, Daemon, Scene};

/// Programs that end with the daemon and not before, first in its path.
const PATH: &str = "/opt/hanging:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

fn hanging() -> Scene {
    let scene = Scene::new();
    scene.sh("mkdir /opt/hanging; cd /opt/hanging; \
              printf '#!/bin/sh\\n: > /run/hangs\\nwhile kill -0 $PPID; do sleep 0.1; done\\n' > nft; chmod 755 nft; \
              cp nft iptables; cp nft ip6tables; cp nft firewall-cmd");
    scene
}

fn launch(scene: &Scene) -> Daemon<'_> {
    let daemon = scene.launch_with(&[("PATH", PATH)]);
    scene.eventually("a pass hangs", || scene.read("/run/hangs"));
    daemon
}

#[test]
fn it_ends_in_time_though_a_pass_hangs() {
    let scene = hanging();
    let daemon = launch(&scene);
    let start = Instant::now();
    let output = daemon.stop();
    assert!(output.status.success(), "{output:?}");
    let took = start.elapsed();
    assert!(took < Duration::from_secs(5), "{took:?}");
}

#[test]
fn others_go_on_while_a_pass_hangs() {
    let scene = hanging();
    let daemon = launch(&scene);
    scene.eventually("the files are written", || scene.read(CONFLIST));
    assert_eq!(daemon.get("/healthz").unwrap().status, 200);
    assert_eq!(daemon.get("/ready").unwrap().status, 503);
    assert!(!daemon.client().status().unwrap().ready);
    scene.configure(
        "network: {podCIDR: {nodeLocal: 10.244.1.0/24, base: 10.244.0.0/16}, mtu: 1400}",
    );
    daemon.reload();
    scene.eventually("the new MTU is written", || {
        scene.read(CONFLIST)?.contains("1400").then_some(())
    });
    let start = Instant::now();
    let output = daemon.stop();
    assert!(output.status.success(), "{output:?}");
    assert!(
        start.elapsed() < Duration::from_secs(5),
        "{:?}",
        start.elapsed()
    );
    // The real nft is still there, for the next daemon.
    let daemon = scene.start();
    assert!(scene.sh("nft list tables").contains("headcni"));
    daemon.stop();
}
