//! What outlives a reboot is files; what they tell of is gone, and others may have its place.

use lab::Netns;
use lab::scenario::PluginNode;
use serde_json::Value;

use crate::kill_sweep::{collect, with_all};
use crate::networks::{call, dual_stack, ip, plugin_node, used_node};
use crate::node_state::snapshot;

/// What a reboot does: the kernel forgets everything, and has a new name for its time.
fn reboot(plugin: &PluginNode) {
    let script = "for link in /sys/class/net/hc*; do ip link delete ${link##*/}; done
        nft flush ruleset
        ip address flush dev lo scope global
        cat /proc/sys/kernel/random/uuid > /run/boot_id
        mount --bind /run/boot_id /proc/sys/kernel/random/boot_id";
    plugin.node.run(["sh", "-ec", script]).unwrap();
}

fn bare(verb: &str, conf: &Value) -> lab::Call {
    call(verb, conf).container_id("old").ifname("eth0")
}

/// A node after a reboot, on which a new pod has what an old one had.
fn replaced(plugin: &PluginNode, conf: &Value) -> Value {
    let (old, first) = plugin.attached("old", conf);
    reboot(plugin);
    old.delete().unwrap();
    let (_new, second) = plugin.attached("new", conf);
    assert!(
        plugin
            .ruleset()
            .contains(&format!("8080 : {} . 80", ip(&second, 0)))
    );
    assert!(ip(&first, 0) != ip(&second, 0) || first["ips"] == second["ips"]);
    second
}

#[test]
fn a_late_del_does_not_touch_who_came_after_the_reboot() {
    let conf = with_all(dual_stack());
    let plugin = plugin_node();
    let second = replaced(&plugin, &conf);
    plugin.run(&bare("DEL", &conf)).ok().unwrap();
    let before = snapshot(&plugin);
    for family in [0, 1] {
        plugin.node.ping(&ip(&second, family)).unwrap();
    }
    assert!(
        plugin
            .ruleset()
            .contains(&format!("8080 : {} . 80", ip(&second, 0)))
    );
    assert!(
        !before_has(&plugin, "old"),
        "nothing of the old pod is on disk"
    );
    plugin.run(&bare("DEL", &conf)).ok().unwrap();
    plugin.node.assert_unchanged(&before);
}

#[test]
fn a_collection_after_a_reboot_leaves_only_the_new() {
    let conf = with_all(dual_stack());
    let plugin = plugin_node();
    let second = replaced(&plugin, &conf);
    collect(&plugin, &conf, &["new"]).ok().unwrap();
    plugin.node.ping(&ip(&second, 0)).unwrap();
    assert!(
        !before_has(&plugin, "old"),
        "nothing of the old pod is on disk"
    );
}

#[test]
fn the_same_container_is_attached_anew_after_a_reboot() {
    let conf = with_all(dual_stack());
    let plugin = used_node(&conf);
    let before = snapshot(&plugin);
    let (pod, _) = plugin.attached("old", &conf);
    reboot(&plugin);
    pod.delete().unwrap();
    let (pod, result) = plugin.attached("old", &conf);
    plugin.node.ping(&ip(&result, 1)).unwrap();
    plugin.succeed("DEL", &conf, &pod);
    plugin.node.assert_unchanged(&before);
}

/// Whether a file under `/var/lib/cni` has this in its name or its text.
fn before_has(plugin: &PluginNode, what: &str) -> bool {
    let script = format!("find /var/lib/cni | grep -w {what} || grep -rlw {what} /var/lib/cni");
    plugin
        .node
        .attempt(["sh", "-c", &script])
        .unwrap()
        .status
        .success()
}
