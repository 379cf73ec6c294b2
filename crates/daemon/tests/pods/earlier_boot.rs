//! Records of an earlier boot.

use lab::Netns;
use serde_json::json;

use crate::fixture::{PodsNode, STATE_DIR, bridge, native, observations, orphan, with_port};

/// Kernel state is lost and the boot ID changes.
const REBOOT: &str = "for link in /sys/class/net/hc*; do ip link delete ${link##*/}; done
    nft flush ruleset
    ip address flush dev lo scope global
    cat /proc/sys/kernel/random/uuid > /run/boot_id
    mount --bind /run/boot_id /proc/sys/kernel/random/boot_id";

#[test]
fn a_record_of_an_earlier_boot_is_collected_without_harm_to_a_new_pod() {
    let conf = with_port(8080);
    let fixture = PodsNode::used(&conf);
    let (old, _) = fixture.attached("old", &conf);
    fixture.shell(REBOOT);
    old.delete().unwrap();
    let (_new, address) = fixture.attached("new", &conf);
    let ignored = lab::Ignore::new().path(&format!("{STATE_DIR}/old@eth0.json"));
    let before = fixture.snapshot().ignoring(ignored);

    let collected = fixture.collected(observations());
    assert_eq!(collected, [orphan("state", "old", "EarlierBoot")]);
    assert!(!fixture.has_record("old"));
    fixture.node.assert_unchanged(&before);
    fixture.node.ping(&address).unwrap();
}

#[test]
fn a_bridges_record_of_an_earlier_boot_is_collected_with_its_lease() {
    let fixture = PodsNode::used(&bridge());
    let before = fixture.snapshot();
    let (pod, _) = fixture.attached("p", &bridge());
    let mut record = fixture.record("p").unwrap();
    record["boot"] = json!("00000000-0000-0000-0000-000000000000");
    let path = format!("{STATE_DIR}/p@eth0.json");
    fixture.node.write(path, record.to_string()).unwrap();
    pod.delete().unwrap();
    assert_eq!(
        fixture.collected(observations()),
        [orphan("state", "p", "EarlierBoot")]
    );
    fixture.node.assert_unchanged(&before);
}

#[test]
fn a_daemon_with_another_boot_id_keeps_running_pods() {
    let fixture = PodsNode::used(&native());
    let (_pod, address) = fixture.attached("p", &native());
    // As on a node that is a container.
    fixture.shell(
        "cat /proc/sys/kernel/random/uuid > /run/boot_id
        mount --bind /run/boot_id /proc/sys/kernel/random/boot_id",
    );
    fixture.assert_nothing_collected();
    fixture.node.ping(&address).unwrap();
}

#[test]
fn a_running_bridged_pod_is_kept_whatever_its_boot_id() {
    let fixture = PodsNode::used(&bridge());
    let (pod, _) = fixture.attached("p", &bridge());
    fixture.shell(
        "cat /proc/sys/kernel/random/uuid > /run/boot_id
        mount --bind /run/boot_id /proc/sys/kernel/random/boot_id",
    );
    fixture.assert_nothing_collected();
    assert_eq!(pod.links().unwrap(), ["eth0"]);
}
