//! An error at every system call of ADD and DEL in the store.

use lab::Call;
use rstest::rstest;

use crate::faults::{Syscall, fail_at, in_store, syscalls};
use crate::store_node::Plugin::Ours;
use crate::store_node::{StoreNode, assert_ok, call};

const SUBNETS: &[&str] = &["10.1.0.0/29", "fd00::/125"];

/// Whether a disk can make this system call fail.
fn is_disk_access(syscall: &Syscall) -> bool {
    // With the names of all architectures.
    let fail = [
        "open",
        "openat",
        "read",
        "pread64",
        "write",
        "pwrite64",
        "linkat",
        "rename",
        "renameat",
        "renameat2",
        "unlink",
        "unlinkat",
        "utimensat",
        "stat",
        "fstat",
        "newfstatat",
        "statx",
        "getdents64",
    ];
    // The write to stdout is the result.
    fail.contains(&syscall.name.as_str()) && !syscall.line.starts_with("write(1,")
}

/// The system calls that read the boot ID, and those after it in the store.
fn split(store: &StoreNode, call: &Call) -> (Vec<Syscall>, Vec<Syscall>) {
    let mut syscalls = in_store(store, syscalls(store, call));
    syscalls.retain(is_disk_access);
    let is_stamp = |syscall: &Syscall| syscall.name == "pread64";
    let later = syscalls.split_off(syscalls.iter().position(is_stamp).unwrap());
    (syscalls, later)
}

#[test]
fn an_unreadable_boot_id_makes_no_lease_stale() {
    let store = StoreNode::new();
    let conf = store.subnets(SUBNETS);
    store.add(Ours, "x", &conf);
    let add = call("ADD", "k", &conf);
    let (early, _) = split(&store, &add);
    assert!(early.iter().any(|syscall| syscall.line.contains("boot_id")));
    store.del(Ours, "k", &conf);
    for syscall in &early {
        // The ADD may succeed or fail.
        fail_at(&store, &add, syscall, "EIO");
        assert_eq!(store.leases_of("x").len(), 2, "{syscall:?}");
        store.del(Ours, "k", &conf);
    }
}

/// Without the retry, more than ten of these calls fail.
#[rstest]
fn a_transient_error_is_retried(#[values("EIO", "ESTALE")] errno: &str) {
    let store = StoreNode::new();
    let conf = store.subnets(SUBNETS);
    store.add(Ours, "x", &conf);
    let (add, del) = (call("ADD", "k", &conf), call("DEL", "k", &conf));
    let (_, of_add) = split(&store, &add);
    let (_, of_del) = split(&store, &del);
    assert!(of_add.len() > 10 && of_del.len() > 10);
    for syscall in &of_add {
        assert_ok(&fail_at(&store, &add, syscall, errno));
        assert_eq!(store.leases_of("k").len(), 2, "{syscall:?}");
        store.del(Ours, "k", &conf);
    }
    for syscall in &of_del {
        store.add(Ours, "k", &conf);
        assert_ok(&fail_at(&store, &del, syscall, errno));
        assert_eq!(store.leases_of("k").len(), 0, "{syscall:?}");
    }
    assert_eq!(store.leases().len(), 2, "the lease of x");
}

#[test]
fn an_add_that_fails_for_lack_of_space_leases_nothing() {
    let store = StoreNode::new();
    let conf = store.subnets(SUBNETS);
    store.add(Ours, "x", &conf);
    let add = call("ADD", "k", &conf);
    let (_, syscalls) = split(&store, &add);
    store.del(Ours, "k", &conf);
    let mut failed = 0;
    for syscall in &syscalls {
        let outcome = fail_at(&store, &add, syscall, "ENOSPC");
        if outcome.status.success() {
            assert_eq!(store.leases_of("k").len(), 2, "{syscall:?}");
        } else {
            failed += 1;
            // It is rolled back at once, or by the next call.
            assert_ok(&store.call(Ours, "STATUS", "", &conf));
            assert!(store.leases_of("k").is_empty(), "{syscall:?}");
            assert_eq!(outcome.err_code(), Some(5), "{outcome:?}");
        }
        store.del(Ours, "k", &conf);
        assert_eq!(store.leases().len(), 2, "{syscall:?}");
    }
    assert!(failed > 10, "only {failed} calls failed");
}

#[test]
fn a_del_that_fails_for_lack_of_space_is_completed_by_the_next_one() {
    let store = StoreNode::new();
    let conf = store.subnets(SUBNETS);
    store.add(Ours, "x", &conf);
    let del = call("DEL", "k", &conf);
    store.add(Ours, "k", &conf);
    let (_, syscalls) = split(&store, &del);
    for syscall in &syscalls {
        store.add(Ours, "k", &conf);
        let outcome = fail_at(&store, &del, syscall, "ENOSPC");
        let is_released = store.leases_of("k").is_empty();
        assert!(is_released || !outcome.status.success(), "{syscall:?}");
        store.del(Ours, "k", &conf);
        assert_eq!(store.leases().len(), 2, "{syscall:?}: {outcome:?}");
    }
}
