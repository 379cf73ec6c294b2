//! The running daemon collects pods that ended without a DEL.

use lab::Netns;
use lab::scenario::{Daemon, DaemonNode};

use crate::client;

const QUICK: &str = "
network: {podCIDR: {nodeLocal: 10.244.1.0/24, base: 10.244.0.0/16}}
pods: {orphanInterval: 2s, orphanGrace: 60s}
logging: {format: json}";

fn reconciles(daemon: &Daemon<'_>) -> Option<f64> {
    daemon.metric("headcni_reconcile_duration_seconds_count{controller=\"orphans\"}")
}

#[track_caller]
fn await_reconciles(node: &DaemonNode, daemon: &Daemon<'_>, count: f64) {
    let before = reconciles(daemon).unwrap();
    node.eventually("the orphan controller runs again", || {
        (reconciles(daemon)? >= before + count).then_some(())
    });
}

/// Makes all records and leases an hour old.
fn make_old(node: &DaemonNode) {
    node.sh("find /var/lib/cni -type f -exec touch -d '1 hour ago' {} +");
}

#[test]
fn an_orphan_is_collected_at_the_second_reconcile_and_logged() {
    let node = DaemonNode::with_config(QUICK);
    let daemon = node.start_daemon();
    let (dead, running) = (node.pod("p1"), node.pod("p2"));
    node.add(&dead);
    node.add(&running);
    assert_eq!(node.records().len(), 2);
    dead.delete().unwrap();
    node.eventually("its link is gone", || {
        (node.pod_links().len() == 1).then_some(())
    });
    make_old(&node);
    node.eventually("the orphan is counted", || {
        (daemon.metric("headcni_orphans{kind=\"state\"}")? > 0.5).then_some(())
    });
    assert_eq!(node.records().len(), 2, "one observation is not enough");
    daemon.await_metric("headcni_orphans_collected_total{kind=\"state\"}", 1.0);
    daemon.await_metric("headcni_orphans{kind=\"state\"}", 0.0);
    assert_eq!(node.leases(), ["10.244.1.3"]);
    assert_eq!(node.records().len(), 1);
    await_reconciles(&node, &daemon, 2.0);
    assert_eq!(node.leases(), ["10.244.1.3"]);
    running.ping("10.244.1.1").unwrap();
    let listed = client(&node).pods().unwrap();
    assert_eq!(listed.len(), 1, "{listed:?}");
    assert_eq!(listed[0].container, "p2");
    let log = daemon.stop().stderr;
    let logged: Vec<&str> = log
        .lines()
        .filter(|line| line.contains("deleted orphan"))
        .collect();
    let [line] = logged.as_slice() else {
        panic!("logged once: {log}");
    };
    assert!(line.contains("p1"), "{line}");
}

#[test]
fn a_new_orphan_is_kept_for_the_grace_period() {
    let node = DaemonNode::with_config(QUICK);
    let daemon = node.start_daemon();
    let dead = node.pod("p1");
    node.add(&dead);
    dead.delete().unwrap();
    node.eventually("the orphan is counted", || {
        (daemon.metric("headcni_orphans{kind=\"state\"}")? > 0.5).then_some(())
    });
    await_reconciles(&node, &daemon, 2.0);
    assert_eq!(node.leases(), ["10.244.1.2"]);
    assert_eq!(node.records().len(), 1);
    assert_eq!(
        daemon.metric("headcni_orphans_collected_total{kind=\"state\"}"),
        None
    );
}

#[test]
fn deleted_records_cost_running_pods_nothing() {
    let node = DaemonNode::with_config(QUICK);
    let daemon = node.start_daemon();
    let (one, two) = (node.pod("p1"), node.pod("p2"));
    node.add(&one);
    node.add(&two);
    make_old(&node);
    node.sh("rm -r /var/lib/cni/headcni");
    await_reconciles(&node, &daemon, 3.0);
    assert_eq!(node.leases(), ["10.244.1.2", "10.244.1.3"]);
    assert_eq!(node.pod_links().len(), 2);
    one.ping("10.244.1.3").unwrap();
    daemon.await_metric("headcni_orphans{kind=\"link\"}", 2.0);
    let metrics = daemon.get("/metrics").unwrap().body;
    assert!(
        !metrics.contains("headcni_orphans_collected_total{"),
        "{metrics}"
    );
}
