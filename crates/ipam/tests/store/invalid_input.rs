//! Input that can't be right: refused with the values by name, and nothing is leased.

use rstest::rstest;
use serde_json::{Value, json};

use crate::store_node::Plugin::Ours;
use crate::store_node::{StoreNode, call, merged, assert_error};

fn ranges(sets: &Value) -> Value {
    json!({"ranges": sets})
}

#[rstest]
#[case::overlapping_ranges(
    ranges(&json!([[{"subnet": "10.2.0.0/24"}, {"subnet": "10.2.0.128/25"}]])),
    &["10.2.0.0/24", "10.2.0.128/25"])]
#[case::overlapping_sets(
    ranges(&json!([[{"subnet": "10.2.0.0/24"}], [{"subnet": "10.2.0.128/25"}]])),
    &["10.2.0.0/24", "10.2.0.128/25"])]
#[case::the_same_twice(
    merged(&json!({"subnet": "10.2.0.0/24"}), &ranges(&json!([[{"subnet": "10.2.0.0/24"}]]))),
    &["10.2.0.0/24"])]
#[case::two_families_in_a_set(
    ranges(&json!([[{"subnet": "10.2.0.0/24"}, {"subnet": "fd00::/64"}]])), &["fd00::"])]
#[case::an_empty_set(ranges(&json!([[]])), &["ipam.ranges[0]"])]
#[case::no_set_at_all(ranges(&json!([])), &["subnet", "ranges"])]
#[case::no_range_at_all(json!({}), &["subnet", "ranges"])]
#[case::not_a_list_of_lists(ranges(&json!([{"subnet": "10.2.0.0/24"}])), &["ipam.ranges"])]
#[case::ranges_that_are_no_list(ranges(&json!("10.2.0.0/24")), &["ipam.ranges"])]
#[case::a_range_without_subnet(
    ranges(&json!([[{"rangeStart": "10.2.0.1"}]])), &["ipam.ranges[0][0].subnet"])]
#[case::a_gateway_outside(
    json!({"subnet": "10.2.0.0/24", "gateway": "10.3.0.1"}), &["10.3.0.1", "10.2.0.0/24"])]
#[case::a_gateway_of_the_other_family(
    json!({"subnet": "10.2.0.0/24", "gateway": "fd00::1"}), &["fd00::1", "10.2.0.0/24"])]
#[case::a_gateway_that_is_none(
    json!({"subnet": "10.2.0.0/24", "gateway": "10.2.0.300"}), &["10.2.0.300", "gateway"])]
#[case::a_start_after_the_end(
    json!({"subnet": "10.2.0.0/24", "rangeStart": "10.2.0.9", "rangeEnd": "10.2.0.8"}),
    &["10.2.0.9", "10.2.0.8"])]
#[case::a_start_outside(
    json!({"subnet": "10.2.0.0/24", "rangeStart": "10.3.0.9"}), &["10.3.0.9", "10.2.0.0/24"])]
#[case::an_end_outside(
    json!({"subnet": "10.2.0.0/24", "rangeEnd": "10.3.0.9"}), &["10.3.0.9", "10.2.0.0/24"])]
#[case::too_small(json!({"subnet": "10.2.0.0/31"}), &["10.2.0.0/31", "/30"])]
#[case::a_single_address(json!({"subnet": "10.2.0.0/32"}), &["10.2.0.0/32", "/30"])]
#[case::too_small_for_ipv6(json!({"subnet": "fd00::/127"}), &["fd00::/127", "/126"])]
#[case::nothing_beside_the_gateway(
    json!({"subnet": "10.2.0.0/24", "rangeStart": "10.2.0.1", "rangeEnd": "10.2.0.1"}),
    &["10.2.0.1"])]
#[case::host_bits(json!({"subnet": "10.2.0.7/24"}), &["10.2.0.7/24", "10.2.0.0/24"])]
#[case::not_a_subnet(json!({"subnet": "10.2.0.0"}), &["subnet", "10.2.0.0"])]
#[case::a_subnet_that_is_a_number(json!({"subnet": 10}), &["ipam.subnet"])]
#[case::an_unknown_strategy(
    json!({"subnet": "10.2.0.0/24", "allocation_strategy": "best"}), &["best", "dense-pack"])]
#[case::a_route_without_destination(
    json!({"subnet": "10.2.0.0/24", "routes": [{"gw": "10.2.0.1"}]}), &["ipam.routes", "dst"])]
#[case::a_route_to_nowhere(
    json!({"subnet": "10.2.0.0/24", "routes": [{"dst": "nowhere"}]}), &["ipam.routes", "nowhere"])]
#[case::a_relative_directory(
    json!({"subnet": "10.2.0.0/24", "dataDir": "leases"}), &["ipam.dataDir", "leases"])]
#[case::no_time_for_the_lock(
    json!({"subnet": "10.2.0.0/24", "lock_timeout_seconds": 0}), &["lock_timeout_seconds", "0"])]
#[case::a_flag_that_is_none(
    json!({"subnet": "10.2.0.0/24", "status_strict": "yes"}), &["ipam.status_strict"])]
