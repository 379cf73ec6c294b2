//! Leases of an earlier boot are stale, those of this boot are valid.

use std::collections::BTreeSet;
use std::fs::File;
use std::io::Write;
use std::time::{Duration, SystemTime};

use lab::Netns;
use rstest::rstest;

use crate::faults::{after_changes, in_store, kill_at, syscalls};
use crate::store_node::Plugin::{HostLocal, Ours};
use crate::store_node::{StoreNode, addresses, assert_ok, call, result_of};

const DUAL_STACK: &[&str] = &["10.1.0.0/29", "fd00::/125"];

/// Gives the node another boot ID and uptime.
fn reboot(store: &StoreNode, id: &str, uptime: &str) {
    let fakes = [
        ("/proc/sys/kernel/random/boot_id", id),
        ("/proc/uptime", uptime),
    ];
    for (path, text) in fakes {
        let fake = format!("/run/fake/{id}{}", path.replace('/', "-"));
        store.node.write(&fake, format!("{text}\n")).unwrap();
        store.node.run(["mount", "--bind", &fake, path]).unwrap();
    }
}

const JUST_NOW: &str = "5.00 3.00";

fn set_time(store: &StoreNode, address: &str, time: SystemTime) {
    let file = File::options().write(true).open(store.file(address));
    file.unwrap().set_modified(time).unwrap();
}

fn an_hour_ago() -> SystemTime {
    SystemTime::now() - Duration::from_hours(1)
}

#[test]
fn all_leases_are_stale_after_a_reboot_and_leave_no_files() {
    let store = StoreNode::new();
    let conf = store.subnets(DUAL_STACK);
    let mut counts = BTreeSet::new();
    for boot in 0..6 {
        reboot(&store, &format!("boot-{boot}"), JUST_NOW);
        for number in 0..5 {
            store.add(Ours, &format!("b{boot}c{number}"), &conf);
        }
        store.assert_error("ADD", "late", &conf, 110);
        assert_eq!(store.leases().len(), 10);
        counts.insert(store.files().len());
    }
    assert_eq!(counts.len(), 1, "files accumulate: {counts:?}");
}

#[rstest]
#[case::at_the_same_address(&["IgnoreUnknown=1;IP=10.1.0.2"], "10.1.0.2")]
#[case::at_another_address(&[], "10.1.0.3")]
fn a_late_del_after_a_reboot_releases_no_other_lease(#[case] args: &[&str], #[case] leased: &str) {
    let store = StoreNode::new();
    let conf = store.subnets(&["10.1.0.0/29"]);
    store.add(Ours, "old", &conf);
    reboot(&store, "second", JUST_NOW);
    let mut add = call("ADD", "new", &conf);
    if let [args] = args {
        add = add.args(args);
    }
    assert_eq!(addresses(&result_of(&store.run(Ours, &add))), [leased]);
    for by in [Ours, HostLocal] {
        store.del(by, "old", &conf);
        assert_eq!(store.leases_of("new"), BTreeSet::from([leased.into()]));
        assert_eq!(store.leases().len(), 1);
    }
    assert_ok(&store.call(Ours, "CHECK", "new", &conf));
}

#[test]
fn a_late_del_can_be_the_first_call_after_a_reboot() {
    let store = StoreNode::new();
    let conf = store.subnets(DUAL_STACK);
    store.add(Ours, "old", &conf);
    store.add(Ours, "older", &conf);
    reboot(&store, "second", JUST_NOW);
    store.del(Ours, "old", &conf);
    assert!(store.leases().is_empty());
    let message = store.assert_error("CHECK", "older", &conf, 112);
    assert!(message.contains("older"), "{message}");
}

#[test]
fn a_host_local_lease_after_the_reboot_is_valid() {
    let store = StoreNode::new();
    let conf = store.subnets(DUAL_STACK);
    for container in ["a", "b"] {
        store.add(Ours, container, &conf);
    }
    reboot(&store, "second", JUST_NOW);
    let theirs = store.add(HostLocal, "h", &conf);
    let ours = store.add(Ours, "c", &conf);
    assert_eq!(store.leases_of("h"), BTreeSet::from_iter(theirs));
    assert_eq!(store.leases_of("c"), BTreeSet::from_iter(ours));
    assert_eq!(store.leases().len(), 4, "the leases of a and b are stale");
    assert_ok(&store.call(Ours, "CHECK", "h", &conf));
}

/// Whether headcni-ipam read the store between the lease by host-local and the reboot.
#[derive(Clone, Copy, Debug, PartialEq)]
enum IndexedBefore {
    Yes,
    No,
}

#[rstest]
fn a_host_local_lease_before_the_reboot_is_stale(
    #[values(IndexedBefore::Yes, IndexedBefore::No)] indexed: IndexedBefore,
) {
    let store = StoreNode::new();
    let conf = store.subnets(&["10.1.0.0/29"]);
    store.add(Ours, "a", &conf);
    store.add(HostLocal, "h", &conf);
    set_time(&store, "10.1.0.3", an_hour_ago());
    if indexed == IndexedBefore::Yes {
        assert_ok(&store.call(Ours, "STATUS", "", &conf));
    }
    reboot(&store, "second", JUST_NOW);
    store.add(Ours, "c", &conf);
    assert_eq!(store.leases().len(), 1, "{:?}", store.leases());
}

