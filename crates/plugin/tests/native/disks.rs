//! Disks that are full or can't be written: an ADD says so and leaves nothing, a DEL does what it
//! can.

use lab::Netns;
use rstest::rstest;
use serde_json::{Value, json};

use crate::killing::{collect, with_all};
use crate::scene::{LEASE_DIR, Scene, dual_stack, host_link, with};
use crate::traces::snapshot;

/// Where the records are in these tests.
const DATA_DIR: &str = "/run/native-data";

fn conf() -> Value {
    with(with_all(dual_stack()), "dataDir", json!(DATA_DIR))
}

fn shell(scene: &Scene, line: &str) {
    scene.node.run(["sh", "-ec", line]).unwrap();
}

/// A file system of its own for a directory.
fn mount(scene: &Scene, dir: &str, options: &str) {
    let line = format!("mkdir -p {dir} && mount -t tmpfs -o {options} tmpfs {dir}");
    shell(scene, &line);
}

/// Uses up all space of a file system, and the files that there may be on it.
fn fill(scene: &Scene, dir: &str) {
    let line =
        format!("dd if=/dev/zero of={dir}/fill bs=1k || true; touch {dir}/f1 {dir}/f2 || true");
    shell(scene, &format!("({line}) 2>/dev/null"));
}

/// The files of both stores, which are on file systems of their own.
fn remount(scene: &Scene, how: &str) {
    for dir in [DATA_DIR, LEASE_DIR] {
        shell(scene, &format!("mount -o remount,{how} {dir}"));
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
    let scene = Scene::used(&conf());
    let pod = scene.pod("p");
    shell(&scene, "rm -rf /var/lib/cni/networks");
    mount(&scene, dir, options);
    if !options.contains("ro") {
        fill(&scene, dir);
    }
    let before = snapshot(&scene);
    let outcome = scene.attempt("ADD", &conf(), &pod);
    assert!(outcome.err_code().is_some(), "{outcome:?}");
    assert!(outcome.err_msg().contains(dir), "{outcome:?}");
    assert_eq!(pod.links().unwrap(), [""; 0]);
    // The store of the leases may have made the files that it keeps for ever.
    let unchanged = || {
        let made = lab::Ignore::new().path(LEASE_DIR);
        let difference = before.clone().ignoring(made.clone());
        let difference = difference.difference(&snapshot(&scene).ignoring(made));
        assert_eq!(difference, "");
    };
    unchanged();
    let outcome = scene.attempt("DEL", &conf(), &pod);
    // Whether there are leases can't be told where no lock can be made.
    let is_told = dir == LEASE_DIR && outcome.err_msg().contains(dir);
    assert!(outcome.status.success() || is_told, "{outcome:?}");
    unchanged();
}

#[rstest]
fn a_full_disk_is_no_obstacle_to_del_and_gc(#[values("DEL", "GC")] verb: &str) {
    let scene = Scene::new();
    mount(&scene, DATA_DIR, "size=64k");
    mount(&scene, LEASE_DIR, "size=256k");
    let pod = scene.pod("p");
    scene.done("ADD", &conf(), &pod);
    scene.done("DEL", &conf(), &pod);
    let before = snapshot(&scene);
    scene.done("ADD", &conf(), &pod);
    fill(&scene, DATA_DIR);
    fill(&scene, LEASE_DIR);
    if verb == "DEL" {
        scene.done("DEL", &conf(), &pod);
    } else {
        collect(&scene, &conf(), &[]).ok().unwrap();
    }
    for dir in [DATA_DIR, LEASE_DIR] {
        shell(&scene, &format!("rm -f {dir}/fill {dir}/f1 {dir}/f2"));
    }
    scene.node.assert_unchanged(&before);
}

#[test]
fn del_on_a_read_only_disk_removes_the_link_and_is_tried_again() {
    let scene = Scene::new();
    mount(&scene, DATA_DIR, "size=1m");
    mount(&scene, LEASE_DIR, "size=1m");
    let pod = scene.pod("p");
    scene.done("ADD", &conf(), &pod);
    scene.done("DEL", &conf(), &pod);
    let before = snapshot(&scene);
    let result = scene.done("ADD", &conf(), &pod).ok_json().unwrap();
    remount(&scene, "ro");
    let outcome = scene.attempt("DEL", &conf(), &pod);
    assert!(outcome.err_code().is_some(), "{outcome:?}");
    assert!(scene.node.link(&host_link(&result)).unwrap().is_none());
    assert!(
        !scene.ruleset().contains("8080"),
        "its hostPorts went with it"
    );
    remount(&scene, "rw");
    scene.done("DEL", &conf(), &pod);
    scene.node.assert_unchanged(&before);
}
