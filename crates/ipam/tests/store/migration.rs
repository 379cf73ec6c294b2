//! A node moves from host-local to headcni-ipam and back without losing leases.

use std::collections::BTreeMap;
use std::fs;
use std::net::IpAddr;

use rstest::rstest;
use serde_json::{Value, json};

use crate::store_node::Plugin::{HostLocal, Ours};
use crate::store_node::{StoreNode, addresses, assert_ok, call, merged, result_of};

/// Whether the store is full, on which both plugins must agree.
fn is_full(store: &StoreNode, conf: &Value) -> bool {
    let ours = store.call(Ours, "ADD", "one-too-many", conf);
    let theirs = store.call(HostLocal, "ADD", "one-too-many", conf);
    assert_eq!(ours.status.success(), theirs.status.success());
    !ours.status.success()
}

#[rstest]
#[case::a_slash_24(&["10.1.0.0/24"], 253, 1)]
#[case::dual_stack(&["10.1.0.0/27", "fd00::/123"], 29, 2)]
fn a_full_node_migrates_from_host_local_and_back(
    #[case] subnets: &[&str],
    #[case] count: usize,
    #[case] families: usize,
) {
    let store = StoreNode::new();
    let conf = store.subnets(subnets);
    let mut known = BTreeMap::new();
    for number in 0..count {
        // All of the same length.
        let container = format!("c{number:03}");
        let result = result_of(&store.call(HostLocal, "ADD", &container, &conf));
        known.insert(container, result);
    }
    let before = store.leases();
    assert_eq!(before.len(), count * families);

    // headcni-ipam takes over: no lease is lost, and each passes CHECK.
    let message = store.assert_error("ADD", "late", &conf, 110);
    assert!(
        message.contains(&format!("{count} of {count}")),
        "{message}"
    );
    assert_eq!(store.leases(), before);
    for (container, result) in &known {
        let conf = merged(&conf, &json!({"prevResult": result}));
        assert_ok(&store.call(Ours, "CHECK", container, &conf));
    }
    let some: Vec<_> = known.iter().step_by(3).collect();
    for (container, result) in &some {
        store.del(Ours, container, &conf);
        for address in addresses(result) {
            assert!(!store.file(&address).exists(), "{address} of {container}");
        }
    }
    for (container, _) in &some {
        store.add(Ours, &format!("new-{container}"), &conf);
    }
    assert!(is_full(&store, &conf));

    // Both release old and new leases.
    let owners: Vec<String> = known.into_keys().collect();
    for (number, container) in owners.iter().enumerate() {
        let container = match number % 3 {
            0 => format!("new-{container}"),
            _ => container.clone(),
        };
        let by = if number % 9 < 2 { HostLocal } else { Ours };
        store.del(by, &container, &conf);
    }
    assert!(store.leases().is_empty(), "{:?}", store.leases());
}

#[test]
fn two_thousand_host_local_leases_are_adopted() {
    let store = StoreNode::new();
    let conf = store.subnets(&["10.2.0.0/20"]);
    // host-local writes one lease; the test writes the others in the same format.
    assert_eq!(store.add(HostLocal, "c2", &conf), ["10.2.0.2"]);
    let like = fs::read_to_string(store.file("10.2.0.2")).unwrap();
    assert_eq!(like, "c2\r\neth0");
    for number in 3..2002_u32 {
        let address = IpAddr::from((0x0a02_0000 + number).to_be_bytes());
        store.write(
            &address.to_string(),
            like.replace("c2", &format!("c{number}")),
        );
    }
    store.write("last_reserved_ip.0", "10.2.7.209");
    let before = store.leases();
    assert_eq!(before.len(), 2000);

    assert_eq!(store.add(Ours, "new", &conf), ["10.2.7.210"]);
    for (container, address) in [
        ("c2", "10.2.0.2"),
        ("c1000", "10.2.3.232"),
        ("c2001", "10.2.7.209"),
    ] {
        let previous =
            json!({"cniVersion": "1.1.0", "ips": [{"address": format!("{address}/20")}]});
        let known = merged(&conf, &json!({"prevResult": previous}));
        assert_ok(&store.call(Ours, "CHECK", container, &known));
        store.del(Ours, container, &conf);
        assert!(!store.file(address).exists());
    }
    assert_eq!(store.leases().len(), 1998);
    assert!(
        store
            .leases()
            .keys()
            .all(|address| { before.contains_key(address) || address.to_string() == "10.2.7.210" })
    );

    assert_eq!(store.add(HostLocal, "newer", &conf), ["10.2.7.211"]);
    store.del(HostLocal, "new", &conf);
    store.del(HostLocal, "c1001", &conf);
    assert_eq!(store.leases().len(), 1997);
    assert_eq!(store.add(Ours, "newest", &conf), ["10.2.7.212"]);
}

#[test]
fn leases_outside_a_changed_range_are_released() {
    let store = StoreNode::new();
    let old = store.subnets(&["10.1.0.0/24"]);
    store.add(HostLocal, "a", &old);
    store.add(Ours, "b", &old);
    let new = store.subnets(&["10.9.0.0/24"]);
    assert_eq!(store.add(Ours, "c", &new), ["10.9.0.2"]);
    // DEL releases what the owner has, whatever the ranges are now.
    for container in ["a", "b", "c"] {
        store.del(Ours, container, &new);
    }
    assert!(store.leases().is_empty());
}

#[test]
fn a_larger_range_avoids_existing_leases() {
    let store = StoreNode::new();
    let small = store.subnets(&["10.1.0.0/28"]);
    for number in 0..13 {
        store.add(
            if number % 2 == 0 { Ours } else { HostLocal },
            &format!("c{number}"),
            &small,
        );
    }
    let large = store.conf(&json!({"subnet": "10.1.0.0/24", "allocation_strategy": "dense-pack"}));
    let add = call("ADD", "next", &large);
    let leased = addresses(&result_of(&store.run(Ours, &add)));
    assert_eq!(
        leased,
        ["10.1.0.15"],
        "the broadcast address of the small one is free here"
    );
    // The bitmap of the small subnet knows the leases of the large one.
    store.del(Ours, "c3", &large);
    assert_eq!(store.add(Ours, "again", &small), ["10.1.0.5"]);
    assert!(is_full(&store, &small));
}

#[test]
fn a_host_local_directory_below_a_data_dir_of_the_same_name_is_adopted() {
    let store = StoreNode::new();
    let named = store.data_dir().join("net");
    let conf = store.conf(&json!({"subnet": "10.1.0.0/24", "dataDir": named}));
    let theirs = store.add(HostLocal, "h", &conf);
    let ours = store.add(Ours, "a", &conf);
    assert_ne!(ours, theirs);
}
