//! Pods that end without a DEL, as the running daemon deals with them.

use lab::Netns;

use crate::scene::{Daemon, Scene};

const QUICK: &str = "
network: {podCIDR: {nodeLocal: 10.244.1.0/24, base: 10.244.0.0/16}}
pods: {orphanInterval: 2s, orphanGrace: 60s}
logging: {format: json}";

fn looks(daemon: &Daemon<'_>) -> Option<f64> {
    daemon.metric("headcni_reconcile_duration_seconds_count{part=\"orphans\"}")
}

/// Waits for so many looks from now on.
#[track_caller]
fn await_looks(scene: &Scene, daemon: &Daemon<'_>, count: f64) {
    let before = looks(daemon).unwrap();
    scene.eventually("the daemon looks again", || {
        (looks(daemon)? >= before + count).then_some(())
    });
}

/// As if everything that was kept had been so for an hour.
fn grow_old(scene: &Scene) {
    scene.sh("find /var/lib/cni -type f -exec touch -d '1 hour ago' {} +");
}

#[test]
fn a_pod_that_went_without_a_del_is_collected_at_the_second_look_and_told() {
    let scene = Scene::with(QUICK);
    let daemon = scene.start();
    let (dead, lives) = (scene.node.pod("p1").unwrap(), scene.node.pod("p2").unwrap());
    scene.add(&dead);
    scene.add(&lives);
    assert_eq!(scene.records().len(), 2);
    dead.delete().unwrap();
    scene.eventually("its link goes", || (scene.links().len() == 1).then_some(()));
    grow_old(&scene);
    scene.eventually("it is seen first", || {
        (daemon.metric("headcni_orphans{kind=\"state\"}")? > 0.5).then_some(())
    });
    assert_eq!(scene.records().len(), 2, "once is not enough");
    daemon.await_metric("headcni_orphans_collected_total{kind=\"state\"}", 1.0);
    daemon.await_metric("headcni_orphans{kind=\"state\"}", 0.0);
    assert_eq!(scene.leases(), ["10.244.1.3"]);
    assert_eq!(scene.records().len(), 1);
    await_looks(&scene, &daemon, 2.0);
    assert_eq!(scene.leases(), ["10.244.1.3"]);
    lives.ping("10.244.1.1").unwrap();
    let known = daemon.client().pods().unwrap();
    assert_eq!(known.len(), 1, "{known:?}");
    assert_eq!(known[0].container, "p2");
    let log = daemon.stop().stderr;
    let told: Vec<&str> = log
        .lines()
        .filter(|line| line.contains("collected"))
        .collect();
    let [told] = told.as_slice() else {
        panic!("told once: {log}");
    };
    assert!(told.contains("p1"), "{told}");
}

#[test]
fn what_went_just_now_waits_for_its_time() {
    let scene = Scene::with(QUICK);
    let daemon = scene.start();
    let dead = scene.node.pod("p1").unwrap();
    scene.add(&dead);
    dead.delete().unwrap();
    scene.eventually("it is seen", || {
        (daemon.metric("headcni_orphans{kind=\"state\"}")? > 0.5).then_some(())
    });
    await_looks(&scene, &daemon, 2.0);
    assert_eq!(scene.leases(), ["10.244.1.2"]);
    assert_eq!(scene.records().len(), 1);
    assert_eq!(
        daemon.metric("headcni_orphans_collected_total{kind=\"state\"}"),
        None
    );
}

#[test]
fn records_that_somebody_wiped_take_nothing_from_pods() {
    let scene = Scene::with(QUICK);
    let daemon = scene.start();
    let (one, two) = (scene.node.pod("p1").unwrap(), scene.node.pod("p2").unwrap());
    scene.add(&one);
    scene.add(&two);
    grow_old(&scene);
    scene.sh("rm -r /var/lib/cni/headcni");
    await_looks(&scene, &daemon, 3.0);
    assert_eq!(scene.leases(), ["10.244.1.2", "10.244.1.3"]);
    assert_eq!(scene.links().len(), 2);
    one.ping("10.244.1.3").unwrap();
    daemon.await_metric("headcni_orphans{kind=\"link\"}", 2.0);
    let metrics = daemon.get("/metrics").unwrap().body;
    assert!(
        !metrics.contains("headcni_orphans_collected_total{"),
        "{metrics}"
    );
}
