//! nft or iptables hangs: the daemon still stops, reloads and answers, and kills the program.

use std::fs;
use std::time::{Duration, Instant};

use lab::scenario::{CONFLIST, Daemon, DaemonNode};
use lab::{Netns, eventually};

use crate::client;

/// With programs that never exit, first in PATH.
const PATH: &str = "/opt/hanging:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

fn hanging() -> DaemonNode {
    let node = DaemonNode::new();
    node.sh("mkdir /opt/hanging; cd /opt/hanging; \
              printf '#!/bin/sh\\nsleep 1000 &\\necho $$ $! >> /run/hangs\\nwait\\n' > nft; chmod 755 nft; \
              cp nft iptables; cp nft ip6tables; cp nft firewall-cmd");
    node
}

fn launch(node: &DaemonNode) -> Daemon<'_> {
    let daemon = node.spawn_daemon_with_env(&[("PATH", PATH)]);
    node.eventually("nft hangs", || node.read("/run/hangs"));
    daemon
}

/// Waits until the programs and their children have ended.
#[track_caller]
fn await_none(node: &DaemonNode) {
    let hung = node.read("/run/hangs").unwrap();
    let runs = |pid: &str| {
        let stat = fs::read_to_string(format!("/proc/{pid}/stat"));
        stat.is_ok_and(|stat| !stat.contains(") Z "))
    };
    node.eventually("they are all gone", || {
        (!hung.split_whitespace().any(runs)).then_some(())
    });
}

#[test]
fn the_daemon_stops_in_time_while_nft_hangs() {
    let node = hanging();
    let daemon = launch(&node);
    let start = Instant::now();
    let output = daemon.stop();
    assert!(output.status.success(), "{output:?}");
    let took = start.elapsed();
    assert!(took < Duration::from_secs(5), "{took:?}");
    await_none(&node);
}

#[test]
fn a_hanging_program_is_killed_with_the_daemon() {
    let node = hanging();
    let daemon = launch(&node);
    // The script's child holds the output open, so the daemon is not waited for.
    daemon.running.kill();
    let scripts: Vec<String> = node
        .read("/run/hangs")
        .unwrap()
        .lines()
        .filter_map(|line| line.split_whitespace().next().map(str::to_owned))
        .collect();
    node.eventually("they are gone", || {
        let runs = |pid: &String| fs::exists(format!("/proc/{pid}")).unwrap();
        (!scripts.iter().any(runs)).then_some(())
    });
    for pid in node.read("/run/hangs").unwrap().split_whitespace() {
        // The script's child remains.
        let _ = node.node.attempt(["kill", "-9", pid]);
    }
}

#[test]
fn a_hanging_nft_is_killed_after_its_timeout() {
    let node = hanging();
    let daemon = launch(&node);
    let what = "nft was killed";
    let message = eventually(Duration::from_mins(1), what, || {
        let condition = daemon.condition("NetworkReady")?;
        let message = condition["message"].as_str()?.to_owned();
        message.contains("was killed").then_some(message)
    });
    let message = message.unwrap();
    assert!(message.contains("nft did not end within 10 s"), "{message}");
    drop(daemon.stop());
    await_none(&node);
}

#[test]
fn other_controllers_and_the_servers_work_while_nft_hangs() {
    let node = hanging();
    let daemon = launch(&node);
    node.eventually("the files are written", || node.read(CONFLIST));
    assert_eq!(daemon.get("/healthz").unwrap().status, 200);
    assert_eq!(daemon.get("/ready").unwrap().status, 503);
    assert!(!client(&node).status().unwrap().ready);
    node.configure(
        "network: {podCIDR: {nodeLocal: 10.244.1.0/24, base: 10.244.0.0/16}, mtu: 1400}",
    );
    daemon.reload();
    node.eventually("the new MTU is written", || {
        node.read(CONFLIST)?.contains("1400").then_some(())
    });
    let start = Instant::now();
    let output = daemon.stop();
    assert!(output.status.success(), "{output:?}");
    assert!(
        start.elapsed() < Duration::from_secs(5),
        "{:?}",
        start.elapsed()
    );
    // The next daemon finds the real nft.
    let daemon = node.start_daemon();
    assert!(node.sh("nft list tables").contains("headcni"));
    daemon.stop();
}