#[test]
fn a_store_without_boot_id_is_adopted_as_valid() {
    let store = StoreNode::new();
    let conf = store.subnets(DUAL_STACK);
    reboot(&store, "first", JUST_NOW);
    let leased = store.add(HostLocal, "h", &conf);
    for address in &leased {
        set_time(&store, address, an_hour_ago());
    }
    store.add(Ours, "a", &conf);
    assert_eq!(store.leases_of("h"), BTreeSet::from_iter(leased));
    // Now its boot is recorded.
    reboot(&store, "second", JUST_NOW);
    assert_ok(&store.call(Ours, "STATUS", "", &conf));
    assert!(store.leases().is_empty());
}

/// Reasons why the age of a lease is unknown.
#[rstest]
#[case::its_time_is_in_the_future("5.00 3.00", 3600)]
#[case::its_time_is_about_that_of_the_boot("5.00 3.00", -1)]
#[case::the_clock_was_set_back("7200.00 100.00", -3600)]
#[case::the_boot_time_is_unknown("unknown", -3600)]
#[case::the_boot_was_before_the_epoch("99999999999999.0 1.0", -3600)]
fn a_lease_of_unknown_age_is_valid(#[case] uptime: &str, #[case] seconds: i64) {
    let store = StoreNode::new();
    let conf = store.subnets(&["10.1.0.0/29"]);
    store.add(Ours, "a", &conf);
    reboot(&store, "second", uptime);
    store.add(HostLocal, "h", &conf);
    let distance = Duration::from_secs(seconds.unsigned_abs());
    let now = SystemTime::now();
    let time = if seconds < 0 {
        now - distance
    } else {
        now + distance
    };
    set_time(&store, "10.1.0.3", time);
    store.add(Ours, "b", &conf);
    let valid = BTreeSet::from(["10.1.0.3".into()]);
    assert_eq!(store.leases_of("h"), valid);
    assert!(
        store.leases_of("a").is_empty(),
        "the lease of a is of the earlier boot"
    );
}

#[test]
fn a_clock_set_forward_makes_no_lease_stale() {
    let store = StoreNode::new();
    let conf = store.subnets(&["10.1.0.0/29"]);
    store.add(Ours, "a", &conf);
    // Up for 30 s, and a lease of two minutes ago: only the birth time of a tmpfs would show that
    // the clock was set forward. Without a tmpfs there is no proof.
    reboot(&store, "second", "30.00 10.00");
    store.add(HostLocal, "h", &conf);
    set_time(
        &store,
        "10.1.0.3",
        SystemTime::now() - Duration::from_mins(2),
    );
    let plain = tempfile::TempDir::new().unwrap();
    for place in ["/run", "/dev/shm"] {
        let plain = plain.path().to_str().unwrap();
        store.node.run(["mount", "--bind", plain, place]).unwrap();
    }
    store.add(Ours, "b", &conf);
    assert_eq!(store.leases_of("h").len(), 1);
}

#[rstest]
#[case::the_stamp("lock")]
#[case::the_stamp_and_a_record(".headcni/owners/new@eth0")]
fn a_power_failure_that_empties_files_loses_no_lease(#[case] emptied: &str) {
    let store = StoreNode::new();
    let conf = store.subnets(DUAL_STACK);
    store.add(Ours, "old", &conf);
    reboot(&store, "second", JUST_NOW);
    let leased = store.add(Ours, "new", &conf);
    for name in ["lock", emptied] {
        File::create(store.file(name)).unwrap();
    }
    let next = store.add(Ours, "next", &conf);
    assert_eq!(store.leases_of("new"), BTreeSet::from_iter(leased));
    assert_eq!(store.leases_of("next"), BTreeSet::from_iter(next));
    store.del(Ours, "new", &conf);
    assert!(store.leases_of("new").is_empty());
}

#[rstest]
fn a_call_interrupted_by_a_reboot_leaves_nothing(#[values("ADD", "DEL")] verb: &str) {
    let store = StoreNode::new();
    let conf = store.subnets(DUAL_STACK);
    reboot(&store, "first", JUST_NOW);
    store.add(Ours, "x", &conf);
    store.add(Ours, "k", &conf);
    let cut = call(verb, "k", &conf);
    if verb == "ADD" {
        store.del(Ours, "k", &conf);
    }
    let syscalls = after_changes(in_store(&store, syscalls(&store, &cut)));
    let first = store
        .node
        .path("/run/fake/first-proc-sys-kernel-random-boot_id");
    for (number, syscall) in syscalls.iter().enumerate() {
        store.del(Ours, "k", &conf);
        if verb == "DEL" {
            store.add(Ours, "k", &conf);
        }
        kill_at(&store, &cut, syscall);
        // Overwrite the mounted file instead of stacking mounts.
        let id = format!("boot-{number}\n");
        File::create(&first)
            .unwrap()
            .write_all(id.as_bytes())
            .unwrap();
        let leased = store.add(Ours, "x", &conf);
        assert_eq!(store.leases_of("x"), BTreeSet::from_iter(leased));
        assert_eq!(store.leases().len(), 2, "{syscall:?}: {:?}", store.leases());
    }
}
