//! kill -9 at every system call of ADD and of DEL.
//!
//! However it ends: an owner has both of its addresses or none, nobody has another one's, and in
//! the end the whole range can be leased again.

use std::collections::BTreeSet;
use std::fs;

use rstest::rstest;
use serde_json::Value;

use crate::killing::{Moment, after_changes, in_store, kill_at, moments};
use crate::scene::Plugin::{HostLocal, Ours};
use crate::scene::{Plugin, Scene, call, done};

/// Five addresses of one family, six of the other one.
const SUBNETS: &[&str] = &["10.1.0.0/29", "fd00::/125"];
const CAPACITY: usize = 5;

/// A store in which `x` has a lease that nobody may touch.
struct Stage {
    scene: Scene,
    conf: Value,
    of_x: BTreeSet<String>,
}

impl Stage {
    fn new() -> Self {
        let scene = Scene::new();
        let conf = scene.subnets(SUBNETS);
        let of_x = BTreeSet::from_iter(scene.add(Ours, "x", &conf));
        Self { scene, conf, of_x }
    }

    /// Brings the store into the state that a call shall find.
    fn prepare(&self, state: State) {
        match state {
            State::Settled => done(&self.scene.ask(Ours, "STATUS", "", &self.conf)),
            // The index is out of date, and the next one makes it anew.
            State::Touched => {
                // As host-local does when it leases and releases.
                self.scene.write("10.1.0.7", "y\r\neth0");
                fs::remove_file(self.scene.file("10.1.0.7")).unwrap();
            }
        }
    }

    /// What must hold after somebody has opened the store.
    #[track_caller]
    fn assert_sound(&self, moment: &Moment) {
        assert_eq!(self.scene.leases_of("x"), self.of_x, "{moment:?}");
        for who in ["k", "n"] {
            let count = self.scene.leases_of(who).len();
            assert!(count == 0 || count == 2, "{who} has {count}: {moment:?}");
        }
        let known = ["x", "k", "n"].map(|who| format!("{who}\r\neth0"));
        for (address, owner) in self.scene.leases() {
            assert!(known.contains(&owner), "{address}: {owner:?}, {moment:?}");
        }
    }

    /// All that there is can be leased, and is given once.
    #[track_caller]
    fn assert_nothing_leaked(&self) {
        assert_eq!(self.scene.leases().len(), 2, "only x has something");
        let mut given = self.of_x.clone();
        for number in 1..CAPACITY {
            given.extend(self.scene.add(Ours, &format!("c{number}"), &self.conf));
        }
        assert_eq!(given.len(), 2 * CAPACITY);
        self.scene.refused("ADD", "late", &self.conf, 110);
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
    let taken = stage.scene.leases();
    let outcome = stage.scene.ask(next, "ADD", "n", &stage.conf);
    assert!(outcome.status.success(), "{moment:?}: {outcome:?}");
    let of_n = stage.scene.leases_of("n");
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
    let (scene, conf) = (&stage.scene, &stage.conf);
    let add = call("ADD", "k", conf);
    stage.prepare(state);
    let mut moments = moments(scene, &add);
    scene.del(Ours, "k", conf);
    if (state, next) != (State::Settled, Ours) {
        moments = after_changes(in_store(scene, moments));
    }
    let (mut whole, mut begun) = (0, 0);
    for moment in &moments {
        stage.prepare(state);
        kill_at(scene, &add, moment);
        begun += usize::from(!scene.leases_of("k").is_empty());
        add_next(&stage, next, moment);
        if next == Ours {
            stage.assert_sound(moment);
            if scene.leases_of("k").is_empty() {
                // What the killed one began is undone, so that the same call works now.
                scene.add(Ours, "k", conf);
            } else {
                whole += 1;
            }
        }
        for who in ["k", "n"] {
            scene.del(next, who, conf);
        }
        assert_eq!(scene.leases().len(), 2, "{moment:?}");
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
    let (scene, conf) = (&stage.scene, &stage.conf);
    let del = call("DEL", "k", conf);
    scene.add(Ours, "k", conf);
    stage.prepare(state);
    let mut moments = moments(scene, &del);
    if (state, next) != (State::Settled, Ours) {
        moments = after_changes(in_store(scene, moments));
    }
    let (mut left, mut gone) = (0, 0);
    for moment in &moments {
        scene.add(Ours, "k", conf);
        stage.prepare(state);
        kill_at(scene, &del, moment);
        left += usize::from(!scene.leases_of("k").is_empty());
        gone += usize::from(scene.leases_of("k").is_empty());
        add_next(&stage, next, moment);
        if next == Ours {
            stage.assert_sound(moment);
        }
        for who in ["k", "n"] {
            scene.del(next, who, conf);
        }
        assert_eq!(scene.leases().len(), 2, "{moment:?}");
    }
    assert!(left > 3, "only {left} were killed before the end");
    assert!(gone > 3, "only {gone} were killed after it");
    stage.assert_nothing_leaked();
}

#[test]
fn a_first_add_killed_at_any_system_call() {
    let scene = Scene::new();
    let conf = scene.subnets(SUBNETS);
    let add = call("ADD", "k", &conf);
    let moments = moments(&scene, &add);
    for moment in after_changes(in_store(&scene, moments)) {
        fs::remove_dir_all(scene.file("")).unwrap();
        kill_at(&scene, &add, &moment);
        // Whether it is there or not: it can be released, and then all is free.
        scene.del(Ours, "k", &conf);
        assert!(scene.leases().is_empty(), "{moment:?}");
        let given = scene.add(Ours, "n", &conf);
        assert_eq!(given.len(), 2, "{moment:?}");
    }
}

#[test]
fn a_gc_killed_at_any_system_call() {
    let stage = Stage::new();
    let (scene, conf) = (&stage.scene, &stage.conf);
    let valid = serde_json::json!([{"containerID": "x", "ifname": "eth0"}]);
    let valid = serde_json::json!({"cni.dev/valid-attachments": valid});
    let gc = lab::Call::new("GC")
        .path("/nowhere")
        .conf(&crate::scene::merged(conf, &valid));
    let fill = || {
        for who in ["k", "n"] {
            scene.add(Ours, who, conf);
        }
    };
    fill();
    let moments = moments(scene, &gc);
    for moment in after_changes(in_store(scene, moments)) {
        fill();
        kill_at(scene, &gc, &moment);
        done(&scene.ask(Ours, "STATUS", "", conf));
        stage.assert_sound(&moment);
        done(&scene.run(Ours, &gc));
        assert_eq!(scene.leases().len(), 2, "{moment:?}");
    }
    stage.assert_nothing_leaked();
}
