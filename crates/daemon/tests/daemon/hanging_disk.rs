//! The daemon stops in time although a file system hangs, at start and during a reload.

use std::fs;
use std::time::{Duration, Instant};

use lab::scenario::{CONFLIST, Daemon, DaemonNode};

/// Every access to `/etc/kubernetes` blocks on an autofs mount without a daemon, as with a dead NFS server.
fn hang(node: &DaemonNode) {
    node.sh(
        "mkdir -p /etc/kubernetes; mkfifo /run/mounter; exec 3<>/run/mounter; \
         mount -i -t autofs -o fd=3,pgrp=$$,minproto=5,maxproto=5,direct none /etc/kubernetes",
    );
}

/// Waits until one of the daemon's threads is blocked.
#[track_caller]
fn await_hung(node: &DaemonNode, daemon: &Daemon<'_>) {
    let tasks = format!("/proc/{}/task", daemon.running.pid());
    node.eventually("a thread hangs", || {
        let threads = fs::read_dir(&tasks).ok()?.flatten();
        let wait_channel = |task: fs::DirEntry| fs::read_to_string(task.path().join("wchan")).ok();
        let mut channels = threads.filter_map(wait_channel);
        channels
            .any(|channel| channel.contains("autofs"))
            .then_some(())
    });
}

#[track_caller]
fn assert_stops_in_time(daemon: Daemon<'_>) {
    let start = Instant::now();
    let output = daemon.stop();
    let took = start.elapsed();
    assert!(output.status.success(), "{output:?}");
    assert!(took < Duration::from_secs(5), "{took:?}");
}

#[test]
fn the_daemon_stops_in_time_during_a_hanging_start() {
    let node = DaemonNode::with_config("network: {mtu: 1280}");
    hang(&node);
    let daemon = node.spawn_daemon();
    await_hung(&node, &daemon);
    assert_stops_in_time(daemon);
}

#[test]
fn the_daemon_stops_in_time_during_a_hanging_reload() {
    let node = DaemonNode::new();
    hang(&node);
    let daemon = node.start_daemon();
    assert!(node.read(CONFLIST).is_some());
    // From now on the pod CIDR is read from files.
    node.configure("network: {mtu: 1280}");
    daemon.reload();
    await_hung(&node, &daemon);
    assert_stops_in_time(daemon);
}
