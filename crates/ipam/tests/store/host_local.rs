//! headcni-ipam and host-local work in one directory.

use std::collections::BTreeSet;

use rstest::rstest;
use serde_json::json;

use crate::store_node::Plugin::{self, HostLocal, Ours};
use crate::store_node::{StoreNode, addresses, assert_ok, call, merged, result_of};

#[test]
fn two_hundred_alternating_leases_are_distinct() {
    let store = StoreNode::new();
    // 200 addresses: .2 to .201.
    let range = json!({"subnet": "10.1.0.0/24", "rangeEnd": "10.1.0.201"});
    let conf = store.conf(&range);
    let mut leased = BTreeSet::new();
    for number in 0..200 {
        // Runs of one and of several calls.
        let plugin = if number % 5 < 2 { HostLocal } else { Ours };
        for address in store.add(plugin, &format!("c{number}"), &conf) {
            assert!(leased.insert(address.clone()), "{address} is leased twice");
        }
    }
    assert_eq!(leased.len(), 200);
    let outcome = store.call(HostLocal, "ADD", "late", &conf);
    assert!(!outcome.status.success(), "{outcome:?}");
    assert!(outcome.err_msg().contains("no IP addresses available"));
    let message = store.assert_error("ADD", "late", &conf, 110);
    assert!(message.contains("200 of 200"), "{message}");
    assert_eq!(store.leases_of("late"), BTreeSet::new());

    // One plugin releases an address, the other one leases it.
    for (owner, by) in [("c0", Ours), ("c3", HostLocal)] {
        let freed = store.leases_of(owner);
        store.del(by, owner, &conf);
        let next = format!("after-{owner}");
        assert_eq!(store.add(by.other(), &next, &conf), Vec::from_iter(freed));
    }
}

#[rstest]
fn each_plugin_releases_leases_of_the_other(#[values(Ours, HostLocal)] by: Plugin) {
    let store = StoreNode::new();
    let conf = store.subnets(&["10.1.0.0/24", "fd00::/64"]);
    for round in 0..3 {
        let leased = store.add(by, "a", &conf);
        store.add(by, "b", &conf);
        assert_eq!(leased.len(), 2, "round {round}");
        store.del(by.other(), "a", &conf);
        assert_eq!(store.leases_of("a"), BTreeSet::new());
        assert_eq!(store.leases_of("b").len(), 2, "the lease of b stays");
        // A second DEL succeeds.
        store.del(by, "a", &conf);
        assert!(!store.call(by, "CHECK", "a", &conf).status.success());
        store.del(by.other(), "b", &conf);
    }
    assert!(store.leases().is_empty());
}

#[rstest]
fn each_plugin_checks_leases_of_the_other(#[values(Ours, HostLocal)] by: Plugin) {
    let store = StoreNode::new();
    let conf = store.subnets(&["10.1.0.0/24", "fd00::/64"]);
    let result = result_of(&store.call(by, "ADD", "a", &conf));
    let with_prev_result = merged(&conf, &json!({"prevResult": result}));
    for checker in [by, by.other()] {
        assert_ok(&store.call(checker, "CHECK", "a", &with_prev_result));
        let outcome = store.call(checker, "CHECK", "b", &with_prev_result);
        assert!(!outcome.status.success(), "b has nothing: {outcome:?}");
    }
}

#[rstest]
fn each_plugin_refuses_a_second_lease_for_an_owner(#[values(Ours, HostLocal)] by: Plugin) {
    let store = StoreNode::new();
    let conf = store.subnets(&["10.1.0.0/24"]);
    let leased = store.add(by, "a", &conf);
    let outcome = store.call(by.other(), "ADD", "a", &conf);
    assert!(!outcome.status.success(), "{outcome:?}");
    assert!(outcome.stdout.contains(&leased[0]), "{outcome:?}");
    assert_eq!(store.leases_of("a"), BTreeSet::from_iter(leased));
}

