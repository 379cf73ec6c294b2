//! kill -9 at system calls of ADD, DEL and GC.
//!
//! An owner has both of its addresses or none, no address has two owners, and none leaks.

use std::collections::BTreeSet;
use std::fs;

use rstest::rstest;
use serde_json::Value;

use crate::faults::{Syscall, after_changes, in_store, kill_at, syscalls};
use crate::store_node::Plugin::{HostLocal, Ours};
use crate::store_node::{Plugin, StoreNode, assert_ok, call};

/// Five IPv4 addresses, six IPv6 addresses.
const SUBNETS: &[&str] = &["10.1.0.0/29", "fd00::/125"];
const CAPACITY: usize = 5;

/// A store in which `x` has a lease that must survive.
struct CrashedStore {
    store: StoreNode,
    conf: Value,
    of_x: BTreeSet<String>,
}

impl CrashedStore {
    fn new() -> Self {
        let store = StoreNode::new();
        let conf = store.subnets(SUBNETS);
        let of_x = BTreeSet::from_iter(store.add(Ours, "x", &conf));
        Self { store, conf, of_x }
    }

    fn prepare(&self, stamp: Stamp) {
        match stamp {
            Stamp::Valid => assert_ok(&self.store.call(Ours, "STATUS", "", &self.conf)),
            Stamp::Outdated => {
                // A lease and a release by host-local invalidate the stamp.
                self.store.write("10.1.0.7", "y\r\neth0");
                fs::remove_file(self.store.file("10.1.0.7")).unwrap();
            }
        }
    }

    /// Invariants once a call has opened the store again.
    #[track_caller]
    fn assert_invariants(&self, syscall: &Syscall) {
        assert_eq!(self.store.leases_of("x"), self.of_x, "{syscall:?}");
        for container in ["k", "n"] {
            let count = self.store.leases_of(container).len();
            assert!(
                count == 0 || count == 2,
                "{container} has {count}: {syscall:?}"
            );
        }
        let known = ["x", "k", "n"].map(|container| format!("{container}\r\neth0"));
        for (address, owner) in self.store.leases() {
            assert!(known.contains(&owner), "{address}: {owner:?}, {syscall:?}");
        }
    }

