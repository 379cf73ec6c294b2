//! Concurrent calls: each gets its own address, and none waits beyond its timeout.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::os::unix::fs::MetadataExt;
use std::thread;
use std::time::{Duration, Instant};

use lab::{Call, Outcome, eventually};
use serde_json::{Value, json};

use crate::store_node::Plugin::{HostLocal, Ours};
use crate::store_node::{
    NETWORK, Plugin, StoreNode, addresses, assert_error, call, merged, result_of,
};

/// Enough for a slow machine to start a thousand processes.
const DEADLINE: Duration = Duration::from_mins(2);

fn run_concurrently(store: &StoreNode, calls: &[(Plugin, Call)]) -> Vec<Outcome> {
    thread::scope(|scope| {
        let start = |(plugin, call): &(Plugin, Call)| {
            let (plugin, call) = (*plugin, call.clone().deadline(DEADLINE));
            scope.spawn(move || store.run(plugin, &call))
        };
        let started: Vec<_> = calls.iter().map(start).collect();
        let ended = started.into_iter().map(|thread| thread.join().unwrap());
        ended.collect()
    })
}

/// The addresses of ADDs, which must all succeed.
fn all_addresses(outcomes: &[Outcome]) -> Vec<String> {
    let leased = outcomes.iter().map(|o| addresses(&result_of(o)));
    leased.flatten().collect()
}

fn assert_distinct(leased: &[String]) {
    let distinct: BTreeSet<_> = leased.iter().collect();
    assert_eq!(distinct.len(), leased.len(), "{leased:?}");
}

#[test]
fn twenty_calls_of_each_plugin_run_concurrently() {
    let store = StoreNode::new();
    let conf = store.subnets(&["10.1.0.0/26", "fd00::/122"]);
    for round in 0..3 {
        let by = |number: usize| {
            if number.is_multiple_of(2) {
                Ours
            } else {
                HostLocal
            }
        };
        let container = |number: usize| format!("r{round}-c{number:02}");
        let adds: Vec<_> = (0..40)
            .map(|n| (by(n), call("ADD", &container(n), &conf)))
            .collect();
        let leased = all_addresses(&run_concurrently(&store, &adds));
        assert_eq!(leased.len(), 80);
        assert_distinct(&leased);
        assert_eq!(store.leases().len(), 80);
        // Each plugin releases what the other one leased.
        let dels: Vec<_> = (0..40)
            .map(|n| (by(n + 1), call("DEL", &container(n), &conf)))
            .collect();
        for outcome in run_concurrently(&store, &dels) {
            outcome.ok().unwrap();
        }
        assert!(store.leases().is_empty(), "{:?}", store.leases());
    }
}

#[test]
fn concurrent_adds_and_dels_leave_exactly_the_new_leases() {
    let store = StoreNode::new();
    let conf = store.conf(&json!({"subnet": "10.1.0.0/25", "allocation_strategy": "random"}));
    for number in 0..50 {
        store.add(Ours, &format!("old{number}"), &conf);
    }
    let mixed: Vec<_> = (0..50)
        .flat_map(|n| [("DEL", format!("old{n}")), ("ADD", format!("new{n}"))])
        .map(|(verb, container)| (Ours, call(verb, &container, &conf)))
        .collect();
    let outcomes = run_concurrently(&store, &mixed);
    for outcome in &outcomes {
        outcome.ok().unwrap();
    }
    assert_eq!(store.leases().len(), 50);
    for number in 0..50 {
        assert_eq!(store.leases_of(&format!("new{number}")).len(), 1);
    }
}

#[test]
fn of_concurrent_adds_for_one_owner_one_succeeds() {
    let store = StoreNode::new();
    let conf = store.subnets(&["10.1.0.0/24", "fd00::/64"]);
    let same: Vec<_> = (0..20)
        .map(|_| (Ours, call("ADD", "same", &conf)))
        .collect();
    let outcomes = run_concurrently(&store, &same);
    let (won, lost): (Vec<_>, Vec<_>) = outcomes.into_iter().partition(|o| o.status.success());
    assert_eq!(won.len(), 1);
    let leased = addresses(&result_of(&won[0]));
    for outcome in &lost {
        assert!(
            assert_error(outcome, 102).contains(&leased[0]),
            "{outcome:?}"
        );
    }
    assert_eq!(store.leases_of("same"), BTreeSet::from_iter(leased));
}

