//! One directory, two plugins, in turns: what one does, the other one respects.

use std::collections::BTreeSet;

use rstest::rstest;
use serde_json::json;

use crate::store_node::Plugin::{self, HostLocal, Ours};
use crate::store_node::{StoreNode, addresses, call, assert_ok, merged, assert_error, result_of};

#[test]
fn two_hundred_leases_in_turns_are_distinct_and_both_see_the_end() {
    let store = StoreNode::new();
    // 200 of them: from .2 to .201.
    let range = json!({"subnet": "10.1.0.0/24", "rangeEnd": "10.1.0.201"});
    let conf = store.conf(&range);
    let mut leased = BTreeSet::new();
    for number in 0..200 {
        // Not simply every other one: runs of one and of several.
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

    // One lets go, whichever it was: the other one takes it.
    for (owner, by) in [("c0", Ours), ("c3", HostLocal)] {
        let freed = store.leases_of(owner);
        store.del(by, owner, &conf);
        let next = format!("after-{owner}");
        assert_eq!(store.add(by.other(), &next, &conf), Vec::from_iter(freed));
    }
}

#[rstest]
fn what_one_leased_the_other_one_releases(#[values(Ours, HostLocal)] by: Plugin) {
    let store = StoreNode::new();
    let conf = store.subnets(&["10.1.0.0/24", "fd00::/64"]);
    for round in 0..3 {
        let leased = store.add(by, "a", &conf);
        store.add(by, "b", &conf);
        assert_eq!(leased.len(), 2, "round {round}");
        store.del(by.other(), "a", &conf);
        assert_eq!(store.leases_of("a"), BTreeSet::new());
        assert_eq!(store.leases_of("b").len(), 2, "it is another's");
        // The one that leased it believes it, and does not mind.
        store.del(by, "a", &conf);
        assert!(!store.call(by, "CHECK", "a", &conf).status.success());
        store.del(by.other(), "b", &conf);
    }
    assert!(store.leases().is_empty());
}

#[rstest]
fn what_one_leased_the_other_one_checks(#[values(Ours, HostLocal)] by: Plugin) {
    let store = StoreNode::new();
    let conf = store.subnets(&["10.1.0.0/24", "fd00::/64"]);
    let result = result_of(&store.call(by, "ADD", "a", &conf));
    let known = merged(&conf, &json!({"prevResult": result}));
    for checker in [by, by.other()] {
        assert_ok(&store.call(checker, "CHECK", "a", &known));
        let outcome = store.call(checker, "CHECK", "b", &known);
        assert!(!outcome.status.success(), "b has nothing: {outcome:?}");
    }
}

#[rstest]
fn what_one_leased_the_other_one_does_not_lease_again_to_the_same_owner(
    #[values(Ours, HostLocal)] by: Plugin,
) {
    let store = StoreNode::new();
    let conf = store.subnets(&["10.1.0.0/24"]);
    let leased = store.add(by, "a", &conf);
    let outcome = store.call(by.other(), "ADD", "a", &conf);
    assert!(!outcome.status.success(), "{outcome:?}");
    assert!(outcome.stdout.contains(&leased[0]), "{outcome:?}");
    assert_eq!(store.leases_of("a"), BTreeSet::from_iter(leased));
}

#[rstest]
fn an_address_that_one_leased_the_other_one_does_not_give_on_request(
    #[values(Ours, HostLocal)] by: Plugin,
) {
    let store = StoreNode::new();
    let conf = store.subnets(&["10.1.0.0/24"]);
    let asking = |container| call("ADD", container, &conf).args("IgnoreUnknown=1;IP=10.1.0.77");
    let result = result_of(&store.run(by, &asking("a")));
    assert_eq!(addresses(&result), ["10.1.0.77"]);
    let outcome = store.run(by.other(), &asking("b"));
    assert!(!outcome.status.success(), "{outcome:?}");
    assert!(store.leases_of("b").is_empty());
    assert_eq!(store.leases_of("a"), BTreeSet::from(["10.1.0.77".into()]));
}

#[test]
fn the_newest_lease_is_known_to_both() {
    let store = StoreNode::new();
    let conf = store.subnets(&["10.1.0.0/24", "fd00::/64"]);
    let both = |last: u8| vec![format!("10.1.0.{last}"), format!("fd00::{last}")];
    for (number, plugin) in [(2, Ours), (3, HostLocal), (4, HostLocal), (5, Ours)] {
        let container = format!("c{number}");
        assert_eq!(store.add(plugin, &container, &conf), both(number));
        // Released at once, and yet not given again: the next one comes after it.
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
fn two_interfaces_of_a_container_are_two_owners_to_both() {
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
fn a_file_of_host_local_from_before_interfaces_were_named_is_everybodys() {
    let store = StoreNode::new();
    let conf = store.subnets(&["10.1.0.0/24"]);
    store.write("10.1.0.2", "old");
    assert_ok(&store.call(Ours, "CHECK", "old", &conf));
    assert_eq!(store.add(Ours, "a", &conf), ["10.1.0.3"]);
    store.del(Ours, "old", &conf);
    assert_eq!(store.leases().len(), 1);
}

#[test]
fn names_that_begin_like_others_are_kept_apart() {
    let store = StoreNode::new();
    let conf = store.subnets(&["10.1.0.0/24"]);
    for (plugin, container) in [(Ours, "c1"), (Ours, "c10"), (HostLocal, "c2")] {
        store.add(plugin, container, &conf);
        // Ours looks at what host-local has assert_ok, and makes its index anew.
        assert_ok(&store.call(Ours, "STATUS", "", &conf));
    }
    for container in ["c1", "c10", "c2"] {
        assert_ok(&store.call(Ours, "CHECK", container, &conf));
        store.del(Ours, container, &conf);
        assert_eq!(store.leases_of(container), BTreeSet::new());
    }
}

#[test]
fn a_container_with_a_very_long_name_is_released_by_both() {
    let store = StoreNode::new();
    let conf = store.subnets(&["10.1.0.0/24"]);
    for by in [HostLocal, Ours] {
        let long = "c".repeat(253);
        store.add(HostLocal, &long, &conf);
        store.del(by, &long, &conf);
        assert!(store.leases().is_empty(), "by {by:?}");
    }
}

#[test]
fn a_refused_answer_names_the_owner_that_host_local_gave_the_address_to() {
    let store = StoreNode::new();
    let conf = store.subnets(&["10.1.0.0/24"]);
    store.add(HostLocal, "first", &conf);
    let asking = call("ADD", "b", &conf).args("IP=10.1.0.2");
    let message = assert_error(&store.run(Ours, &asking), 111);
    assert!(
        message.contains("10.1.0.2") && message.contains("first"),
        "{message}"
    );
}
