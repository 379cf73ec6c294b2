//! A limit on open files: the condition reports it once, and no client is lost.

use std::thread;
use std::time::Duration;

use lab::scenario::{Daemon, DaemonNode};

use crate::client;

/// Sets the daemon's limit of open files.
fn limit(node: &DaemonNode, daemon: &Daemon<'_>, count: usize) {
    let pid = daemon.running.pid();
    node.sh(&format!("prlimit --pid {pid} --nofile={count}:"));
}

#[test]
fn too_many_open_files_are_reported_once_and_no_client_is_lost() {
    let node = DaemonNode::new();
    let daemon = node.start_daemon();
    // Until then the daemon opens files of its own.
    daemon.await_condition("OrphansCollected", "True");
    let client = client(&node);
    limit(&node, &daemon, 3);
    // The kernel accepts the connection, and the daemon cannot.
    let query = thread::spawn(move || client.status());
    // Ten times as long as the daemon waits between two attempts.
    thread::sleep(Duration::from_secs(1));
    limit(&node, &daemon, 1024);
    query.join().unwrap().unwrap();
    let message = daemon.await_condition("SocketOpen", "True");
    assert!(message.contains("listening on"), "{message}");
    let output = daemon.stop();
    let is_report = |line: &&str| line.contains("accept a connection");
    let reports: Vec<&str> = output.stderr.lines().filter(is_report).collect();
    assert_eq!(reports.len(), 1, "{reports:#?}");
    assert!(reports[0].contains("LimitNOFILE"), "{reports:?}");
    let opened = "condition is True condition=SocketOpen";
    let opened = output.stderr.matches(opened).count();
    assert_eq!(opened, 2, "{}", output.stderr);
}
