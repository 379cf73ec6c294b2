//! A disk that is full or read-only, and files where directories should be.

use lab::Netns;
use rstest::rstest;

use crate::scene::Plugin::{HostLocal, Ours};
use crate::scene::{Scene, done};

const SUBNETS: &[&str] = &["10.1.0.0/29", "fd00::/125"];

/// Runs a shell script on the node, in the data directory.
fn shell(scene: &Scene, script: &str) {
    let dir = scene.data_dir().display();
    let script = format!("cd {dir} && {script}");
    scene.node.run(["sh", "-ec", &script]).unwrap();
}

/// Mounts a file system in memory on the data directory.
fn mount(scene: &Scene, options: &str) {
    let dir = scene.data_dir().to_str().unwrap();
    let line = ["mount", "-t", "tmpfs", "-o", options, "tmpfs", dir];
    scene.node.run(line).unwrap();
}

/// Takes all of the disk but so many pages.
fn fill_but(scene: &Scene, pages: usize) {
    let fill = "dd if=/dev/zero of=fill bs=4k 2>/dev/null || true";
    let free =
        format!("dd if=/dev/null of=fill bs=4k seek=$(($(stat -c %s fill) / 4096 - {pages}))");
    shell(scene, &format!("{fill}; {free} 2>/dev/null"));
}

#[rstest]
fn a_disk_that_fills_up_leases_whole_or_not_at_all(#[values(0, 1, 2, 3, 4, 5, 6, 7)] pages: usize) {
    let scene = Scene::new();
    mount(&scene, "size=128k");
    let conf = scene.subnets(SUBNETS);
    scene.add(Ours, "x", &conf);
    fill_but(&scene, pages);
    let outcome = scene.ask(Ours, "ADD", "a", &conf);
    let leased = scene.leases_of("a").len();
    if outcome.status.success() {
        assert_eq!(leased, 2);
    } else {
        assert_eq!(outcome.err_code(), Some(5), "{outcome:?}");
        let dir = scene.data_dir().to_str().unwrap();
        assert!(outcome.err_msg().contains(dir), "{outcome:?}");
    }
    assert!(pages < 7 || outcome.status.success(), "{outcome:?}");
    assert!(pages > 0 || !outcome.status.success(), "{outcome:?}");
    // With room again, everything is as it should be.
    shell(&scene, "rm fill");
    done(&scene.ask(Ours, "STATUS", "", &conf));
    let left = scene.leases_of("a").len();
    let expected = if outcome.status.success() { 2 } else { 0 };
    assert_eq!(left, expected, "{outcome:?}");
    scene.del(Ours, "a", &conf);
    scene.add(Ours, "b", &conf);
    assert_eq!(scene.leases().len(), 4);
}

#[test]
fn what_we_leased_is_released_on_a_full_disk() {
    let scene = Scene::new();
    mount(&scene, "size=128k");
    let conf = scene.subnets(SUBNETS);
    for who in ["a", "b"] {
        scene.add(Ours, who, &conf);
    }
    fill_but(&scene, 0);
    scene.del(Ours, "a", &conf);
    assert_eq!(scene.leases().len(), 2);
}

#[test]
fn what_host_local_leased_is_released_on_a_full_disk() {
    let scene = Scene::new();
    mount(&scene, "size=128k");
    let conf = scene.subnets(SUBNETS);
    for who in ["a", "b"] {
        scene.add(HostLocal, who, &conf);
    }
    fill_but(&scene, 0);
    let message = scene.refused("STATUS", "", &conf, 50);
    assert!(
        message.contains(scene.data_dir().to_str().unwrap()),
        "{message}"
    );
    scene.del(Ours, "a", &conf);
    assert_eq!(scene.leases().len(), 2);
    // As host-local itself can.
    scene.del(HostLocal, "b", &conf);
    assert!(scene.leases().is_empty());
}

#[test]
fn without_inodes_nothing_is_leased() {
    let scene = Scene::new();
    mount(&scene, "nr_inodes=3");
    let conf = scene.subnets(SUBNETS);
    let message = scene.refused("ADD", "a", &conf, 5);
    let dir = scene.data_dir().to_str().unwrap();
    assert!(message.contains(dir), "{message}");
    assert!(scene.leases().is_empty());
}

#[test]
fn a_read_only_store_is_refused_by_name_and_loses_nothing() {
    let scene = Scene::new();
    let conf = scene.subnets(SUBNETS);
    scene.add(Ours, "a", &conf);
    let before = scene.files();
    let dir = scene.data_dir().to_str().unwrap();
    scene.node.run(["mount", "--bind", dir, dir]).unwrap();
    let read_only = ["mount", "-o", "remount,bind,ro", dir];
    scene.node.run(read_only).unwrap();
    for (verb, who) in [("ADD", "b"), ("DEL", "a")] {
        let message = scene.refused(verb, who, &conf, 5);
        assert!(message.contains(dir), "{verb}: {message}");
    }
    let message = scene.refused("STATUS", "", &conf, 50);
    assert!(message.contains(dir), "{message}");
    assert_eq!(scene.files(), before);
    scene
        .node
        .run(["mount", "-o", "remount,bind,rw", dir])
        .unwrap();
    scene.del(Ours, "a", &conf);
    assert!(scene.leases().is_empty());
}

#[rstest]
#[case::of_the_store("echo important > net")]
#[case::of_the_index("mkdir net; echo important > net/.headcni")]
#[case::of_the_records("mkdir -p net/.headcni; echo important > net/.headcni/owners")]
#[case::a_directory_in_place_of_the_lock("mkdir -p net/lock/important")]
#[case::a_dangling_link("ln -s nowhere/at/all net")]
fn a_file_in_place_of_a_directory_is_refused_by_name(#[case] prepare: &str) {
    let scene = Scene::new();
    let conf = scene.subnets(SUBNETS);
    shell(&scene, prepare);
    let before = scene.files();
    let message = scene.refused("ADD", "a", &conf, 5);
    let store = scene.data_dir().join("net");
    assert!(message.contains(store.to_str().unwrap()), "{message}");
    let contents = |(path, text): (_, Option<Vec<u8>>)| text.map(|text| (path, text));
    let kept: Vec<_> = scene.files().into_iter().filter_map(contents).collect();
    for file in before.into_iter().filter_map(contents) {
        assert!(kept.contains(&file), "{file:?} is gone");
    }
    assert!(scene.leases().is_empty());
}

#[test]
fn a_data_directory_that_is_a_file_is_refused_by_name() {
    let scene = Scene::new();
    shell(&scene, "echo important > file");
    let file = scene.data_dir().join("file");
    let conf = scene.conf(&serde_json::json!({"subnet": "10.1.0.0/24", "dataDir": file}));
    let message = scene.refused("ADD", "a", &conf, 5);
    assert!(message.contains(file.to_str().unwrap()), "{message}");
    // There never was a lease there.
    scene.del(Ours, "a", &conf);
}
