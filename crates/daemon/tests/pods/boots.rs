//! Records of an earlier boot.

use lab::Netns;
use serde_json::json;

use crate::scene::{STATE_DIR, Scene, bridge, looks, native, one, with_port};

/// What a reboot does: the kernel forgets everything, and has a new name for its time.
const REBOOT: &str = "for link in /sys/class/net/hc*; do ip link delete ${link##*/}; done
    nft flush ruleset
    ip address flush dev lo scope global
    cat /proc/sys/kernel/random/uuid > /run/boot_id
    mount --bind /run/boot_id /proc/sys/kernel/random/boot_id";

#[test]
fn what_an_earlier_boot_left_is_collected_and_the_new_pod_keeps_all_it_has() {
    let conf = with_port(8080);
    let scene = Scene::used(&conf);
    let (old, _) = scene.attached("old", &conf);
    scene.shell(REBOOT);
    old.delete().unwrap();
    let (_new, address) = scene.attached("new", &conf);
    let ignored = lab::Ignore::new().path(&format!("{STATE_DIR}/old@eth0.json"));
    let before = scene.snapshot().ignoring(ignored);

    let collected = scene.collected(looks());
    assert_eq!(collected, [one("state", "old", "EarlierBoot")]);
    assert!(!scene.has_record("old"));
    scene.node.assert_unchanged(&before);
    scene.node.ping(&address).unwrap();
}

#[test]
fn a_bridges_record_of_an_earlier_boot_is_collected_with_its_lease() {
    let scene = Scene::used(&bridge());
    let before = scene.snapshot();
    let (pod, _) = scene.attached("p", &bridge());
    let mut record = scene.record("p").unwrap();
    record["boot"] = json!("00000000-0000-0000-0000-000000000000");
    let path = format!("{STATE_DIR}/p@eth0.json");
    scene.node.write(path, record.to_string()).unwrap();
    pod.delete().unwrap();
    assert_eq!(scene.collected(looks()), [one("state", "p", "EarlierBoot")]);
    scene.node.assert_unchanged(&before);
}

#[test]
fn an_agent_that_is_told_another_boot_than_the_plugin_leaves_the_living_alone() {
    let scene = Scene::used(&native());
    let (_pod, address) = scene.attached("p", &native());
    // As in a container on a node that is a container: its processes see another id.
    scene.shell(
        "cat /proc/sys/kernel/random/uuid > /run/boot_id
        mount --bind /run/boot_id /proc/sys/kernel/random/boot_id",
    );
    scene.assert_left_alone();
    scene.node.ping(&address).unwrap();
}

#[test]
fn a_bridges_pod_that_lives_is_left_alone_whatever_boot_its_record_is_of() {
    let scene = Scene::used(&bridge());
    let (pod, _) = scene.attached("p", &bridge());
    scene.shell(
        "cat /proc/sys/kernel/random/uuid > /run/boot_id
        mount --bind /run/boot_id /proc/sys/kernel/random/boot_id",
    );
    scene.assert_left_alone();
    assert_eq!(pod.links().unwrap(), ["eth0"]);
}
