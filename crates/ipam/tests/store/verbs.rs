//! CHECK, GC, STATUS, VERSION and DEL.

use std::collections::BTreeSet;

use lab::{Call, Outcome};
use rstest::rstest;
use serde_json::{Value, json};

use crate::store_node::Plugin::{HostLocal, Ours};
use crate::store_node::{StoreNode, assert_error, assert_ok, call, merged, result_of};

/// A call without a container.
fn plain(store: &StoreNode, verb: &str, conf: &Value) -> Outcome {
    store.run(Ours, &Call::new(verb).path("/nowhere").conf(conf))
}

fn gc(store: &StoreNode, conf: &Value, valid: &[(&str, &str)]) -> Outcome {
    let entry = |(id, ifname): &(&str, &str)| json!({"containerID": id, "ifname": ifname});
    let valid: Vec<_> = valid.iter().map(entry).collect();
    let more = json!({"cni.dev/valid-attachments": valid});
    plain(store, "GC", &merged(conf, &more))
}

#[test]
fn gc_releases_exactly_the_invalid_attachments() {
    let store = StoreNode::new();
    let conf = store.subnets(&["10.1.0.0/24", "fd00::/64"]);
    for (plugin, container) in [(Ours, "a"), (HostLocal, "b"), (Ours, "c"), (HostLocal, "d")] {
        store.add(plugin, container, &conf);
    }
    let second = call("ADD", "a", &conf).ifname("net1");
    result_of(&store.run(Ours, &second));
    store.write("10.1.0.99", "old");
    store.write("10.1.0.98", "older");
    let valid = [("a", "eth0"), ("b", "eth0"), ("c", "net1"), ("old", "eth0")];
    assert_ok(&gc(&store, &conf, &valid));
    let owners: BTreeSet<String> = store.leases().into_values().collect();
    let kept = ["a\r\neth0", "b\r\neth0", "old"].map(str::to_owned);
    assert_eq!(owners, BTreeSet::from(kept));
    assert_eq!(store.leases().len(), 5);
    assert_ok(&gc(&store, &conf, &[]));
    assert!(store.leases().is_empty());
}

#[test]
fn gc_recovers_a_node_that_restarted_with_the_same_boot_id() {
    let store = StoreNode::new();
    let conf = store.subnets(&["10.1.0.0/29"]);
    for number in 0..5 {
        store.add(Ours, &format!("c{number}"), &conf);
    }
    store.assert_error("ADD", "new", &conf, 110);
    assert_ok(&gc(&store, &conf, &[("c3", "eth0")]));
    for number in 0..4 {
        store.add(Ours, &format!("new{number}"), &conf);
    }
    assert_eq!(store.leases_of("c3").len(), 1);
}

#[test]
fn gc_and_del_without_a_store_create_none() {
    let store = StoreNode::new();
    let conf = store.subnets(&["10.1.0.0/24"]);
    assert_ok(&gc(&store, &conf, &[]));
    store.del(Ours, "a", &conf);
    assert!(store.files().is_empty());
}

#[rstest]
#[case::no_list(json!("all"))]
#[case::no_attachments(json!([{"ifname": "eth0"}]))]
fn gc_with_an_invalid_list_releases_nothing(#[case] list: Value) {
    let store = StoreNode::new();
    let conf = store.subnets(&["10.1.0.0/24"]);
    store.add(Ours, "a", &conf);
    let wrong = merged(&conf, &json!({"cni.dev/valid-attachments": list}));
    assert_error(&plain(&store, "GC", &wrong), 7);
    assert_eq!(store.leases().len(), 1);
}

#[test]
fn status_of_a_full_store_succeeds() {
    let store = StoreNode::new();
    let conf = store.subnets(&["10.1.0.0/30"]);
    assert_ok(&plain(&store, "STATUS", &conf));
    store.add(Ours, "a", &conf);
    let outcome = plain(&store, "STATUS", &conf);
    assert_ok(&outcome);
    assert_eq!(outcome.stdout, "");
}

#[test]
fn a_strict_status_fails_when_a_range_set_is_full() {
    let store = StoreNode::new();
    let conf = store.conf(&json!({
        "ranges": [[{"subnet": "10.1.0.0/24"}], [{"subnet": "fd00::/126"}]],
        "status_strict": true,
    }));
    for container in ["a", "b"] {
        assert_ok(&plain(&store, "STATUS", &conf));
        store.add(Ours, container, &conf);
    }
    let message = assert_error(&plain(&store, "STATUS", &conf), 50);
    for word in ["fd00::/126", "2 of 2"] {
        assert!(message.contains(word), "{message}");
    }
    store.del(HostLocal, "a", &conf);
    assert_ok(&plain(&store, "STATUS", &conf));
}

