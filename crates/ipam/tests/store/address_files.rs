//! Address files are linked by `RENAME_NOREPLACE`, or by link and unlink where the file system
//! lacks it (NFS, for example; strace simulates one).

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::{MetadataExt, symlink};
use std::path::PathBuf;

use lab::{Call, Netns};
use rstest::rstest;
use serde_json::Value;

use crate::faults::{Syscall, fail_at, in_store, syscalls};
use crate::store_node::Plugin::{HostLocal, Ours};
use crate::store_node::{StoreNode, assert_ok, call, overwrite};

/// A store with a lease of `x`, and the system calls of an ADD in it.
fn store_and_syscalls() -> (StoreNode, Value, Vec<Syscall>) {
    let store = StoreNode::new();
    let conf = store.subnets(&["10.1.0.0/29"]);
    store.add(Ours, "x", &conf);
    let syscalls = in_store(&store, syscalls(&store, &call("ADD", "a", &conf)));
    store.del(Ours, "a", &conf);
    (store, conf, syscalls)
}

/// The system call that links a file to its address.
fn linking(syscalls: &[Syscall]) -> Syscall {
    let is_linking = |syscall: &&Syscall| syscall.line.contains("RENAME_NOREPLACE");
    syscalls.iter().find(is_linking).unwrap().clone()
}

fn reusable(store: &StoreNode) -> PathBuf {
    store.file(".headcni/new.0")
}

fn file_of(store: &StoreNode, container: &str) -> PathBuf {
    let leased = store.leases_of(container);
    store.file(leased.first().unwrap())
}

#[rstest]
fn an_add_works_without_rename_noreplace(#[values("EINVAL", "ENOSYS", "EOPNOTSUPP")] errno: &str) {
    let (store, conf, syscalls) = store_and_syscalls();
    let add = call("ADD", "a", &conf);
    assert_ok(&fail_at(&store, &add, &linking(&syscalls), errno));
    assert_eq!(store.leases_of("a").len(), 1);
    assert_eq!(file_of(&store, "a").metadata().unwrap().nlink(), 1);
    assert!(!reusable(&store).exists());
}

#[test]
fn an_add_by_link_and_unlink_is_atomic_under_kill() {
    let (store, conf, usual) = store_and_syscalls();
    let unsupported = linking(&usual).fail("EINVAL");
    let add = call("ADD", "a", &conf).inject(unsupported);
    let syscalls = in_store(&store, syscalls(&store, &add));
    assert!(
        syscalls
            .iter()
            .any(|syscall| syscall.name.starts_with("link"))
    );
    store.del(Ours, "a", &conf);
    // strace injects one fault per kind of system call.
    let is_other = |syscall: &&Syscall| !syscall.name.starts_with("rename");
    for syscall in syscalls.iter().filter(is_other) {
        store.run(Ours, &add.clone().inject(syscall.kill()));
        let leased = store.add(Ours, "n", &conf);
        assert_eq!(store.leases_of("n"), BTreeSet::from_iter(leased));
        assert_eq!(store.leases_of("x").len(), 1, "{syscall:?}");
        for container in ["a", "n"] {
            store.del(Ours, container, &conf);
        }
        assert_eq!(store.leases().len(), 1, "{syscall:?}");
    }
}

#[test]
fn an_add_whose_unlink_fails_leases_nothing() {
    let (store, conf, usual) = store_and_syscalls();
    let unsupported = linking(&usual).fail("EINVAL");
    let add =
        |container: &str| -> Call { call("ADD", container, &conf).inject(unsupported.clone()) };
    let all = syscalls(&store, &add("a"));
    store.del(Ours, "a", &conf);
    let is_removal = |m: &&Syscall| m.name.starts_with("unlink") && m.line.contains("new.0");
    // Not retried, unlike EIO.
    let stuck = all.iter().rfind(is_removal).unwrap().fail("EROFS");
    let outcome = store.run(Ours, &add("a").inject(stuck));
    assert!(!outcome.status.success(), "{outcome:?}");
    assert!(store.leases_of("a").is_empty());
    assert_ok(&store.run(Ours, &add("b")));
    assert_eq!(store.leases_of("b").len(), 1);
    assert_eq!(store.leases_of("x").len(), 1);
}

#[test]
fn a_lease_reuses_the_file_of_a_release() {
    let store = StoreNode::new();
    let conf = store.subnets(&["10.1.0.0/29", "fd00::/125"]);
    let inodes = |container: &str| -> BTreeSet<u64> {
        let leased = store.leases_of(container);
        let metadata = leased.iter().map(|ip| store.file(ip).metadata().unwrap());
        metadata.map(|metadata| metadata.ino()).collect()
    };
    store.add(Ours, "a-long-name-of-a-container", &conf);
    let of_first = inodes("a-long-name-of-a-container");
    store.del(Ours, "a-long-name-of-a-container", &conf);
    store.add(Ours, "b", &conf);
    assert_eq!(inodes("b"), of_first);
    let file = fs::read_to_string(file_of(&store, "b")).unwrap();
    assert_eq!(file, "b\r\neth0", "the old content is gone");
    // Only one file is kept for reuse.
    store.add(Ours, "c", &conf);
    for container in ["b", "c"] {
        store.del(Ours, container, &conf);
    }
    assert!(store.leases().is_empty());
    let leased = store.add(HostLocal, "d", &conf);
    assert_eq!(store.leases_of("d"), BTreeSet::from_iter(leased));
}

#[rstest]
fn a_foreign_file_in_place_of_the_reused_one_is_replaced(
    #[values("a link", "a pipe", "an empty file", "a long file")] what: &str,
) {
    let (store, conf, _) = store_and_syscalls();
    let (reusable, elsewhere) = (reusable(&store), store.data_dir().join("elsewhere"));
    overwrite(&elsewhere, b"important");
    fs::remove_file(&reusable).unwrap();
    match what {
        "a link" => symlink(&elsewhere, &reusable).unwrap(),
        "a pipe" => drop(
            store
                .node
                .run(["mkfifo".as_ref(), reusable.as_os_str()])
                .unwrap(),
        ),
        "an empty file" => overwrite(&reusable, b""),
        _ => overwrite(&reusable, &[b'x'; 10_000]),
    }
    store.add(Ours, "a", &conf);
    let file = file_of(&store, "a");
    assert!(file.symlink_metadata().unwrap().is_file());
    assert_eq!(fs::read_to_string(&file).unwrap(), "a\r\neth0");
    assert_eq!(fs::read_to_string(&elsewhere).unwrap(), "important");
}
