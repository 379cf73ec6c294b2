//! A full or read-only disk, and files in place of directories.

use lab::Netns;
use rstest::rstest;

use crate::store_node::Plugin::{HostLocal, Ours};
use crate::store_node::{StoreNode, assert_ok};

const SUBNETS: &[&str] = &["10.1.0.0/29", "fd00::/125"];

/// Runs a shell script in the data directory.
fn shell(store: &StoreNode, script: &str) {
    let dir = store.data_dir().display();
    let script = format!("cd {dir} && {script}");
    store.node.run(["sh", "-ec", &script]).unwrap();
}

/// Mounts a tmpfs on the data directory.
fn mount(store: &StoreNode, options: &str) {
    let dir = store.data_dir().to_str().unwrap();
    let line = ["mount", "-t", "tmpfs", "-o", options, "tmpfs", dir];
    store.node.run(line).unwrap();
}

/// Fills the disk but for some pages.
fn fill_but(store: &StoreNode, pages: usize) {
    let fill = "dd if=/dev/zero of=fill bs=4k 2>/dev/null || true";
    let free =
        format!("dd if=/dev/null of=fill bs=4k seek=$(($(stat -c %s fill) / 4096 - {pages}))");
    shell(store, &format!("{fill}; {free} 2>/dev/null"));
}

#[rstest]
fn an_add_on_a_filling_disk_leases_all_or_nothing(#[values(0, 1, 2, 3, 4, 5, 6, 7)] pages: usize) {
    let store = StoreNode::new();
    mount(&store, "size=128k");
    let conf = store.subnets(SUBNETS);
    store.add(Ours, "x", &conf);
    fill_but(&store, pages);
    let outcome = store.call(Ours, "ADD", "a", &conf);
    let leased = store.leases_of("a").len();
    if outcome.status.success() {
        assert_eq!(leased, 2);
    } else {
        assert_eq!(outcome.err_code(), Some(5), "{outcome:?}");
        let dir = store.data_dir().to_str().unwrap();
        assert!(outcome.err_msg().contains(dir), "{outcome:?}");
    }
    assert!(pages < 7 || outcome.status.success(), "{outcome:?}");
    assert!(pages > 0 || !outcome.status.success(), "{outcome:?}");
    // With free space again, the failed lease is rolled back.
    shell(&store, "rm fill");
    assert_ok(&store.call(Ours, "STATUS", "", &conf));
    let left = store.leases_of("a").len();
    let expected = if outcome.status.success() { 2 } else { 0 };
    assert_eq!(left, expected, "{outcome:?}");
    store.del(Ours, "a", &conf);
    store.add(Ours, "b", &conf);
    assert_eq!(store.leases().len(), 4);
}

#[test]
fn a_del_of_our_lease_works_on_a_full_disk() {
    let store = StoreNode::new();
    mount(&store, "size=128k");
    let conf = store.subnets(SUBNETS);
    for container in ["a", "b"] {
        store.add(Ours, container, &conf);
    }
    fill_but(&store, 0);
    store.del(Ours, "a", &conf);
    assert_eq!(store.leases().len(), 2);
}

#[test]
fn a_del_of_a_host_local_lease_works_on_a_full_disk() {
    let store = StoreNode::new();
    mount(&store, "size=128k");
    let conf = store.subnets(SUBNETS);
    for container in ["a", "b"] {
        store.add(HostLocal, container, &conf);
    }
    fill_but(&store, 0);
    let message = store.assert_error("STATUS", "", &conf, 50);
    assert!(
        message.contains(store.data_dir().to_str().unwrap()),
        "{message}"
    );
    store.del(Ours, "a", &conf);
    assert_eq!(store.leases().len(), 2);
    store.del(HostLocal, "b", &conf);
    assert!(store.leases().is_empty());
}

#[test]
fn an_add_without_free_inodes_leases_nothing() {
    let store = StoreNode::new();
    mount(&store, "nr_inodes=3");
    let conf = store.subnets(SUBNETS);
    let message = store.assert_error("ADD", "a", &conf, 5);
    let dir = store.data_dir().to_str().unwrap();
    assert!(message.contains(dir), "{message}");
    assert!(store.leases().is_empty());
}

#[test]
fn a_read_only_store_fails_with_its_path_and_keeps_its_leases() {
    let store = StoreNode::new();
    let conf = store.subnets(SUBNETS);
    store.add(Ours, "a", &conf);
    let before = store.files();
    let dir = store.data_dir().to_str().unwrap();
    store.node.run(["mount", "--bind", dir, dir]).unwrap();
    let read_only = ["mount", "-o", "remount,bind,ro", dir];
    store.node.run(read_only).unwrap();
    for (verb, container) in [("ADD", "b"), ("DEL", "a")] {
        let message = store.assert_error(verb, container, &conf, 5);
        assert!(message.contains(dir), "{verb}: {message}");
    }
    let message = store.assert_error("STATUS", "", &conf, 50);
    assert!(message.contains(dir), "{message}");
    assert_eq!(store.files(), before);
    store
        .node
        .run(["mount", "-o", "remount,bind,rw", dir])
        .unwrap();
    store.del(Ours, "a", &conf);
    assert!(store.leases().is_empty());
}

#[rstest]
#[case::of_the_store("echo important > net")]
#[case::of_the_index("mkdir net; echo important > net/.headcni")]
#[case::of_the_records("mkdir -p net/.headcni; echo important > net/.headcni/owners")]
#[case::a_directory_in_place_of_the_lock("mkdir -p net/lock/important")]
#[case::a_dangling_link("ln -s nowhere/at/all net")]
fn a_file_in_place_of_a_directory_fails_with_its_path(#[case] prepare: &str) {
    let store = StoreNode::new();
    let conf = store.subnets(SUBNETS);
    shell(&store, prepare);
    let before = store.files();
    let message = store.assert_error("ADD", "a", &conf, 5);
    let store_dir = store.data_dir().join("net");
    assert!(message.contains(store_dir.to_str().unwrap()), "{message}");
    let contents = |(path, text): (_, Option<Vec<u8>>)| text.map(|text| (path, text));
    let kept: Vec<_> = store.files().into_iter().filter_map(contents).collect();
    for file in before.into_iter().filter_map(contents) {
        assert!(kept.contains(&file), "{file:?} is gone");
    }
    assert!(store.leases().is_empty());
}

#[test]
fn a_data_dir_that_is_a_file_fails_with_its_path() {
    let store = StoreNode::new();
    shell(&store, "echo important > file");
    let file = store.data_dir().join("file");
    let conf = store.conf(&serde_json::json!({"subnet": "10.1.0.0/24", "dataDir": file}));
    let message = store.assert_error("ADD", "a", &conf, 5);
    assert!(message.contains(file.to_str().unwrap()), "{message}");
    // There was never a lease.
    store.del(Ours, "a", &conf);
}
