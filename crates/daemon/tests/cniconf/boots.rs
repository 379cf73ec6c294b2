//! A start with an empty `/run`: what was right before the reboot is right until it is known better.

use std::fs::File;
use std::time::{Duration, SystemTime};

use node_cniconf::{Restored, restore_after_boot};
use serde_json::json;

use crate::scene::{CONF_DIR, CONFLIST, KEPT, SUBNET_ENV, Scene};

#[test]
fn the_subnets_are_back_before_anybody_is_asked() {
    let scene = Scene::ready();
    let before = scene.node.read(SUBNET_ENV).unwrap();
    scene.shell("rm -r /run/headcni");
    let dirs = scene.dirs(&json!({}));
    let Restored::Subnets(subnets) = restore_after_boot(&dirs).unwrap() else {
        panic!("nothing was restored");
    };
    assert_eq!(subnets.render(), before);
    assert_eq!(scene.node.read(SUBNET_ENV).unwrap(), before);
    assert_eq!(scene.permissions(SUBNET_ENV), "644 0");
    assert_eq!(restore_after_boot(&dirs).unwrap(), Restored::Nothing);
}

#[test]
fn a_node_that_never_had_any_gets_none() {
    let scene = Scene::new();
    let restored = restore_after_boot(&scene.dirs(&json!({}))).unwrap();
    assert_eq!(restored, Restored::Nothing);
    assert!(!scene.node.has("/run/headcni"));
    assert!(!scene.node.has("/etc/cni"));
}

#[test]
fn the_subnets_are_back_whatever_the_other_directories_are() {
    let scene = Scene::ready();
    scene.shell("rm -r /run/headcni /etc/cni; touch /etc/cni");
    let restored = restore_after_boot(&scene.dirs(&json!({}))).unwrap();
    assert!(matches!(restored, Restored::Subnets(_)));
    assert!(scene.node.has(SUBNET_ENV));
}

#[test]
fn a_damaged_copy_is_not_put_back_and_does_no_harm() {
    let scene = Scene::ready();
    scene.shell("rm -r /run/headcni");
    scene
        .node
        .write(KEPT, "HEADCNI_NETWORK=10.244.0.0/16\nHEADCNI_SUB")
        .unwrap();
    let error = restore_after_boot(&scene.dirs(&json!({}))).unwrap_err();
    assert!(error.explained().contains(KEPT), "{}", error.explained());
    assert!(!scene.node.has(SUBNET_ENV));
    scene.ensure(&json!({})).unwrap();
    scene.assert_in_place(&scene.desired(&json!({})));
}

#[test]
fn what_a_killed_daemon_left_is_removed() {
    let scene = Scene::ready();
    let old = format!("{CONF_DIR}/.headcni-a1b2c3.new");
    let new = format!("{CONF_DIR}/.headcni-d4e5f6.new");
    for path in [&old, &new] {
        scene.node.write(path, "half").unwrap();
    }
    let file = File::options()
        .write(true)
        .open(scene.node.path(&old))
        .unwrap();
    file.set_modified(SystemTime::now() - Duration::from_hours(1))
        .unwrap();
    restore_after_boot(&scene.dirs(&json!({}))).unwrap();
    assert!(!scene.node.has(&old));
    assert!(scene.node.has(&new), "somebody may be writing it");
    assert!(scene.node.has(CONFLIST));
}
