//! A data directory that can't be written: refused with its path, and nothing changed.

use lab::scenario::PluginNode;
use std::fs;
use std::os::unix::fs::PermissionsExt;

use lab::{Netns, Outcome};
use rstest::rstest;
use serde_json::{Value, json};

use crate::networks::{RECORD_DIR, call, chain, succeeded, used_node, with};

const DATA_DIR: &str = "/run/faults-data";

fn conf() -> Value {
    with(chain(&[]), "dataDir", json!(DATA_DIR))
}

/// Fills the file system of the data directory to its last byte.
const FILL: &str = "dd if=/dev/zero of=/run/faults-data/fill bs=1k 2>/dev/null";

#[rstest]
#[case::read_only("mkdir /run/faults-data && mount -t tmpfs -o ro tmpfs /run/faults-data")]
#[case::full(
    "mkdir /run/faults-data && mount -t tmpfs -o size=4k tmpfs /run/faults-data; \
    dd if=/dev/zero of=/run/faults-data/fill bs=1k 2>/dev/null; true"
)]
#[case::without_inodes(
    "mkdir /run/faults-data && mount -t tmpfs -o nr_inodes=1 tmpfs /run/faults-data"
)]
#[case::a_file("echo important > /run/faults-data")]
#[case::a_dangling_link("ln -s /run/nowhere/at/all /run/faults-data")]
#[case::below_a_file("echo important > /run/faults-file; ln -s faults-file/x /run/faults-data")]
fn an_add_that_cannot_be_recorded_is_refused(#[case] prepare: &str) {
    let plugin = used_node();
    let pod = plugin.pod("p");
    plugin.node.run(["sh", "-c", prepare]).unwrap();
    let before = plugin.snapshot();

    let outcome = plugin.fail("ADD", &conf(), &pod, 5);
    assert!(outcome.err_msg().contains(DATA_DIR), "{outcome:?}");
    let outcome = plugin.run(&call("STATUS", &conf()));
    assert_eq!(outcome.err_code(), Some(50), "{outcome:?}");
    assert!(outcome.err_msg().contains(DATA_DIR), "{outcome:?}");
    assert_eq!(pod.links().unwrap(), [""; 0]);
    plugin.node.assert_unchanged(&before);

    // The runtime cleans up after the ADD that failed.
    let outcome = plugin.attempt("DEL", &conf(), &pod);
    assert!(outcome.status.success(), "{outcome:?}");
    plugin.node.assert_unchanged(&before);
}

#[test]
fn a_missing_data_directory_is_made_for_its_owner_s_eyes() {
    let plugin = used_node();
    let pod = plugin.pod("p");
    let data_dir = "/run/faults-data/deep/er";
    let conf = with(chain(&[]), "dataDir", json!(data_dir));
    let careless = ["sh", "-c", "umask 0; exec \"$0\""];
    succeeded(plugin.run(&call("ADD", &conf).pod(&pod).under(careless)));
    let mode = |path: &str| {
        let about = fs::symlink_metadata(plugin.node.path(path)).unwrap();
        about.permissions().mode() & 0o7777
    };
    let network = format!("{data_dir}/faultnet");
    assert_eq!((mode(data_dir), mode(&network)), (0o700, 0o700));
    for name in plugin.files(&network) {
        assert_eq!(mode(&format!("{network}/{name}")), 0o600, "{name}");
    }
    assert_eq!(plugin.files(&network), ["p@eth0.json"]);
}

fn small_disk(plugin: &PluginNode) {
    let mount = ["mount", "-t", "tmpfs", "-o", "size=16k", "tmpfs", DATA_DIR];
    plugin.node.run(["mkdir", DATA_DIR]).unwrap();
    plugin.node.run(mount).unwrap();
}

#[test]
fn del_and_gc_work_on_a_full_disk() {
    let plugin = used_node();
    small_disk(&plugin);
    let pod = plugin.pod("p");
    let before = plugin.snapshot();
    let ends: [fn(&PluginNode) -> Outcome; 2] = [
        |plugin| {
            plugin.run(
                &call("DEL", &conf())
                    .container_id("p")
                    .ifname("eth0")
                    .netns("/run/netns/p"),
            )
        },
        |plugin| plugin.gc(&conf(), &[]),
    ];
    for end in ends {
        plugin.succeed("ADD", &conf(), &pod);
        plugin.node.attempt(["sh", "-c", FILL]).unwrap();
        succeeded(end(&plugin));
        plugin.node.run(["rm", "/run/faults-data/fill"]).unwrap();
        plugin.node.assert_unchanged(&before);
    }
}

#[test]
fn a_disk_that_fills_up_in_the_middle_of_an_add_undoes_it() {
    let plugin = used_node();
    small_disk(&plugin);
    let pod = plugin.pod("p");
    let before = plugin.snapshot();
    let result = r#"echo '{"cniVersion":"1.1.0"}'"#;
    plugin.script(
        "fills",
        &format!("[ $verb = DEL ] && exit 0\n{FILL}\n{result}"),
    );
    plugin.script("last", result);
    // Before the last member's record is written, and before the final one.
    for more in [&["fills", "last"][..], &["fills"]] {
        // A line that doesn't fit into what the file has of the disk already.
        let large = "x".repeat(10_000);
        let more: Vec<_> = more
            .iter()
            .map(|kind| json!({ "type": kind, "large": large }))
            .collect();
        let conf = with(chain(&more), "dataDir", json!(DATA_DIR));
        let outcome = plugin.fail("ADD", &conf, &pod, 5);
        assert!(outcome.err_msg().contains(DATA_DIR), "{outcome:?}");
        plugin.node.run(["rm", "/run/faults-data/fill"]).unwrap();
        plugin.node.assert_unchanged(&before);
    }
}

#[test]
fn a_del_that_cannot_forget_is_tried_again() {
    let plugin = used_node();
    small_disk(&plugin);
    let pod = plugin.pod("p");
    let before = plugin.snapshot();
    plugin.succeed("ADD", &conf(), &pod);
    plugin
        .node
        .run(["mount", "-o", "remount,ro", DATA_DIR])
        .unwrap();
    let outcome = plugin.fail("DEL", &conf(), &pod, 5);
    assert!(outcome.err_msg().contains("p@eth0"), "{outcome:?}");
    assert_eq!(plugin.leases(), [""; 0], "what could be undone was");
    plugin
        .node
        .run(["mount", "-o", "remount,rw", DATA_DIR])
        .unwrap();
    plugin.succeed("DEL", &conf(), &pod);
    plugin.node.assert_unchanged(&before);
}

#[test]
fn status_leaves_no_traces() {
    let plugin = used_node();
    succeeded(plugin.run(&call("STATUS", &chain(&[]))));
    assert!(!plugin.node.has(RECORD_DIR));
    assert_eq!(plugin.files("/var/lib/cni/headcni"), [""; 0]);
}