    /// The committed range can be leased.
    #[track_caller]
    fn assert_no_leak(&self) {
        assert_eq!(self.store.leases().len(), 2, "only x has a lease");
        let mut leased = self.of_x.clone();
        for number in 1..CAPACITY {
            leased.extend(self.store.add(Ours, &format!("c{number}"), &self.conf));
        }
        assert_eq!(leased.len(), 2 * CAPACITY);
        self.store.assert_error("ADD", "late", &self.conf, 110);
    }
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Stamp {
    Valid,
    Outdated,
}

/// Leases for `n`, which must get free addresses.
#[track_caller]
fn add_next(fixture: &CrashedStore, next: Plugin, syscall: &Syscall) {
    let taken = fixture.store.leases();
    let outcome = fixture.store.call(next, "ADD", "n", &fixture.conf);
    assert!(outcome.status.success(), "{syscall:?}: {outcome:?}");
    let of_n = fixture.store.leases_of("n");
    assert_eq!(of_n.len(), 2, "{syscall:?}");
    let is_taken = |address: &String| {
        let holder = taken.get(&address.parse().unwrap());
        // The incomplete lease of a killed ADD may be rolled back.
        holder.is_some_and(|holder| !holder.starts_with('k'))
    };
    assert!(!of_n.iter().any(is_taken), "{syscall:?}");
}

#[rstest]
#[case::valid_stamp(Stamp::Valid, Ours)]
#[case::outdated_stamp(Stamp::Outdated, Ours)]
#[case::then_host_local(Stamp::Valid, HostLocal)]
fn an_add_killed_at_a_system_call_is_atomic(#[case] stamp: Stamp, #[case] next: Plugin) {
    let fixture = CrashedStore::new();
    let (store, conf) = (&fixture.store, &fixture.conf);
    let add = call("ADD", "k", conf);
    fixture.prepare(stamp);
    let mut syscalls = syscalls(store, &add);
    store.del(Ours, "k", conf);
    if (stamp, next) != (Stamp::Valid, Ours) {
        syscalls = after_changes(in_store(store, syscalls));
    }
    let (mut committed, mut started) = (0, 0);
    for syscall in &syscalls {
        fixture.prepare(stamp);
        kill_at(store, &add, syscall);
        started += usize::from(!store.leases_of("k").is_empty());
        add_next(&fixture, next, syscall);
        if next == Ours {
            fixture.assert_invariants(syscall);
            if store.leases_of("k").is_empty() {
                // The killed call was rolled back, so it can be repeated.
                store.add(Ours, "k", conf);
            } else {
                committed += 1;
            }
        }
        for container in ["k", "n"] {
            store.del(next, container, conf);
        }
        assert_eq!(store.leases().len(), 2, "{syscall:?}");
    }
    assert!(started > 5, "only {started} had linked an address");
    assert!(
        next == HostLocal || committed > 5,
        "only {committed} were committed"
    );
    fixture.assert_no_leak();
}

#[rstest]
#[case::valid_stamp(Stamp::Valid, Ours)]
#[case::outdated_stamp(Stamp::Outdated, Ours)]
#[case::then_host_local(Stamp::Valid, HostLocal)]
fn a_del_killed_at_a_system_call_is_atomic(#[case] stamp: Stamp, #[case] next: Plugin) {
    let fixture = CrashedStore::new();
    let (store, conf) = (&fixture.store, &fixture.conf);
    let del = call("DEL", "k", conf);
    store.add(Ours, "k", conf);
    fixture.prepare(stamp);
    let mut syscalls = syscalls(store, &del);
    if (stamp, next) != (Stamp::Valid, Ours) {
        syscalls = after_changes(in_store(store, syscalls));
    }
    let (mut leased, mut released) = (0, 0);
    for syscall in &syscalls {
        store.add(Ours, "k", conf);
        fixture.prepare(stamp);
        kill_at(store, &del, syscall);
        leased += usize::from(!store.leases_of("k").is_empty());
        released += usize::from(store.leases_of("k").is_empty());
        add_next(&fixture, next, syscall);
        if next == Ours {
            fixture.assert_invariants(syscall);
        }
        for container in ["k", "n"] {
            store.del(next, container, conf);
        }
        assert_eq!(store.leases().len(), 2, "{syscall:?}");
    }
    assert!(leased > 3, "only {leased} were killed before the commit");
    assert!(released > 3, "only {released} were killed after it");
    fixture.assert_no_leak();
}

#[test]
fn a_first_add_killed_at_a_system_call_can_be_released() {
    let store = StoreNode::new();
    let conf = store.subnets(SUBNETS);
    let add = call("ADD", "k", &conf);
    let syscalls = syscalls(&store, &add);
    for syscall in after_changes(in_store(&store, syscalls)) {
        fs::remove_dir_all(store.file("")).unwrap();
        kill_at(&store, &add, &syscall);
        // Committed or not, DEL releases it.
        store.del(Ours, "k", &conf);
        assert!(store.leases().is_empty(), "{syscall:?}");
        let leased = store.add(Ours, "n", &conf);
        assert_eq!(leased.len(), 2, "{syscall:?}");
    }
}

#[test]
fn a_gc_killed_at_a_system_call_is_atomic() {
    let fixture = CrashedStore::new();
    let (store, conf) = (&fixture.store, &fixture.conf);
    let valid = serde_json::json!([{"containerID": "x", "ifname": "eth0"}]);
    let valid = serde_json::json!({"cni.dev/valid-attachments": valid});
    let gc = lab::Call::new("GC")
        .path("/nowhere")
        .conf(&crate::store_node::merged(conf, &valid));
    let fill = || {
        for container in ["k", "n"] {
            store.add(Ours, container, conf);
        }
    };
    fill();
    let syscalls = syscalls(store, &gc);
    for syscall in after_changes(in_store(store, syscalls)) {
        fill();
        kill_at(store, &gc, &syscall);
        assert_ok(&store.call(Ours, "STATUS", "", conf));
        fixture.assert_invariants(&syscall);
        assert_ok(&store.run(Ours, &gc));
        assert_eq!(store.leases().len(), 2, "{syscall:?}");
    }
    fixture.assert_no_leak();
}
