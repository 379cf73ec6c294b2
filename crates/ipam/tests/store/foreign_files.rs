//! What somebody else has left in the store: healed or left alone, never leased again.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::os::unix::fs::symlink;

use rstest::rstest;
use serde_json::{Value, json};

use crate::store_node::Plugin::Ours;
use crate::store_node::{StoreNode, call, assert_ok, merged, assert_error};

#[rstest]
#[case::empty("")]
#[case::blank(" \r\n\n")]
fn a_torn_file_is_reclaimed(#[case] text: &str) {
    let store = StoreNode::new();
    let conf = store.subnets(&["10.1.0.0/29"]);
    store.write("10.1.0.4", text);
    // All five, and the torn one among them.
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
fn a_torn_file_that_comes_later_is_given_on_request() {
    let store = StoreNode::new();
    let conf = store.subnets(&["10.1.0.0/29"]);
    store.add(Ours, "a", &conf);
    store.write("10.1.0.6", "");
    assert_ok(&store.run(Ours, &call("ADD", "b", &conf).args("IP=10.1.0.6")));
    assert_eq!(store.leases_of("b"), BTreeSet::from(["10.1.0.6".into()]));
}

/// Things with the name of an address that can't be read as a lease.
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
        other => panic!("{other}?"),
    }
}

#[rstest]
fn what_cannot_be_read_as_a_lease_keeps_its_address(
    #[values("binary", "lines", "long", "directory", "link to a lease")] kind: &str,
    #[values("10.1.0.0/29", "10.0.0.0/8")] subnet: &str,
) {
    assert_kept(kind, subnet);
}

#[rstest]
fn a_link_to_nowhere_keeps_its_address(#[values("10.1.0.0/29", "10.0.0.0/8")] subnet: &str) {
    assert_kept("link to nowhere", subnet);
}

fn assert_kept(kind: &str, subnet: &str) {
    let store = StoreNode::new();
    let conf = three_of(&store, subnet, "10.1.0.4");
    leave(&store, kind, "10.1.0.3");
    assert_eq!(store.add(Ours, "a", &conf), ["10.1.0.2"]);
    assert_eq!(store.add(Ours, "b", &conf), ["10.1.0.4"]);
    let outcome = store.call(Ours, "ADD", "c", &conf);
    assert!(!outcome.status.success(), "{outcome:?}");
    let asking = call("ADD", "c", &conf).args("IP=10.1.0.3");
    let outcome = store.run(Ours, &asking);
    assert!(!outcome.status.success(), "{outcome:?}");
    assert!(outcome.err_msg().contains("10.1.0.3"), "{outcome:?}");
    assert!(fs::symlink_metadata(store.file("10.1.0.3")).is_ok());
    store.del(Ours, "a", &conf);
    assert_eq!(store.add(Ours, "d", &conf), ["10.1.0.2"]);
}

/// A range from `10.1.0.2` on, in a subnet that has a map or in one that is too large for it.
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
fn gc_is_not_stopped_by_what_cannot_be_read_as_a_lease(#[case] kind: &str) {
    let store = StoreNode::new();
    let conf = store.subnets(&["10.1.0.0/29"]);
    leave(&store, kind, "10.1.0.3");
    store.add(Ours, "a", &conf);
    let gc = merged(&conf, &json!({"cni.dev/valid-attachments": []}));
    assert_ok(&store.call(Ours, "GC", "", &gc));
    assert!(store.leases_of("a").is_empty());
}

#[test]
fn other_files_are_left_alone() {
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
fn a_file_that_names_another_owner_is_that_owners() {
    let store = StoreNode::new();
    let conf = store.subnets(&["10.1.0.0/29", "fd00::/125"]);
    store.add(Ours, "a", &conf);
    store.write("10.1.0.2", "z\r\neth0");
    store.del(Ours, "a", &conf);
    assert_eq!(store.leases_of("z"), BTreeSet::from(["10.1.0.2".into()]));
    let asking = call("ADD", "b", &conf).args("IP=10.1.0.2");
    let message = assert_error(&store.run(Ours, &asking), 111);
    assert!(message.contains("container z"), "{message}");
}

#[test]
fn a_file_that_names_another_owner_is_collected_if_that_one_is_gone() {
    let store = StoreNode::new();
    let conf = store.subnets(&["10.1.0.0/29"]);
    store.add(Ours, "a", &conf);
    store.write("10.1.0.2", "z\r\neth0");
    let valid = json!([{"containerID": "a", "ifname": "eth0"}]);
    let gc = merged(&conf, &json!({"cni.dev/valid-attachments": valid}));
    assert_ok(&store.call(Ours, "GC", "", &gc));
    assert!(store.leases().is_empty(), "{:?}", store.leases());
}

/// A lease that appears without a trace in the directory's time: the stamp claims that all is
/// known.
#[rstest]
fn a_lease_behind_the_stamp_is_not_leased_again(
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