fn a_configuration_that_cannot_be_right(#[case] ipam: Value, #[case] words: &[&str]) {
    let store = StoreNode::new();
    store.add(Ours, "first", &store.subnets(&["10.1.0.0/24"]));
    let before = store.files();
    let message = store.assert_error("ADD", "a", &store.conf(&ipam), 7);
    for word in words {
        assert!(message.contains(word), "{word} is not in: {message}");
    }
    assert_eq!(store.files(), before);
    // It never made a directory, either, where there was none.
    let fresh = StoreNode::new();
    fresh.assert_error("ADD", "a", &fresh.conf(&ipam), 7);
    assert!(fresh.files().is_empty());
}

#[rstest]
#[case::taken("IP=10.1.0.2", json!({}), 111, &["10.1.0.2", "container first"])]
#[case::the_gateway("IP=10.1.0.1", json!({}), 111, &["10.1.0.1", "10.1.0.0/24"])]
#[case::the_network_s_own("IP=10.1.0.0", json!({}), 111, &["10.1.0.0"])]
#[case::the_broadcast_address("IP=10.1.0.255", json!({}), 111, &["10.1.0.255"])]
#[case::outside("IP=10.3.0.5", json!({}), 111, &["10.3.0.5", "10.1.0"])]
#[case::of_a_family_that_is_not_there("IP=fd99::5", json!({}), 111, &["fd99::5"])]
#[case::two_of_one_set("IP=10.1.0.5,10.1.0.6", json!({}), 111, &["10.1.0.6"])]
#[case::one_that_is_free_and_one_that_is_taken(
    "IP=10.1.0.5,fd00::2", json!({}), 111, &["fd00::2", "container first"])]
#[case::not_an_address("IP=10.1.0", json!({}), 7, &["IP", "10.1.0"])]
#[case::not_an_address_of_args(
    "", json!({"args": {"cni": {"ips": ["x"]}}}), 7, &["args.cni.ips", "x"])]
#[case::not_an_address_of_the_runtime(
    "", json!({"runtimeConfig": {"ips": ["1.2.3.4.5"]}}), 7, &["runtimeConfig.ips", "1.2.3.4.5"])]
#[case::not_a_list("", json!({"runtimeConfig": {"ips": "10.1.0.5"}}), 7, &["runtimeConfig.ips"])]
#[case::a_range_that_overlaps(
    "", json!({"runtimeConfig": {"ipRanges": [[{"subnet": "10.1.0.0/25"}]]}}), 7,
    &["10.1.0.0/25", "10.1.0.0/24"])]
#[case::a_range_that_is_wrong(
    "", json!({"runtimeConfig": {"ipRanges": [[{"subnet": "10.7.0.0/33"}]]}}), 7,
    &["runtimeConfig.ipRanges", "10.7.0.0/33"])]
fn a_request_that_cannot_be_met(
    #[case] args: &str,
    #[case] more: Value,
    #[case] code: u64,
    #[case] words: &[&str],
) {
    let store = StoreNode::new();
    let conf = store.subnets(&["10.1.0.0/24", "fd00::/64"]);
    store.add(Ours, "first", &conf);
    let before = store.files();
    let add = call("ADD", "a", &merged(&conf, &more)).args(args);
    let message = assert_error(&store.run(Ours, &add), code);
    for word in words {
        assert!(message.contains(word), "{word} is not in: {message}");
    }
    assert_eq!(store.files(), before);
}

#[test]
fn a_full_set_leases_nothing_of_the_other_ones() {
    let store = StoreNode::new();
    let conf = store.subnets(&["10.1.0.0/24", "fd00::/126"]);
    for container in ["a", "b"] {
        store.add(Ours, container, &conf);
    }
    let before = store.files();
    let message = store.assert_error("ADD", "c", &conf, 110);
    for word in ["fd00::/126", "2 of 2"] {
        assert!(message.contains(word), "{message}");
    }
    assert_eq!(store.leases().len(), 4);
    assert_eq!(store.files(), before);
}

#[rstest]
#[case::none(json!({"cniVersion": "1.1.0", "name": "net", "type": "test"}))]
#[case::of_another_kind(json!({"cniVersion": "1.1.0", "name": "net", "type": "t", "ipam": "x"}))]
fn without_an_ipam_section_nothing_works(
    #[case] conf: Value,
    #[values("ADD", "DEL", "CHECK", "STATUS")] verb: &str,
) {
    let store = StoreNode::new();
    let message = store.assert_error(verb, "a", &conf, 7);
    assert!(message.contains("ipam"), "{message}");
}

#[test]
fn what_was_leased_can_be_released_when_the_configuration_no_longer_makes_sense() {
    let store = StoreNode::new();
    store.add(Ours, "a", &store.subnets(&["10.1.0.0/24"]));
    let nonsense = json!({"subnet": "nonsense", "allocation_strategy": "best", "routes": [1]});
    store.del(Ours, "a", &store.conf(&nonsense));
    assert!(store.leases().is_empty());
}
