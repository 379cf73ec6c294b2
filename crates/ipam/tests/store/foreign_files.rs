//! Files of other programs in the store are reclaimed or kept, and never leased again.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::os::unix::fs::symlink;

use rstest::rstest;
use serde_json::{Value, json};

use crate::store_node::Plugin::Ours;
use crate::store_node::{StoreNode, assert_error, assert_ok, call, merged};

#[rstest]
#[case::empty("")]
#[case::blank(" \r\n\n")]
fn a_torn_file_is_reclaimed(#[case] text: &str) {
    let store = StoreNode::new();
    let conf = store.subnets(&["10.1.0.0/29"]);
    store.write("10.1.0.4", text);
    // All five addresses, including the torn one.
    for number in 0..5 {
        store.add(Ours, &format!("c{number}"), &conf);
    }
    assert_eq!(store.leases_of("c2"), BTreeSet::from(["10.1.0.4".into()]));
    for number in 0..5 {
        store.del(Ours, &format!("c{number}"), &conf);
    }
    assert!(store.leases().is_empty());
}

#[test]
fn a_torn_file_is_reclaimed_for_a_requested_address() {
    let store = StoreNode::new();
    let conf = store.subnets(&["10.1.0.0/29"]);
    store.add(Ours, "a", &conf);
    store.write("10.1.0.6", "");
    assert_ok(&store.run(Ours, &call("ADD", "b", &conf).args("IP=10.1.0.6")));
    assert_eq!(store.leases_of("b"), BTreeSet::from(["10.1.0.6".into()]));
}

/// Creates something with the name of an address that is not a lease.
fn leave(store: &StoreNode, kind: &str, name: &str) {
    let path = store.file(name);
    fs::create_dir_all(store.file("")).unwrap();
    match kind {
        "binary" => store.write(name, [0xff, 0xfe, 0, 1, 2]),
        "lines" => store.write(name, "container\nknows\nwhat"),
        "long" => store.write(name, "x".repeat(100_000)),
        "directory" => fs::create_dir(path).unwrap(),
        "link to nowhere" => symlink("nowhere", path).unwrap(),
        "link to a lease" => {
            store.write("10.1.0.6", "z\r\neth0");
            symlink("10.1.0.6", path).unwrap();
        }
        other => panic!("unknown kind {other}"),
    }
}

#[rstest]
fn a_foreign_file_keeps_its_address(
    #[values(
        "binary",
        "lines",
        "long",
        "directory",
        "link to a lease",
        "link to nowhere"
    )]
    kind: &str,
    #[values("10.1.0.0/29", "10.0.0.0/8")] subnet: &str,
) {
    let store = StoreNode::new();
    let conf = three_of(&store, subnet, "10.1.0.4");
    leave(&store, kind, "10.1.0.3");
    assert_eq!(store.add(Ours, "a", &conf), ["10.1.0.2"]);
    assert_eq!(store.add(Ours, "b", &conf), ["10.1.0.4"]);
    let outcome = store.call(Ours, "ADD", "c", &conf);
    assert!(!outcome.status.success(), "{outcome:?}");
    let request = call("ADD", "c", &conf).args("IP=10.1.0.3");
    let outcome = store.run(Ours, &request);
    assert!(!outcome.status.success(), "{outcome:?}");
    assert!(outcome.err_msg().contains("10.1.0.3"), "{outcome:?}");
    assert!(fs::symlink_metadata(store.file("10.1.0.3")).is_ok());
    store.del(Ours, "a", &conf);
    assert_eq!(store.add(Ours, "d", &conf), ["10.1.0.2"]);
}

/// A range from `10.1.0.2` on, in a subnet with a bitmap or in one that is too large for it.
fn three_of(store: &StoreNode, subnet: &str, last: &str) -> Value {
    let gateway = match subnet {
        "10.0.0.0/8" => "10.0.0.1",
        _ => "10.1.0.1",
    };
    store.conf(&json!({
        "subnet": subnet, "gateway": gateway, "rangeStart": "10.1.0.2", "rangeEnd": last,
    }))
}