#[rstest]
#[case::a_wrong_range(json!({"subnet": "10.1.0.0/31"}))]
#[case::no_range(json!({}))]
#[case::a_wrong_strategy(json!({"subnet": "10.1.0.0/24", "allocation_strategy": "best"}))]
fn status_refuses_an_invalid_configuration(#[case] ipam: Value) {
    let store = StoreNode::new();
    assert_error(&plain(&store, "STATUS", &store.conf(&ipam)), 7);
}

#[rstest]
#[case::all_addresses(&["10.1.0.2/24", "fd00::2/64"], true)]
#[case::one_address(&["10.1.0.2/24"], true)]
#[case::and_another_plugins_address(&["10.1.0.2/24", "192.0.2.1/24"], true)]
#[case::another_address(&["10.1.0.3/24"], false)]
#[case::one_of_two(&["10.1.0.2/24", "fd00::3/64"], false)]
fn check_compares_the_lease_with_prev_result(#[case] ips: &[&str], #[case] is_right: bool) {
    let store = StoreNode::new();
    let conf = store.subnets(&["10.1.0.0/24", "fd00::/64"]);
    for container in ["a", "b"] {
        store.add(Ours, container, &conf);
    }
    let ips: Vec<_> = ips.iter().map(|ip| json!({"address": ip})).collect();
    let previous = json!({"prevResult": {"cniVersion": "1.1.0", "ips": ips}});
    let outcome = store.call(Ours, "CHECK", "a", &merged(&conf, &previous));
    if is_right {
        assert_ok(&outcome);
        assert_eq!(outcome.stdout, "");
    } else {
        let message = assert_error(&outcome, 112);
        assert!(message.contains("container a interface eth0"), "{message}");
        assert!(
            message.contains(":3") || message.contains(".3"),
            "{message}"
        );
    }
}

#[test]
fn check_fails_when_an_address_file_is_missing() {
    let store = StoreNode::new();
    let conf = store.subnets(&["10.1.0.0/24", "fd00::/64"]);
    let result = result_of(&store.call(Ours, "ADD", "a", &conf));
    let with_prev_result = merged(&conf, &json!({"prevResult": result}));
    assert_ok(&store.call(Ours, "CHECK", "a", &with_prev_result));
    std::fs::remove_file(store.file("fd00::2")).unwrap();
    let message = store.assert_error("CHECK", "a", &with_prev_result, 112);
    assert!(message.contains("fd00::2"), "{message}");
}

#[test]
fn version_needs_no_configuration() {
    let store = StoreNode::new();
    let conf = json!({"cniVersion": "1.0.0"});
    let answer = result_of(&plain(&store, "VERSION", &conf));
    assert_eq!(answer["cniVersion"], "1.0.0");
    let supported = answer["supportedVersions"].as_array().unwrap();
    for version in [
        "0.1.0", "0.2.0", "0.3.0", "0.3.1", "0.4.0", "1.0.0", "1.1.0",
    ] {
        assert!(supported.contains(&json!(version)), "{answer}");
    }
}

#[test]
fn del_of_an_unknown_container_succeeds() {
    let store = StoreNode::new();
    let conf = store.subnets(&["10.1.0.0/24"]);
    store.add(Ours, "a", &conf);
    let before = store.files();
    for _ in 0..3 {
        let outcome = store.call(Ours, "DEL", "b", &conf);
        assert_ok(&outcome);
        assert_eq!(outcome.stdout, "");
    }
    assert_eq!(store.files(), before);
    // Without a netns, as after a reboot.
    let del = Call::new("DEL").container_id("a").ifname("eth0");
    assert_ok(&store.run(Ours, &del.path("/nowhere").conf(&conf)));
    assert!(store.leases().is_empty());
}

#[test]
fn another_ipam_type_is_refused_but_its_leases_can_be_released() {
    let store = StoreNode::new();
    let conf = store.subnets(&["10.1.0.0/24"]);
    store.add(Ours, "a", &conf);
    let mut other = conf.clone();
    other["ipam"]["type"] = "host-local".into();
    for verb in ["ADD", "CHECK", "STATUS"] {
        let message = store.assert_error(verb, "b", &other, 7);
        for word in ["ipam.type", "headcni-ipam", "host-local"] {
            assert!(message.contains(word), "{verb}: {message}");
        }
    }
    assert_eq!(store.leases().len(), 1);
    store.del(Ours, "a", &other);
    assert!(store.leases().is_empty());
}
