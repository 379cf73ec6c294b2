//! Ranges, range sets and strategies.

use std::collections::BTreeSet;

use rstest::rstest;
use serde_json::{Value, json};

use crate::store_node::Plugin::Ours;
use crate::store_node::{StoreNode, addresses, call, merged, result_of};

#[rstest]
#[case::a_subnet(json!({"subnet": "10.1.0.0/24"}), &["10.1.0.2", "10.1.0.3"])]
#[case::a_start(
    json!({"subnet": "10.1.0.0/24", "rangeStart": "10.1.0.100"}), &["10.1.0.100", "10.1.0.101"])]
#[case::an_end_that_is_soon_reached(
    json!({"subnet": "10.1.0.0/24", "rangeStart": "10.1.0.9", "rangeEnd": "10.1.0.10"}),
    &["10.1.0.9", "10.1.0.10"])]
#[case::a_gateway_in_the_middle(
    json!({"subnet": "10.1.0.0/24", "gateway": "10.1.0.2"}), &["10.1.0.1", "10.1.0.3"])]
#[case::both_families(
    json!({"ranges": [[{"subnet": "10.1.0.0/24"}], [{"subnet": "fd00:1::/64"}]]}),
    &["10.1.0.2 fd00:1::2", "10.1.0.3 fd00:1::3"])]
#[case::the_subnet_comes_before_the_list(
    json!({"ranges": [[{"subnet": "fd00:1::/64"}]], "subnet": "10.1.0.0/24"}),
    &["10.1.0.2 fd00:1::2"])]
#[case::a_second_range_for_when_the_first_is_full(
    json!({"ranges": [[{"subnet": "10.1.0.0/30"}, {"subnet": "10.9.0.0/30"}]]}),
    &["10.1.0.2", "10.9.0.2"])]
#[case::three_sets_two_of_one_family(
    json!({"ranges": [[{"subnet": "10.1.0.0/24"}], [{"subnet": "10.2.0.0/24"}],
        [{"subnet": "fd00::/64"}]]}),
    &["10.1.0.2 10.2.0.2 fd00::2"])]
#[case::two_halves_of_one_subnet(
    json!({"ranges": [
        [{"subnet": "10.1.0.0/24", "rangeEnd": "10.1.0.127"}],
        [{"subnet": "10.1.0.0/24", "rangeStart": "10.1.0.128"}]]}),
    &["10.1.0.2 10.1.0.128", "10.1.0.3 10.1.0.129"])]
#[case::a_huge_one(json!({"subnet": "10.0.0.0/8"}), &["10.0.0.2", "10.0.0.3"])]
#[case::the_smallest_of_ipv6(json!({"subnet": "fd00::4/126"}), &["fd00::6", "fd00::7"])]
fn addresses_are_leased_in_order(#[case] ipam: Value, #[case] expected: &[&str]) {
    let store = StoreNode::new();
    let conf = store.conf(&ipam);
    for (number, expected) in expected.iter().enumerate() {
        let leased = store.add(Ours, &format!("c{number}"), &conf);
        assert_eq!(leased.join(" "), *expected);
    }
}

#[rstest]
#[case::of_one_range(json!({"subnet": "10.1.0.0/28"}), 13)]
#[case::of_two_ranges(
    json!({"ranges": [[{"subnet": "10.1.0.0/29"}, {"subnet": "10.1.1.0/29"}]]}), 10)]
#[case::of_a_part(
    json!({"subnet": "10.1.0.0/24", "rangeStart": "10.1.0.250", "rangeEnd": "10.1.0.255"}), 5)]
#[case::of_ipv6(json!({"subnet": "fd00::/124"}), 14)]
fn every_strategy_leases_every_address_once(
    #[case] ipam: Value,
    #[case] capacity: usize,
    #[values("sequential", "random", "dense-pack")] strategy: &str,
) {
    let store = StoreNode::new();
    let conf = store.conf(&merged(&ipam, &json!({"allocation_strategy": strategy})));
    let leased: BTreeSet<_> = (0..capacity)
        .flat_map(|number| store.add(Ours, &format!("c{number}"), &conf))
        .collect();
    assert_eq!(leased.len(), capacity);
    let message = store.assert_error("ADD", "late", &conf, 110);
    let all = format!("{capacity} of {capacity}");
    assert!(message.contains(&all), "{message}");
    let freed = store.leases_of("c3");
    store.del(Ours, "c3", &conf);
    assert_eq!(BTreeSet::from_iter(store.add(Ours, "next", &conf)), freed);
}