#[rstest]
fn each_plugin_refuses_a_requested_address_of_the_other(#[values(Ours, HostLocal)] by: Plugin) {
    let store = StoreNode::new();
    let conf = store.subnets(&["10.1.0.0/24"]);
    let request = |container| call("ADD", container, &conf).args("IgnoreUnknown=1;IP=10.1.0.77");
    let result = result_of(&store.run(by, &request("a")));
    assert_eq!(addresses(&result), ["10.1.0.77"]);
    let outcome = store.run(by.other(), &request("b"));
    assert!(!outcome.status.success(), "{outcome:?}");
    assert!(store.leases_of("b").is_empty());
    assert_eq!(store.leases_of("a"), BTreeSet::from(["10.1.0.77".into()]));
}

#[test]
fn both_plugins_continue_after_the_last_reserved_address() {
    let store = StoreNode::new();
    let conf = store.subnets(&["10.1.0.0/24", "fd00::/64"]);
    let both = |last: u8| vec![format!("10.1.0.{last}"), format!("fd00::{last}")];
    for (number, plugin) in [(2, Ours), (3, HostLocal), (4, HostLocal), (5, Ours)] {
        let container = format!("c{number}");
        assert_eq!(store.add(plugin, &container, &conf), both(number));
        // Released, but the next lease continues after it.
        store.del(plugin.other(), &container, &conf);
    }
    for (number, plugin) in [(6, HostLocal), (7, Ours), (8, HostLocal)] {
        assert_eq!(
            store.add(plugin, &format!("c{number}"), &conf),
            both(number)
        );
    }
}

#[test]
fn two_interfaces_of_a_container_are_two_owners() {
    let store = StoreNode::new();
    let conf = store.subnets(&["10.1.0.0/24"]);
    let on = |verb, ifname| call(verb, "a", &conf).ifname(ifname);
    for (plugin, ifname) in [(Ours, "eth0"), (HostLocal, "eth1"), (Ours, "eth2")] {
        result_of(&store.run(plugin, &on("ADD", ifname)));
    }
    for (plugin, ifname, left) in [
        (HostLocal, "eth0", 2),
        (Ours, "eth1", 1),
        (HostLocal, "eth2", 0),
    ] {
        assert_ok(&store.run(plugin, &on("DEL", ifname)));
        assert_eq!(store.leases().len(), left, "after {ifname}");
    }
}

#[test]
fn a_lease_without_interface_name_belongs_to_every_interface() {
    let store = StoreNode::new();
    let conf = store.subnets(&["10.1.0.0/24"]);
    store.write("10.1.0.2", "old");
    assert_ok(&store.call(Ours, "CHECK", "old", &conf));
    assert_eq!(store.add(Ours, "a", &conf), ["10.1.0.3"]);
    store.del(Ours, "old", &conf);
    assert_eq!(store.leases().len(), 1);
}

#[test]
fn container_ids_with_a_common_prefix_are_distinct() {
    let store = StoreNode::new();
    let conf = store.subnets(&["10.1.0.0/24"]);
    for (plugin, container) in [(Ours, "c1"), (Ours, "c10"), (HostLocal, "c2")] {
        store.add(plugin, container, &conf);
        // Rebuild the index after the change by host-local.
        assert_ok(&store.call(Ours, "STATUS", "", &conf));
    }
    for container in ["c1", "c10", "c2"] {
        assert_ok(&store.call(Ours, "CHECK", container, &conf));
        store.del(Ours, container, &conf);
        assert_eq!(store.leases_of(container), BTreeSet::new());
    }
}

#[test]
fn a_very_long_container_id_is_released_by_both_plugins() {
    let store = StoreNode::new();
    let conf = store.subnets(&["10.1.0.0/24"]);
    for by in [HostLocal, Ours] {
        let long = "c".repeat(253);
        store.add(HostLocal, &long, &conf);
        store.del(by, &long, &conf);
        assert!(store.leases().is_empty(), "by {by:?}");
    }
}