#[rstest]
#[case::bytes("binary")]
#[case::a_link("link to nowhere")]
#[case::a_directory("directory")]
fn gc_continues_past_foreign_files(#[case] kind: &str) {
    let store = StoreNode::new();
    let conf = store.subnets(&["10.1.0.0/29"]);
    leave(&store, kind, "10.1.0.3");
    store.add(Ours, "a", &conf);
    let gc = merged(&conf, &json!({"cni.dev/valid-attachments": []}));
    assert_ok(&store.call(Ours, "GC", "", &gc));
    assert!(store.leases_of("a").is_empty());
}

#[test]
fn files_that_are_not_addresses_are_kept() {
    let store = StoreNode::new();
    let conf = store.subnets(&["10.1.0.0/29"]);
    let names = ["README", "10.1.0.2.bak", "010.1.0.2", ".hidden", "10.1.0"];
    for name in names {
        store.write(name, name);
    }
    store.add(Ours, "a", &conf);
    let gc = merged(&conf, &json!({"cni.dev/valid-attachments": []}));
    assert_ok(&store.call(Ours, "GC", "", &gc));
    store.del(Ours, "a", &conf);
    for name in names {
        assert_eq!(fs::read_to_string(store.file(name)).unwrap(), name);
    }
}

#[test]
fn an_edited_lease_belongs_to_the_owner_it_names() {
    let store = StoreNode::new();
    let conf = store.subnets(&["10.1.0.0/29", "fd00::/125"]);
    store.add(Ours, "a", &conf);
    store.write("10.1.0.2", "z\r\neth0");
    store.del(Ours, "a", &conf);
    assert_eq!(store.leases_of("z"), BTreeSet::from(["10.1.0.2".into()]));
    let request = call("ADD", "b", &conf).args("IP=10.1.0.2");
    let message = assert_error(&store.run(Ours, &request), 111);
    assert!(message.contains("container z"), "{message}");
}

#[test]
fn an_edited_lease_is_garbage_collected() {
    let store = StoreNode::new();
    let conf = store.subnets(&["10.1.0.0/29"]);
    store.add(Ours, "a", &conf);
    store.write("10.1.0.2", "z\r\neth0");
    let valid = json!([{"containerID": "a", "ifname": "eth0"}]);
    let gc = merged(&conf, &json!({"cni.dev/valid-attachments": valid}));
    assert_ok(&store.call(Ours, "GC", "", &gc));
    assert!(store.leases().is_empty(), "{:?}", store.leases());
}

/// A lease appears without a change of the directory's mtime, so the stamp is wrong.
#[rstest]
fn a_lease_that_the_stamp_misses_is_not_leased_again(
    #[values("sequential", "random", "dense-pack")] strategy: &str,
    #[values("10.1.0.0/29", "10.0.0.0/8")] subnet: &str,
) {
    let store = StoreNode::new();
    let mut conf = three_of(&store, subnet, "10.1.0.6");
    conf["ipam"]["allocation_strategy"] = strategy.into();
    assert_ok(&store.run(Ours, &call("ADD", "a", &conf).args("IP=10.1.0.2")));
    let dir = File::open(store.file("")).unwrap();
    let time = dir.metadata().unwrap().modified().unwrap();
    for last in 3..6 {
        store.write(&format!("10.1.0.{last}"), format!("h{last}\r\neth0"));
    }
    dir.set_modified(time).unwrap();
    assert_eq!(store.add(Ours, "b", &conf), ["10.1.0.6"]);
    let message = store.assert_error("ADD", "c", &conf, 110);
    assert!(message.contains("5 of 5"), "{message}");
    for last in 3..6 {
        assert_eq!(store.leases_of(&format!("h{last}")).len(), 1);
    }
}
