//! A pass that hangs holds up neither the end nor a reload nor a question, and the program that it
//! waits for does not outlive the daemon.

use std::fs;
use std::time::{Duration, Instant};

use lab::{Netns, eventually};

use crate::scene::{CONFLIST, Daemon, Scene};

/// Programs that never end, first in the daemon's path.
const PATH: &str = "/opt/hanging:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

fn hanging() -> Scene {
    let scene = Scene::new();
    scene.sh("mkdir /opt/hanging; cd /opt/hanging; \
              printf '#!/bin/sh\\nsleep 1000 &\\necho $$ $! >> /run/hangs\\nwait\\n' > nft; chmod 755 nft; \
              cp nft iptables; cp nft ip6tables; cp nft firewall-cmd");
    scene
}

fn launch(scene: &Scene) -> Daemon<'_> {
    let daemon = scene.launch_with(&[("PATH", PATH)]);
    scene.eventually("a pass hangs", || scene.read("/run/hangs"));
    daemon
}

/// Waits until none of the programs runs, nor what they have started.
#[track_caller]
fn await_none(scene: &Scene) {
    let hung = scene.read("/run/hangs").unwrap();
    let runs = |pid: &str| {
        let stat = fs::read_to_string(format!("/proc/{pid}/stat"));
        stat.is_ok_and(|stat| !stat.contains(") Z "))
    };
    scene.eventually("they are all gone", || {
        (!hung.split_whitespace().any(runs)).then_some(())
    });
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
    await_none(&scene);
}

#[test]
fn what_hangs_ends_with_a_daemon_that_is_killed() {
    let scene = hanging();
    let daemon = launch(&scene);
    // What the script itself has started holds the output open, so it isn't waited for here.
    daemon.running.kill();
    let scripts: Vec<String> = scene
        .read("/run/hangs")
        .unwrap()
        .lines()
        .filter_map(|line| line.split_whitespace().next().map(str::to_owned))
        .collect();
    scene.eventually("they are gone", || {
        let runs = |pid: &String| fs::exists(format!("/proc/{pid}")).unwrap();
        (!scripts.iter().any(runs)).then_some(())
    });
    for pid in scene.read("/run/hangs").unwrap().split_whitespace() {
        // Of those that nobody else ends.
        let _ = scene.node.attempt(["kill", "-9", pid]);
    }
}

#[test]
fn a_pass_gives_up_on_what_hangs() {
    let scene = hanging();
    let daemon = launch(&scene);
    let what = "the pass is over";
    let message = eventually(Duration::from_mins(1), what, || {
        let condition = daemon.condition("NetworkReady")?;
        let message = condition["message"].as_str()?.to_owned();
        message.contains("was killed").then_some(message)
    });
    let message = message.unwrap();
    assert!(message.contains("nft did not end within 10 s"), "{message}");
    drop(daemon.stop());
    await_none(&scene);
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
