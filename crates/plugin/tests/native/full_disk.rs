//! Disks that are full or can't be written: an ADD says so and leaves nothing, a DEL does what it
//! can.

use lab::Netns;
use lab::scenario::PluginNode;
use rstest::rstest;
use serde_json::{Value, json};

use crate::kill_sweep::{collect, with_all};
use crate::networks::{LEASE_DIR, dual_stack, host_link, plugin_node, used_node, with};
use crate::node_state::snapshot;

/// Where the records are in these tests.
const DATA_DIR: &str = "/run/native-data";

fn conf() -> Value {
    with(with_all(dual_stack()), "dataDir", json!(DATA_DIR))
}

fn shell(plugin: &PluginNode, line: &str) {
    plugin.node.run(["sh", "-ec", line]).unwrap();
}

/// A file system of its own for a directory.
fn mount(plugin: &PluginNode, dir: &str, options: &str) {
    let line = format!("mkdir -p {dir} && mount -t tmpfs -o {options} tmpfs {dir}");
    shell(plugin, &line);
}

/// Uses up all space of a file system, and the files that there may be on it.
fn fill(plugin: &PluginNode, dir: &str) {
    let line =
        format!("dd if=/dev/zero of={dir}/fill bs=1k || true; touch {dir}/f1 {dir}/f2 || true");
    shell(plugin, &format!("({line}) 2>/dev/null"));
}

/// The files of both stores, which are on file systems of their own.
fn remount(plugin: &PluginNode, how: &str) {
    for dir in [DATA_DIR, LEASE_DIR] {
        shell(plugin, &format!("mount -o remount,{how} {dir}"));
    }
}

#[rstest]
#[case::read_only("size=1m,ro")]
#[case::full("size=4k")]
#[case::without_inodes("nr_inodes=1")]
fn an_add_that_cannot_be_written_down_leaves_nothing(
    #[case] options: &str,
    #[values(DATA_DIR, LEASE_DIR)] dir: &str,
) {
    let plugin = used_node(&conf());
    let pod = plugin.pod("p");
    shell(&plugin, "rm -rf /var/lib/cni/networks");
    mount(&plugin, dir, options);
    if !options.contains("ro") {
        fill(&plugin, dir);
    }
    let before = snapshot(&plugin);
    let outcome = plugin.attempt("ADD", &conf(), &pod);
    assert!(outcome.err_code().is_some(), "{outcome:?}");
    assert!(outcome.err_msg().contains(dir), "{outcome:?}");
    assert_eq!(pod.links().unwrap(), [""; 0]);
    // The store of the leases may have made the files that it keeps for ever.
    let unchanged = || {
        let made = lab::Ignore::new().path(LEASE_DIR);
        let difference = before.clone().ignoring(made.clone());
        let difference = difference.difference(&snapshot(&plugin).ignoring(made));
        assert_eq!(difference, "");
    };
    unchanged();
    let outcome = plugin.attempt("DEL", &conf(), &pod);
    // Whether there are leases can't be told where no lock can be made.
    let is_told = dir == LEASE_DIR && outcome.err_msg().contains(dir);
    assert!(outcome.status.success() || is_told, "{outcome:?}");
    unchanged();
}

#[rstest]
fn a_full_disk_is_no_obstacle_to_del_and_gc(#[values("DEL", "GC")] verb: &str) {
    let plugin = plugin_node();
    mount(&plugin, DATA_DIR, "size=64k");
    mount(&plugin, LEASE_DIR, "size=256k");
    let pod = plugin.pod("p");
    plugin.succeed("ADD", &conf(), &pod);
    plugin.succeed("DEL", &conf(), &pod);
    let before = snapshot(&plugin);
    plugin.succeed("ADD", &conf(), &pod);
    fill(&plugin, DATA_DIR);
    fill(&plugin, LEASE_DIR);
    if verb == "DEL" {
        plugin.succeed("DEL", &conf(), &pod);
    } else {
        collect(&plugin, &conf(), &[]).ok().unwrap();
    }
    for dir in [DATA_DIR, LEASE_DIR] {
        shell(&plugin, &format!("rm -f {dir}/fill {dir}/f1 {dir}/f2"));
    }
    plugin.node.assert_unchanged(&before);
}

#[test]
fn del_on_a_read_only_disk_removes_the_link_and_is_tried_again() {
    let plugin = plugin_node();
    mount(&plugin, DATA_DIR, "size=1m");
    mount(&plugin, LEASE_DIR, "size=1m");
    let pod = plugin.pod("p");
    plugin.succeed("ADD", &conf(), &pod);
    plugin.succeed("DEL", &conf(), &pod);
    let before = snapshot(&plugin);
    let result = plugin.succeed("ADD", &conf(), &pod).ok_json().unwrap();
    remount(&plugin, "ro");
    let outcome = plugin.attempt("DEL", &conf(), &pod);
    assert!(outcome.err_code().is_some(), "{outcome:?}");
    assert!(plugin.node.link(&host_link(&result)).unwrap().is_none());
    assert!(
        !plugin.ruleset().contains("8080"),
        "its hostPorts went with it"
    );
    remount(&plugin, "rw");
    plugin.succeed("DEL", &conf(), &pod);
    plugin.node.assert_unchanged(&before);
}
