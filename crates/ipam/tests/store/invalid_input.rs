//! Invalid input is refused with the offending values, and nothing is leased.

use rstest::rstest;
use serde_json::{Value, json};

use crate::store_node::Plugin::Ours;
use crate::store_node::{StoreNode, assert_error, call, merged};

#[rstest]
#[case::overlapping_sets(
    json!({"ranges": [[{"subnet": "10.2.0.0/24"}], [{"subnet": "10.2.0.128/25"}]]}),
    &["10.2.0.0/24", "10.2.0.128/25"])]
#[case::host_bits(json!({"subnet": "10.2.0.7/24"}), &["10.2.0.7/24", "10.2.0.0/24"])]
#[case::an_unknown_strategy(
    json!({"subnet": "10.2.0.0/24", "allocation_strategy": "best"}), &["best", "dense-pack"])]
fn an_invalid_configuration_leases_nothing(#[case] ipam: Value, #[case] words: &[&str]) {
    let store = StoreNode::new();
    store.add(Ours, "first", &store.subnets(&["10.1.0.0/24"]));
    let before = store.files();
    let message = store.assert_error("ADD", "a", &store.conf(&ipam), 7);
    for word in words {
        assert!(message.contains(word), "{word} is not in: {message}");
    }
    assert_eq!(store.files(), before);
    // It creates no directory either.
    let fresh = StoreNode::new();
    fresh.assert_error("ADD", "a", &fresh.conf(&ipam), 7);
    assert!(fresh.files().is_empty());
}

#[rstest]
#[case::leased("IP=10.1.0.2", json!({}), 111, &["10.1.0.2", "container first"])]
#[case::the_gateway("IP=10.1.0.1", json!({}), 111, &["10.1.0.1", "10.1.0.0/24"])]
#[case::the_network_address("IP=10.1.0.0", json!({}), 111, &["10.1.0.0"])]
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
fn a_requested_address_that_is_unavailable_is_refused(
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

#[rstest]
#[case::none(json!({"cniVersion": "1.1.0", "name": "net", "type": "test"}))]
#[case::of_another_kind(json!({"cniVersion": "1.1.0", "name": "net", "type": "t", "ipam": "x"}))]
fn a_configuration_without_ipam_section_is_refused(
    #[case] conf: Value,
    #[values("ADD", "DEL", "CHECK", "STATUS")] verb: &str,
) {
    let store = StoreNode::new();
    let message = store.assert_error(verb, "a", &conf, 7);
    assert!(message.contains("ipam"), "{message}");
}

#[test]
fn del_works_with_an_invalid_configuration() {
    let store = StoreNode::new();
    store.add(Ours, "a", &store.subnets(&["10.1.0.0/24"]));
    let nonsense = json!({"subnet": "nonsense", "allocation_strategy": "best", "routes": [1]});
    store.del(Ours, "a", &store.conf(&nonsense));
    assert!(store.leases().is_empty());
}
