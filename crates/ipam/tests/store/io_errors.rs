//! An error at every system call of ADD and of DEL: done as asked, or undone and said so.

use lab::Call;
use rstest::rstest;

use crate::faults::{Moment, fail_at, in_store, moments};
use crate::store_node::Plugin::Ours;
use crate::store_node::{StoreNode, call, assert_ok};

/// Whether an error there is one that a disk can give.
fn is_of_store(moment: &Moment) -> bool {
    // Each by its names on all architectures.
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
        "unlink",
        "unlinkat",
        "utimensat",
        "stat",
        "fstat",
        "newfstatat",
        "statx",
        "getdents64",
    ];
    // The answer itself is none of the store's business: by then the work is done.
    fail.contains(&moment.name.as_str()) && !moment.line.starts_with("write(1,")
}

/// The moments in which the store is worked on, with those before in which the boot is asked for.
fn split(store: &StoreNode, call: &Call) -> (Vec<Moment>, Vec<Moment>) {
    let mut moments = in_store(store, moments(store, call));
    moments.retain(is_of_store);
    let is_stamp = |moment: &Moment| moment.name == "pread64";
    let later = moments.split_off(moments.iter().position(is_stamp).unwrap());
    (moments, later)
}

#[test]
fn a_boot_that_cannot_be_told_voids_no_lease() {
    let store = StoreNode::new();
    let conf = store.subnets(&["10.1.0.0/29", "fd00::/125"]);
    store.add(Ours, "x", &conf);
    let add = call("ADD", "k", &conf);
    let (early, _) = split(&store, &add);
    assert!(early.iter().any(|m| m.line.contains("boot_id")));
    store.del(Ours, "k", &conf);
    for moment in &early {
        // Done or refused: either is right, as long as x keeps what it has.
        fail_at(&store, &add, moment, "EIO");
        assert_eq!(store.leases_of("x").len(), 2, "{moment:?}");
        store.del(Ours, "k", &conf);
    }
}

#[rstest]
fn an_add_that_fails_leaves_nothing_leased(#[values("EIO", "ENOSPC", "ESTALE")] errno: &str) {
    let store = StoreNode::new();
    let conf = store.subnets(&["10.1.0.0/29", "fd00::/125"]);
    store.add(Ours, "x", &conf);
    let add = call("ADD", "k", &conf);
    let (_, moments) = split(&store, &add);
    store.del(Ours, "k", &conf);
    let mut failed = 0;
    let mut left = Vec::new();
    for moment in &moments {
        let outcome = fail_at(&store, &add, moment, errno);
        if outcome.status.success() {
            assert_eq!(store.leases_of("k").len(), 2, "{moment:?}");
        } else {
            failed += 1;
            // Undone at once, or by whoever comes next.
            assert_ok(&store.call(Ours, "STATUS", "", &conf));
            if !store.leases_of("k").is_empty() || outcome.err_code() != Some(5) {
                left.push((moment.line.clone(), outcome.stdout));
            }
        }
        store.del(Ours, "k", &conf);
        assert_eq!(store.leases().len(), 2, "{moment:?}");
    }
    // What may pass by itself is tried again, and then it works.
    assert!(errno == "ESTALE" || failed > 10, "only {failed} failed");
    assert!(left.is_empty(), "leased, though it failed: {left:#?}");
}

#[rstest]
fn a_del_that_fails_is_finished_by_the_next_one(#[values("EIO", "ENOSPC", "ESTALE")] errno: &str) {
    let store = StoreNode::new();
    let conf = store.subnets(&["10.1.0.0/29", "fd00::/125"]);
    store.add(Ours, "x", &conf);
    let del = call("DEL", "k", &conf);
    store.add(Ours, "k", &conf);
    let (_, moments) = split(&store, &del);
    let mut lied = Vec::new();
    for moment in &moments {
        store.add(Ours, "k", &conf);
        let outcome = fail_at(&store, &del, moment, errno);
        if outcome.status.success() && !store.leases_of("k").is_empty() {
            lied.push(moment.line.clone());
        }
        store.del(Ours, "k", &conf);
        assert_eq!(store.leases().len(), 2, "{moment:?}: {outcome:?}");
    }
    assert!(
        lied.is_empty(),
        "not released, though it said so: {lied:#?}"
    );
}