#[rstest]
#[case::the_next("sequential", "10.1.0.5")]
#[case::by_default("", "10.1.0.5")]
#[case::the_lowest("dense-pack", "10.1.0.3")]
fn the_strategy_decides_when_a_released_address_is_reused(
    #[case] strategy: &str,
    #[case] expected: &str,
) {
    let store = StoreNode::new();
    let mut ipam = json!({"subnet": "10.1.0.0/24"});
    if !strategy.is_empty() {
        ipam["allocation_strategy"] = strategy.into();
    }
    let conf = store.conf(&ipam);
    for container in ["a", "b", "c"] {
        store.add(Ours, container, &conf);
    }
    store.del(Ours, "b", &conf);
    assert_eq!(store.add(Ours, "d", &conf), [expected]);
}

#[rstest]
fn random_addresses_are_not_sequential(
    #[values("10.1.0.0/20", "10.0.0.0/8", "fd00::/64")] subnet: &str,
) {
    let store = StoreNode::new();
    let conf = store.conf(&json!({"subnet": subnet, "allocation_strategy": "random"}));
    let leased: Vec<_> = (0..12)
        .flat_map(|number| store.add(Ours, &format!("c{number}"), &conf))
        .collect();
    let mut sorted = leased.clone();
    sorted.sort();
    assert_ne!(sorted, leased, "one in 479 million runs fails by chance");
    sorted.dedup();
    assert_eq!(sorted.len(), 12);
}

/// `IP=`, `args.cni.ips`, `runtimeConfig.ips` and `runtimeConfig.ipRanges`.
#[rstest]
#[case::in_cni_args("IgnoreUnknown=1;IP=10.1.0.50", json!({}), &["10.1.0.50", "fd00::2"])]
#[case::two_in_cni_args("IP=fd00::50,10.1.0.50", json!({}), &["10.1.0.50", "fd00::50"])]
#[case::in_args("", json!({"args": {"cni": {"ips": ["10.1.0.50"]}}}), &["10.1.0.50", "fd00::2"])]
#[case::by_the_runtime("", json!({"runtimeConfig": {"ips": ["fd00::50", "10.1.0.50"]}}),
    &["10.1.0.50", "fd00::50"])]
#[case::with_a_length("", json!({"runtimeConfig": {"ips": ["10.1.0.50/24", "fd00::50/64"]}}),
    &["10.1.0.50", "fd00::50"])]
#[case::in_both("IP=10.1.0.50", json!({"runtimeConfig": {"ips": ["fd00::50"]}}),
    &["10.1.0.50", "fd00::50"])]
#[case::the_same_twice("IP=10.1.0.50", json!({"runtimeConfig": {"ips": ["10.1.0.50"]}}),
    &["10.1.0.50", "fd00::2"])]
#[case::ranges_of_the_runtime(
    "", json!({"runtimeConfig": {"ipRanges": [[{"subnet": "10.7.0.0/24"}]]}}),
    &["10.7.0.2", "10.1.0.2", "fd00::2"])]
#[case::an_address_in_a_range_of_the_runtime(
    "IP=10.7.0.9", json!({"runtimeConfig": {"ipRanges": [[{"subnet": "10.7.0.0/24"}]]}}),
    &["10.7.0.9", "10.1.0.2", "fd00::2"])]
fn requested_addresses_are_leased(
    #[case] args: &str,
    #[case] more: Value,
    #[case] expected: &[&str],
) {
    let store = StoreNode::new();
    let conf = merged(&store.subnets(&["10.1.0.0/24", "fd00::/64"]), &more);
    let mut add = call("ADD", "a", &conf);
    if !args.is_empty() {
        add = add.args(args);
    }
    let result = result_of(&store.run(Ours, &add));
    assert_eq!(addresses(&result), expected);
    assert_eq!(store.leases_of("a").len(), expected.len());
    store.del(Ours, "a", &conf);
    assert!(store.leases().is_empty());
}

#[test]
fn a_requested_address_can_be_leased_again() {
    let store = StoreNode::new();
    let conf = store.subnets(&["10.1.0.0/24"]);
    for number in 0..3 {
        let container = format!("c{number}");
        let add = call("ADD", &container, &conf).args("IP=10.1.0.9");
        assert_eq!(addresses(&result_of(&store.run(Ours, &add))), ["10.1.0.9"]);
        store.del(Ours, &container, &conf);
    }
}
