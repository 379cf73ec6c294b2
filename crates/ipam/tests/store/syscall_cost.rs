//! The cost of a call, counted in system calls: the same at many leases as at a few.

use rstest::rstest;
use serde_json::json;

use crate::faults::{Moment, in_store, moments};
use crate::store_node::Plugin::Ours;
use crate::store_node::{StoreNode, call, assert_ok};

/// Leases that are there when the cost is counted again.
const MANY: u32 = 600;

/// Adds leases as host-local writes them, from the third address on.
fn crowd(store: &StoreNode, prefix: &str) {
    for number in 3..MANY {
        let address = match prefix {
            "10.1." => format!("10.1.{}.{}", number / 256, number % 256),
            prefix => format!("{prefix}{number:x}"),
        };
        store.write(&address, format!("c{number}\r\neth0"));
    }
}

fn assert_constant(subnet: &str, prefix: &str, strategy: &str) {
    let store = StoreNode::new();
    let conf = store.conf(&json!({"subnet": subnet, "allocation_strategy": strategy}));
    let count = |verb: &str| {
        // In a store that somebody of ours has left, as is usual.
        assert_ok(&store.call(Ours, "STATUS", "", &conf));
        moments(&store, &call(verb, "a", &conf)).len()
    };
    let costs = || ["ADD", "CHECK", "DEL"].map(&count);
    store.add(Ours, "first", &conf);
    store.del(Ours, "first", &conf);
    let few = costs();
    crowd(&store, prefix);
    // This one looks at all of them; the next ones need not.
    store.add(Ours, "second", &conf);
    let many = costs();
    for (few, many) in few.into_iter().zip(many) {
        // A few pages of memory more or less.
        assert!(many <= few + 20, "{few} at a few, {many} at {MANY}");
    }
    assert_ok(&store.call(Ours, "CHECK", "c17", &conf));
}

#[rstest]
fn a_call_costs_the_same_at_many_leases(
    #[values("sequential", "random", "dense-pack")] strategy: &str,
) {
    assert_constant("10.1.0.0/20", "10.1.", strategy);
}

#[rstest]
#[case::sequential("sequential")]
#[case::random("random")]
#[case::dense_pack("dense-pack")]
fn a_call_costs_the_same_in_a_subnet_of_ipv6(#[case] strategy: &str) {
    assert_constant("fd00::/64", "fd00::", strategy);
}

#[test]
fn a_full_range_costs_no_more_to_refuse() {
    let store = StoreNode::new();
    let range = json!({"subnet": "10.1.0.0/20", "rangeStart": "10.1.0.3", "rangeEnd": "10.1.2.87"});
    let conf = store.conf(&range);
    crowd(&store, "10.1.");
    store.assert_error("ADD", "late", &conf, 110);
    let cost = moments(&store, &call("ADD", "late", &conf)).len();
    assert!(cost < 200, "{cost}");
}

/// What a call makes in the store, up to letting go of its lock.
#[rstest]
#[case::of_an_add("ADD", 33)]
#[case::of_a_check("CHECK", 16)]
#[case::of_a_del("DEL", 33)]
fn the_cost_in_the_store(#[case] verb: &str, #[case] most: usize) {
    let store = StoreNode::new();
    let conf = store.subnets(&["10.1.0.0/20"]);
    store.add(Ours, "first", &conf);
    if verb != "ADD" {
        store.add(Ours, "a", &conf);
    }
    let mut moments = in_store(&store, moments(&store, &call(verb, "a", &conf)));
    let is_close = |moment: &Moment| moment.name == "close";
    let last = moments.iter().rposition(is_close).unwrap();
    moments.truncate(last + 1);
    assert!(moments.len() <= most, "{}: {moments:#?}", moments.len());
}
