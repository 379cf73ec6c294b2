//! What outlives a reboot is files; what they tell of is gone, and others may have its place.

use lab::Netns;
use serde_json::Value;

use crate::killing::{collect, with_all};
use crate::scene::{Scene, call, dual_stack, ip};
use crate::traces::snapshot;

/// What a reboot does: the kernel forgets everything, and has a new name for its time.
fn reboot(scene: &Scene) {
    let script = "for link in /sys/class/net/hc*; do ip link delete ${link##*/}; done
        nft flush ruleset
        ip address flush dev lo scope global
        cat /proc/sys/kernel/random/uuid > /run/boot_id
        mount --bind /run/boot_id /proc/sys/kernel/random/boot_id";
    scene.node.run(["sh", "-ec", script]).unwrap();
}

fn bare(verb: &str, conf: &Value) -> lab::Call {
    call(verb, conf).container_id("old").ifname("eth0")
}

/// A node after a reboot, on which a new pod has what an old one had.
fn replaced(scene: &Scene, conf: &Value) -> Value {
    let (old, first) = scene.attached("old", conf);
    reboot(scene);
    old.delete().unwrap();
    let (_new, second) = scene.attached("new", conf);
    assert!(
        scene
            .ruleset()
            .contains(&format!("8080 : {} . 80", ip(&second, 0)))
    );
    assert!(ip(&first, 0) != ip(&second, 0) || first["ips"] == second["ips"]);
    second
}

#[test]
fn a_late_del_does_not_touch_who_came_after_the_reboot() {
    let conf = with_all(dual_stack());
    let scene = Scene::new();
    let second = replaced(&scene, &conf);
    scene.run(&bare("DEL", &conf)).ok().unwrap();
    let before = snapshot(&scene);
    for family in [0, 1] {
        scene.node.ping(&ip(&second, family)).unwrap();
    }
    assert!(
        scene
            .ruleset()
            .contains(&format!("8080 : {} . 80", ip(&second, 0)))
    );
    assert!(
        !before_has(&scene, "old"),
        "nothing of the old pod is on disk"
    );
    scene.run(&bare("DEL", &conf)).ok().unwrap();
    scene.node.assert_unchanged(&before);
}

#[test]
fn a_collection_after_a_reboot_leaves_only_the_new() {
    let conf = with_all(dual_stack());
    let scene = Scene::new();
    let second = replaced(&scene, &conf);
    collect(&scene, &conf, &["new"]).ok().unwrap();
    scene.node.ping(&ip(&second, 0)).unwrap();
    assert!(
        !before_has(&scene, "old"),
        "nothing of the old pod is on disk"
    );
}

#[test]
fn the_same_container_is_attached_anew_after_a_reboot() {
    let conf = with_all(dual_stack());
    let scene = Scene::used(&conf);
    let before = snapshot(&scene);
    let (pod, _) = scene.attached("old", &conf);
    reboot(&scene);
    pod.delete().unwrap();
    let (pod, result) = scene.attached("old", &conf);
    scene.node.ping(&ip(&result, 1)).unwrap();
    scene.done("DEL", &conf, &pod);
    scene.node.assert_unchanged(&before);
}

/// Whether a file under `/var/lib/cni` has this in its name or its text.
fn before_has(scene: &Scene, what: &str) -> bool {
    let script = format!("find /var/lib/cni | grep -w {what} || grep -rlw {what} /var/lib/cni");
    scene
        .node
        .attempt(["sh", "-c", &script])
        .unwrap()
        .status
        .success()
}
