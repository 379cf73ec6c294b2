//! A disk that hangs: the end comes in time all the same, at the start and in a reload.

use std::fs;
use std::time::{Duration, Instant};

use crate::scene::{CONFLIST, Daemon, Scene};

/// Whoever looks for a file in `/etc/kubernetes` waits until somebody mounts something there, which
/// nobody does: as with an NFS server that is gone.
fn hang(scene: &Scene) {
    scene.sh(
        "mkdir -p /etc/kubernetes; mkfifo /run/mounter; exec 3<>/run/mounter; \
         mount -i -t autofs -o fd=3,pgrp=$$,minproto=5,maxproto=5,direct nobody /etc/kubernetes",
    );
}

/// Waits until one of the daemon's threads waits for that.
#[track_caller]
fn await_hung(scene: &Scene, daemon: &Daemon<'_>) {
    let tasks = format!("/proc/{}/task", daemon.running.pid());
    scene.eventually("a thread hangs", || {
        let threads = fs::read_dir(&tasks).ok()?.flatten();
        let place = |task: fs::DirEntry| fs::read_to_string(task.path().join("wchan")).ok();
        let mut places = threads.filter_map(place);
        places.any(|place| place.contains("autofs")).then_some(())
    });
}

#[track_caller]
fn ends_in_time(daemon: Daemon<'_>) {
    let start = Instant::now();
    let output = daemon.stop();
    let took = start.elapsed();
    assert!(output.status.success(), "{output:?}");
    assert!(took < Duration::from_secs(5), "{took:?}");
}

#[test]
fn a_start_that_hangs_is_ended() {
    let scene = Scene::with("network: {mtu: 1280}");
    hang(&scene);
    let daemon = scene.launch();
    await_hung(&scene, &daemon);
    ends_in_time(daemon);
}

#[test]
fn a_reload_that_hangs_is_ended() {
    let scene = Scene::new();
    hang(&scene);
    let daemon = scene.start();
    assert!(scene.read(CONFLIST).is_some());
    // From now on the node's network is looked for in files.
    scene.configure("network: {mtu: 1280}");
    daemon.reload();
    await_hung(&scene, &daemon);
    ends_in_time(daemon);
}
