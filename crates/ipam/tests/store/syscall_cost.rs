//! The number of system calls does not grow with the number of leases.

use rstest::rstest;
use serde_json::json;

use crate::faults::{Syscall, in_store, syscalls};
use crate::store_node::Plugin::Ours;
use crate::store_node::{StoreNode, assert_ok, call};

const MANY: u32 = 600;

/// Adds leases in host-local's format, from the third address on.
fn add_leases(store: &StoreNode, prefix: &str) {
    for number in 3..MANY {
        let address = match prefix {
            "10.1." => format!("10.1.{}.{}", number / 256, number % 256),
            prefix => format!("{prefix}{number:x}"),
        };
        store.write(&address, format!("c{number}\r\neth0"));
    }
}

#[rstest]
fn a_call_costs_the_same_with_many_leases(
    #[values("sequential", "random", "dense-pack")] strategy: &str,
    #[values(("10.1.0.0/20", "10.1."), ("fd00::/64", "fd00::"))] (subnet, prefix): (&str, &str),
) {
    let store = StoreNode::new();
    let conf = store.conf(&json!({"subnet": subnet, "allocation_strategy": strategy}));
    let count = |verb: &str| {
        // With a valid index.
        assert_ok(&store.call(Ours, "STATUS", "", &conf));
        syscalls(&store, &call(verb, "a", &conf)).len()
    };
    let costs = || ["ADD", "CHECK", "DEL"].map(&count);
    store.add(Ours, "first", &conf);
    store.del(Ours, "first", &conf);
    let few = costs();
    add_leases(&store, prefix);
    // This call rebuilds the index; later ones don't.
    store.add(Ours, "second", &conf);
    let many = costs();
    for (few, many) in few.into_iter().zip(many) {
        // Memory allocation varies a little.
        assert!(many <= few + 20, "{few} at a few, {many} at {MANY}");
    }
    assert_ok(&store.call(Ours, "CHECK", "c17", &conf));
}

#[test]
fn refusing_on_a_full_range_is_cheap() {
    let store = StoreNode::new();
    let range = json!({"subnet": "10.1.0.0/20", "rangeStart": "10.1.0.3", "rangeEnd": "10.1.2.87"});
    let conf = store.conf(&range);
    add_leases(&store, "10.1.");
    store.assert_error("ADD", "late", &conf, 110);
    let cost = syscalls(&store, &call("ADD", "late", &conf)).len();
    assert!(cost < 200, "{cost}");
}

/// System calls in the store, up to the release of its lock.
#[rstest]
#[case::of_an_add("ADD", 33)]
#[case::of_a_check("CHECK", 16)]
#[case::of_a_del("DEL", 33)]
fn system_calls_in_the_store_are_bounded(#[case] verb: &str, #[case] most: usize) {
    let store = StoreNode::new();
    let conf = store.subnets(&["10.1.0.0/20"]);
    store.add(Ours, "first", &conf);
    if verb != "ADD" {
        store.add(Ours, "a", &conf);
    }
    let mut syscalls = in_store(&store, syscalls(&store, &call(verb, "a", &conf)));
    let is_close = |syscall: &Syscall| syscall.name == "close";
    let last = syscalls.iter().rposition(is_close).unwrap();
    syscalls.truncate(last + 1);
    assert!(syscalls.len() <= most, "{}: {syscalls:#?}", syscalls.len());
}
