//! kill -9 at every system call of ADD and of DEL.
//!
//! However it ends: an owner has both of its addresses or none, nobody has another one's, and in
//! the end the whole range can be leased again.

use std::collections::BTreeSet;
use std::fs;

use rstest::rstest;
use serde_json::Value;

use crate::faults::{Moment, after_changes, in_store, kill_at, moments};
use crate::store_node::Plugin::{HostLocal, Ours};
use crate::store_node::{Plugin, StoreNode, call, assert_ok};

/// Five addresses of one family, six of the other one.
const SUBNETS: &[&str] = &["10.1.0.0/29", "fd00::/125"];
const CAPACITY: usize = 5;

/// A store in which `x` has a lease that nobody may touch.
struct Stage {
    store: StoreNode,
    conf: Value,
    of_x: BTreeSet<String>,
}

impl Stage {
    fn new() -> Self {
        let store = StoreNode::new();
        let conf = store.subnets(SUBNETS);
        let of_x = BTreeSet::from_iter(store.add(Ours, "x", &conf));
        Self { store, conf, of_x }
    }

    /// Brings the store into the state that a call shall find.
    fn prepare(&self, state: State) {
        match state {
            State::Settled => assert_ok(&self.store.call(Ours, "STATUS", "", &self.conf)),
            // The index is out of date, and the next one makes it anew.
            State::Touched => {
                // As host-local does when it leases and releases.
                self.store.write("10.1.0.7", "y\r\neth0");
                fs::remove_file(self.store.file("10.1.0.7")).unwrap();
            }
        }
    }

    /// What must hold after somebody has opened the store.
    #[track_caller]
    fn assert_sound(&self, moment: &Moment) {
        assert_eq!(self.store.leases_of("x"), self.of_x, "{moment:?}");
        for container in ["k", "n"] {
            let count = self.store.leases_of(container).len();
            assert!(count == 0 || count == 2, "{container} has {count}: {moment:?}");
        }
        let known = ["x", "k", "n"].map(|container| format!("{container}\r\neth0"));
        for (address, owner) in self.store.leases() {
            assert!(known.contains(&owner), "{address}: {owner:?}, {moment:?}");
        }
    }

    /// All that there is can be leased, and is given once.
    #[track_caller]
    fn assert_nothing_leaked(&self) {
        assert_eq!(self.store.leases().len(), 2, "only x has something");
        let mut leased = self.of_x.clone();
        for number in 1..CAPACITY {
            leased.extend(self.store.add(Ours, &format!("c{number}"), &self.conf));
        }
        assert_eq!(leased.len(), 2 * CAPACITY);
        self.store.assert_error("ADD", "late", &self.conf, 110);
    }
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum State {
    Settled,
    Touched,
}

/// Leases for `n`, which must get something that is nobody's.
#[track_caller]
fn add_next(stage: &Stage, next: Plugin, moment: &Moment) {
    let taken = stage.store.leases();
    let outcome = stage.store.call(next, "ADD", "n", &stage.conf);
    assert!(outcome.status.success(), "{moment:?}: {outcome:?}");
    let of_n = stage.store.leases_of("n");
    assert_eq!(of_n.len(), 2, "{moment:?}");
    let is_taken = |address: &String| {
        let holder = taken.get(&address.parse().unwrap());
        // What a killed ADD had begun is nobody's.
        holder.is_some_and(|holder| !holder.starts_with('k'))
    };
    assert!(!of_n.iter().any(is_taken), "{moment:?}");
}

#[rstest]
#[case::settled(State::Settled, Ours)]
#[case::touched(State::Touched, Ours)]
#[case::then_host_local(State::Settled, HostLocal)]
fn an_add_killed_at_any_system_call(#[case] state: State, #[case] next: Plugin) {
    let stage = Stage::new();
    let (store, conf) = (&stage.store, &stage.conf);
    let add = call("ADD", "k", conf);
    stage.prepare(state);
    let mut moments = moments(store, &add);
    store.del(Ours, "k", conf);
    if (state, next) != (State::Settled, Ours) {
        moments = after_changes(in_store(store, moments));
    }
    let (mut whole, mut begun) = (0, 0);
    for moment in &moments {
        stage.prepare(state);
        kill_at(store, &add, moment);
        begun += usize::from(!store.leases_of("k").is_empty());
        add_next(&stage, next, moment);
        if next == Ours {
            stage.assert_sound(moment);
            if store.leases_of("k").is_empty() {
                // What the killed one began is undone, so that the same call works now.
                store.add(Ours, "k", conf);
            } else {
                whole += 1;
            }
        }
        for container in ["k", "n"] {
            store.del(next, container, conf);
        }
        assert_eq!(store.leases().len(), 2, "{moment:?}");
    }
    assert!(begun > 5, "only {begun} had leased something");
    assert!(next == HostLocal || whole > 5, "only {whole} were whole");
    stage.assert_nothing_leaked();
}

#[rstest]
#[case::settled(State::Settled, Ours)]
#[case::touched(State::Touched, Ours)]
#[case::then_host_local(State::Settled, HostLocal)]
fn a_del_killed_at_any_system_call(#[case] state: State, #[case] next: Plugin) {
    let stage = Stage::new();
    let (store, conf) = (&stage.store, &stage.conf);
    let del = call("DEL", "k", conf);
    store.add(Ours, "k", conf);
    stage.prepare(state);
    let mut moments = moments(store, &del);
    if (state, next) != (State::Settled, Ours) {
        moments = after_changes(in_store(store, moments));
    }
    let (mut left, mut gone) = (0, 0);
    for moment in &moments {
        store.add(Ours, "k", conf);
        stage.prepare(state);
        kill_at(store, &del, moment);
        left += usize::from(!store.leases_of("k").is_empty());
        gone += usize::from(store.leases_of("k").is_empty());
        add_next(&stage, next, moment);
        if next == Ours {
            stage.assert_sound(moment);
        }
        for container in ["k", "n"] {
            store.del(next, container, conf);
        }
        assert_eq!(store.leases().len(), 2, "{moment:?}");
    }
    assert!(left > 3, "only {left} were killed before the end");
    assert!(gone > 3, "only {gone} were killed after it");
    stage.assert_nothing_leaked();
}

#[test]
fn a_first_add_killed_at_any_system_call() {
    let store = StoreNode::new();
    let conf = store.subnets(SUBNETS);
    let add = call("ADD", "k", &conf);
    let moments = moments(&store, &add);
    for moment in after_changes(in_store(&store, moments)) {
        fs::remove_dir_all(store.file("")).unwrap();
        kill_at(&store, &add, &moment);
        // Whether it is there or not: it can be released, and then all is free.
        store.del(Ours, "k", &conf);
        assert!(store.leases().is_empty(), "{moment:?}");
        let leased = store.add(Ours, "n", &conf);
        assert_eq!(leased.len(), 2, "{moment:?}");
    }
}

#[test]
fn a_gc_killed_at_any_system_call() {
    let stage = Stage::new();
    let (store, conf) = (&stage.store, &stage.conf);
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
    let moments = moments(store, &gc);
    for moment in after_changes(in_store(store, moments)) {
        fill();
        kill_at(store, &gc, &moment);
        assert_ok(&store.call(Ours, "STATUS", "", conf));
        stage.assert_sound(&moment);
        assert_ok(&store.run(Ours, &gc));
        assert_eq!(store.leases().len(), 2, "{moment:?}");
    }
    stage.assert_nothing_leaked();
}
