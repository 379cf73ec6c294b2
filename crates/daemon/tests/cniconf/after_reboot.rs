//! A start with an empty `/run`: the saved subnet.env is used until there is a new one.

use std::fs::File;
use std::time::{Duration, SystemTime};

use node_cniconf::{Restored, restore_after_boot};
use serde_json::json;

use crate::fixture::{CONF_DIR, CONFLIST, CniConfNode, KEPT, SUBNET_ENV};

#[test]
fn subnet_env_is_restored_at_start() {
    let fixture = CniConfNode::ready();
    let before = fixture.node.read(SUBNET_ENV).unwrap();
    fixture.shell("rm -r /run/headcni");
    let dirs = fixture.dirs(&json!({}));
    let Restored::Subnets(subnets) = restore_after_boot(&dirs).unwrap() else {
        panic!("nothing was restored");
    };
    assert_eq!(subnets.render(), before);
    assert_eq!(fixture.node.read(SUBNET_ENV).unwrap(), before);
    assert_eq!(fixture.permissions(SUBNET_ENV), "644 0");
    assert_eq!(restore_after_boot(&dirs).unwrap(), Restored::Nothing);
}

#[test]
fn a_new_node_has_no_subnet_env() {
    let fixture = CniConfNode::new();
    let restored = restore_after_boot(&fixture.dirs(&json!({}))).unwrap();
    assert_eq!(restored, Restored::Nothing);
    assert!(!fixture.node.has("/run/headcni"));
    assert!(!fixture.node.has("/etc/cni"));
}

#[test]
fn subnet_env_is_restored_with_other_directories_missing() {
    let fixture = CniConfNode::ready();
    fixture.shell("rm -r /run/headcni /etc/cni; touch /etc/cni");
    let restored = restore_after_boot(&fixture.dirs(&json!({}))).unwrap();
    assert!(matches!(restored, Restored::Subnets(_)));
    assert!(fixture.node.has(SUBNET_ENV));
}

#[test]
fn a_damaged_copy_is_ignored() {
    let fixture = CniConfNode::ready();
    fixture.shell("rm -r /run/headcni");
    fixture
        .node
        .write(KEPT, "HEADCNI_NETWORK=10.244.0.0/16\nHEADCNI_SUB")
        .unwrap();
    let error = restore_after_boot(&fixture.dirs(&json!({}))).unwrap_err();
    assert!(error.explained().contains(KEPT), "{}", error.explained());
    assert!(!fixture.node.has(SUBNET_ENV));
    fixture.ensure(&json!({})).unwrap();
    fixture.assert_in_place(&fixture.desired(&json!({})));
}

#[test]
fn temporary_files_of_a_killed_daemon_are_removed() {
    let fixture = CniConfNode::ready();
    let old = format!("{CONF_DIR}/.headcni-a1b2c3.new");
    let new = format!("{CONF_DIR}/.headcni-d4e5f6.new");
    for path in [&old, &new] {
        fixture.node.write(path, "half").unwrap();
    }
    let file = File::options()
        .write(true)
        .open(fixture.node.path(&old))
        .unwrap();
    file.set_modified(SystemTime::now() - Duration::from_hours(1))
        .unwrap();
    restore_after_boot(&fixture.dirs(&json!({}))).unwrap();
    assert!(!fixture.node.has(&old));
    assert!(fixture.node.has(&new), "it may be in use");
    assert!(fixture.node.has(CONFLIST));
}