/// Holds the store's lock and counts the processes that wait for it.
struct LockHolder {
    lock: File,
    inode: u64,
}

impl LockHolder {
    fn of(store: &StoreNode) -> Self {
        let lock = File::open(store.file("lock")).unwrap();
        lock.lock().unwrap();
        let inode = lock.metadata().unwrap().ino();
        Self { lock, inode }
    }

    fn waiters(&self) -> usize {
        let locks = fs::read_to_string("/proc/locks").unwrap();
        let wanted = format!(":{} ", self.inode);
        let waits = |line: &&str| line.contains("->") && line.contains(&wanted);
        locks.lines().filter(waits).count()
    }
}

fn with_lock_timeout(conf: &Value, seconds: f64) -> Value {
    let ipam = merged(&conf["ipam"], &json!({"lock_timeout_seconds": seconds}));
    merged(conf, &json!({"ipam": ipam}))
}

#[test]
fn a_lock_timeout_fails_with_try_again_later() {
    let store = StoreNode::new();
    let conf = store.subnets(&["10.1.0.0/24"]);
    store.add(Ours, "first", &conf);
    let before = store.files();
    let holder = LockHolder::of(&store);
    for verb in ["ADD", "DEL", "CHECK"] {
        let outcome = store.call(Ours, verb, "a", &with_lock_timeout(&conf, 0.2));
        let message = assert_error(&outcome, 11);
        let store_dir = store.data_dir().join(NETWORK);
        for word in [store_dir.to_str().unwrap(), "0.2 s"] {
            assert!(message.contains(word), "{verb}: {message}");
        }
        assert!(outcome.elapsed >= Duration::from_millis(200), "{outcome:?}");
        assert!(outcome.elapsed < Duration::from_secs(15), "{outcome:?}");
    }
    assert_eq!(store.files(), before);
    drop(holder);
    store.add(Ours, "a", &with_lock_timeout(&conf, 0.2));
}

#[test]
fn a_thousand_waiting_adds_all_succeed() {
    const QUEUE: usize = 1000;
    let store = StoreNode::new();
    let conf = with_lock_timeout(&store.subnets(&["10.1.0.0/20"]), 120.0);
    store.add(Ours, "first", &conf);
    let holder = LockHolder::of(&store);
    let adds: Vec<_> = (0..QUEUE)
        .map(|n| (Ours, call("ADD", &format!("c{n}"), &conf)))
        .collect();
    let (outcomes, served_in) = thread::scope(|scope| {
        let crowd = scope.spawn(|| run_concurrently(&store, &adds));
        let all_wait = || (holder.waiters() == QUEUE).then_some(());
        eventually(DEADLINE, "a thousand waiters", all_wait).unwrap();
        let opened = Instant::now();
        drop(holder.lock);
        (crowd.join().unwrap(), opened.elapsed())
    });
    let leased = all_addresses(&outcomes);
    assert_eq!(leased.len(), QUEUE);
    assert_distinct(&leased);
    eprintln!("the last of {QUEUE} waited for {served_in:?}");
    assert!(served_in < Duration::from_secs(20), "{served_in:?}");
}

#[test]
fn a_failed_thread_start_fails_with_try_again_later() {
    let store = StoreNode::new();
    let conf = store.subnets(&["10.1.0.0/24"]);
    store.add(Ours, "first", &conf);
    let holder = LockHolder::of(&store);
    let strace = ["strace", "-qq", "-o", "/dev/null", "-e"];
    let no_thread = ["inject=clone,clone3:error=EAGAIN"];
    let add =
        call("ADD", "a", &with_lock_timeout(&conf, 0.2)).under(strace.iter().chain(&no_thread));
    let outcome = store.run(Ours, &add);
    drop(holder);
    assert_error(&outcome, 11);
}
