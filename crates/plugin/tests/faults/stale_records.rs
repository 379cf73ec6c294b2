//! Records that outlived what they tell of: another boot, another namespace at the same path.

use lab::scenario::PluginNode;
use std::fs;
use std::os::unix::fs::MetadataExt;

use lab::{Netns, Pod, eventually};
use rstest::rstest;
use serde_json::json;

use crate::networks::{call, succeeded, unmasqueraded_chain, used_node};

#[test]
fn an_add_after_a_reboot_undoes_the_attachment_of_the_earlier_boot() {
    let plugin = used_node();
    let conf = unmasqueraded_chain();
    let before = plugin.snapshot();
    let pod = plugin.pod("p");
    plugin.succeed("ADD", &conf, &pod);
    let mut record = plugin.record("p").unwrap();
    assert_eq!(record["progress"], "done");
    record["boot"] = json!("00000000-0000-0000-0000-000000000000");
    plugin.write_record("p", &record.to_string());
    pod.delete().unwrap();

    let pod = plugin.pod("p");
    plugin.succeed("ADD", &conf, &pod);
    assert_eq!(plugin.leases().len(), 1, "the old lease went");
    assert_eq!(pod.links().unwrap(), ["eth0"]);
    assert_ne!(plugin.record("p").unwrap()["boot"], record["boot"]);
    plugin.succeed("DEL", &conf, &pod);
    plugin.node.assert_unchanged(&before);
}

#[test]
fn a_record_of_an_earlier_boot_says_nothing_about_a_namespace_of_this_one() {
    let plugin = used_node();
    let conf = unmasqueraded_chain();
    let before = plugin.snapshot();
    let pod = plugin.pod("p");
    plugin.succeed("ADD", &conf, &pod);
    let mut record = plugin.record("p").unwrap();
    record["boot"] = json!("00000000-0000-0000-0000-000000000000");
    plugin.write_record("p", &record.to_string());
    succeeded(plugin.gc(&conf, &[]));
    assert_eq!(
        pod.links().unwrap(),
        ["eth0"],
        "whose it is, nobody can tell"
    );
    assert_eq!(plugin.leases(), [""; 0]);
    pod.run(["ip", "link", "delete", "eth0"]).unwrap();
    plugin.node.assert_unchanged(&before);
}

fn inode(plugin: &PluginNode, name: &str) -> u64 {
    fs::metadata(plugin.node.path(format!("/run/netns/{name}")))
        .unwrap()
        .ino()
}

/// What the kernel does with the number of a namespace that is gone.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Number {
    /// The old namespace lives on, elsewhere.
    New,
    /// It is given to the next namespace, which is what Linux does as soon as it can.
    Reused,
}

/// Does an ADD for the pod `p`, deletes its namespace and makes another one at the same path.
fn path_reused(plugin: &PluginNode, number: Number) -> Pod {
    let conf = unmasqueraded_chain();
    let attach = || {
        let pod = plugin.pod("p");
        plugin.succeed("ADD", &conf, &pod);
        (inode(plugin, "p"), pod)
    };
    if number == Number::New {
        let (old, pod) = attach();
        set_aside(plugin, "held");
        pod.delete().unwrap();
        let pod = plugin.pod("p");
        assert_ne!(inode(plugin, "p"), old);
        return pod;
    }
    // The kernel frees the number in its own time, and gives it to whoever comes first, which may
    // be another test: then from the beginning.
    let found = || {
        let (old, pod) = attach();
        pod.delete().unwrap();
        for n in 0..20 {
            let pod = plugin.pod("p");
            if inode(plugin, "p") == old {
                return Some(pod);
            }
            set_aside(plugin, &format!("aside{n}"));
            pod.delete().unwrap();
        }
        for n in 0..20 {
            plugin
                .node
                .run(["ip", "netns", "delete", &format!("aside{n}")])
                .unwrap();
        }
        let del = call("DEL", &conf).container_id("p").ifname("eth0");
        succeeded(plugin.run(&del));
        None
    };
    eventually(
        lab::DEADLINE,
        "a namespace with the number of the old one",
        found,
    )
    .unwrap()
}

/// Keeps the namespace of the pod `p` alive under another name.
fn set_aside(plugin: &PluginNode, name: &str) {
    let command = format!("touch {name} && mount --bind p {name}");
    plugin
        .node
        .run(["sh", "-c", &format!("cd /run/netns && {command}")])
        .unwrap();
}

#[rstest]
fn gc_leaves_the_interface_of_another_namespace_alone(
    #[values(Number::New, Number::Reused)] number: Number,
) {
    let plugin = used_node();
    let other = path_reused(&plugin, number);
    other
        .run(["ip", "link", "add", "eth0", "type", "bridge"])
        .unwrap();
    succeeded(plugin.gc(&unmasqueraded_chain(), &[]));
    assert_eq!(other.links().unwrap(), ["eth0"]);
    assert_eq!(plugin.leases(), [""; 0]);
    assert!(plugin.record("p").is_none());
}

#[rstest]
fn an_add_to_another_namespace_undoes_what_was_in_the_old_one(
    #[values(Number::New, Number::Reused)] number: Number,
) {
    // As podman does: same container, same path, no DEL in between.
    let plugin = used_node();
    let other = path_reused(&plugin, number);
    let conf = unmasqueraded_chain();
    plugin.succeed("ADD", &conf, &other);
    assert_eq!(other.links().unwrap(), ["eth0"]);
    assert_eq!(plugin.leases().len(), 1);
    plugin.succeed("DEL", &conf, &other);
    assert_eq!(plugin.leases(), [""; 0]);
}

#[rstest]
fn del_leaves_the_interface_of_another_namespace_alone(
    #[values(Number::New, Number::Reused)] number: Number,
) {
    // As libcni's garbage collection does: it remembers the path, not the namespace.
    let plugin = used_node();
    let other = path_reused(&plugin, number);
    other
        .run(["ip", "link", "add", "eth0", "type", "bridge"])
        .unwrap();
    let conf = unmasqueraded_chain();
    succeeded(plugin.run(&call("DEL", &conf).pod(&other)));
    assert_eq!(other.links().unwrap(), ["eth0"]);
    assert_eq!(plugin.leases(), [""; 0]);
    assert!(plugin.record("p").is_none());
}
