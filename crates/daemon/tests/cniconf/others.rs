//! Configurations of others: set aside, put back, never lost.

use node_cniconf::remove;
use serde_json::{Value, json};

use crate::scene::{CONF_DIR, CONFLIST, KEPT, LEDGER, OTHER, SUBNET_ENV, Scene};

fn shared() -> Value {
    json!({ "cni": { "exclusive": false } })
}

/// A node with configurations of others.
fn crowded() -> Scene {
    let scene = Scene::new();
    for name in ["00-multus.conf", "20-other.conflist", "x.json"] {
        scene
            .node
            .write(format!("{CONF_DIR}/{name}"), OTHER)
            .unwrap();
    }
    scene.shell("mkdir /etc/cni/net.d/multus.d; touch /etc/cni/net.d/multus.d/multus.kubeconfig");
    scene
}

const ASIDE: [&str; 5] = [
    "00-multus.conf.headcni-aside",
    "10-headcni.conflist",
    "20-other.conflist.headcni-aside",
    "multus.d",
    "x.json.headcni-aside",
];
const TOGETHER: [&str; 5] = [
    "00-multus.conf",
    "10-headcni.conflist",
    "20-other.conflist",
    "multus.d",
    "x.json",
];

#[test]
fn ours_is_the_only_one_and_the_ledger_knows_the_others() {
    let scene = crowded();
    let outcome = scene.ensure(&json!({})).unwrap();
    assert_eq!(scene.list(CONF_DIR), ASIDE);
    assert_eq!(outcome.repairs.len(), 6, "{:?}", outcome.repairs);
    assert_eq!(scene.ensure(&json!({})).unwrap().repairs, [""; 0]);
    let ledger: Value = serde_json::from_str(&scene.node.read(LEDGER).unwrap()).unwrap();
    let names = ledger["setAside"].as_array().unwrap().iter();
    let names: Vec<&Value> = names.map(|entry| &entry["name"]).collect();
    assert_eq!(names, ["00-multus.conf", "20-other.conflist", "x.json"]);
    assert_eq!(scene.permissions(LEDGER), "600 0");
}

#[test]
fn a_shared_directory_has_them_all_and_a_warning_if_ours_is_not_the_first() {
    let scene = crowded();
    scene.ensure(&json!({})).unwrap();
    let outcome = scene.ensure(&shared()).unwrap();
    assert_eq!(scene.list(CONF_DIR), TOGETHER);
    assert_eq!(outcome.repairs.len(), 3);
    let warned = outcome
        .warnings
        .iter()
        .any(|warning| warning.contains("00-multus.conf"));
    assert!(warned, "{:?}", outcome.warnings);

    scene.shell("rm /etc/cni/net.d/00-multus.conf");
    let outcome = scene.ensure(&shared()).unwrap();
    assert!(
        !outcome
            .warnings
            .iter()
            .any(|warning| warning.contains("before ours"))
    );
}

#[test]
fn a_plugin_that_is_not_installed_is_a_warning() {
    let scene = Scene::new();
    let warned = |scene: &Scene| scene.ensure(&json!({})).unwrap().warnings.concat();
    assert!(
        warned(&scene).contains("\"headcni\" is not in"),
        "{}",
        warned(&scene)
    );
    scene.node.write("/opt/cni/bin/headcni", "").unwrap();
    assert_eq!(warned(&scene), "");
}

#[test]
fn removal_leaves_the_node_as_it_was() {
    let scene = crowded();
    let dirs = ["/etc/cni", "/run/headcni", "/var/lib/headcni"];
    scene.shell("mkdir -p /run/headcni /var/lib/headcni");
    let before = scene.node.snapshot(&dirs).unwrap();
    scene.ensure(&json!({})).unwrap();
    let done = remove(&scene.dirs(&json!({}))).unwrap();
    assert!(
        done.iter()
            .any(|words| words.contains("20-other.conflist was put back"))
    );
    scene.node.assert_unchanged(&before);
    assert_eq!(remove(&scene.dirs(&json!({}))).unwrap(), [""; 0]);
    scene.node.assert_unchanged(&before);
}

#[test]
fn removal_from_a_node_that_never_had_anything_succeeds() {
    let scene = Scene::new();
    let dirs = scene.dirs(&json!({}));
    assert_eq!(remove(&dirs).unwrap(), [""; 0]);
    assert!(!scene.node.has("/etc/cni"));
    scene.shell("mkdir /etc/cni; touch /etc/cni/net.d");
    assert_eq!(remove(&dirs).unwrap(), [""; 0]);
}

#[test]
fn a_ledger_that_is_lost_or_damaged_loses_nothing() {
    for spoil in ["rm", "truncate -s 20", "truncate -s 0"] {
        let scene = crowded();
        scene.ensure(&json!({})).unwrap();
        scene.shell(&format!("{spoil} {LEDGER}"));
        remove(&scene.dirs(&json!({}))).unwrap();
        let left: Vec<&str> = TOGETHER
            .into_iter()
            .filter(|name| !name.contains("headcni"))
            .collect();
        assert_eq!(scene.list(CONF_DIR), left);
        for path in [SUBNET_ENV, KEPT, LEDGER] {
            assert!(!scene.node.has(path), "{path}");
        }
    }
}

#[test]
fn what_can_not_be_removed_keeps_nothing_else_from_going() {
    let scene = crowded();
    scene.ensure(&json!({})).unwrap();
    scene.shell(&format!("rm {CONFLIST}; mkdir {CONFLIST}"));
    let error = remove(&scene.dirs(&json!({}))).unwrap_err().explained();
    assert!(error.contains("remove the directory"), "{error}");
    assert!(!scene.node.has(SUBNET_ENV) && !scene.node.has(KEPT));
    assert!(scene.node.has(format!("{CONF_DIR}/20-other.conflist")));
    scene.shell(&format!("rmdir {CONFLIST}"));
    remove(&scene.dirs(&json!({}))).unwrap();
    assert!(!scene.node.has(LEDGER));
}

#[test]
fn another_directory_is_a_removal_from_the_first() {
    let scene = crowded();
    scene.ensure(&json!({})).unwrap();
    let moved = json!({ "cni": { "confDir": "/run/srv-cni" } });
    scene
        .node
        .write("/run/srv-cni/30-there.conf", OTHER)
        .unwrap();
    scene.ensure(&moved).unwrap();
    let left: Vec<&str> = TOGETHER
        .into_iter()
        .filter(|name| !name.contains("headcni"))
        .collect();
    assert_eq!(scene.list(CONF_DIR), left);
    let there = ["10-headcni.conflist", "30-there.conf.headcni-aside"];
    assert_eq!(scene.list("/run/srv-cni"), there);
    remove(&scene.dirs(&json!({}))).unwrap();
    assert_eq!(scene.list("/run/srv-cni"), ["30-there.conf"]);
}

#[test]
fn another_path_to_the_same_directory_is_no_other_directory() {
    let scene = crowded();
    scene.ensure(&json!({})).unwrap();
    scene.shell("ln -s cni /etc/alias");
    let keys = json!({ "cni": { "confDir": "/etc/alias/net.d" } });
    assert_eq!(scene.ensure(&keys).unwrap().repairs, [""; 0]);
    assert_eq!(scene.list(CONF_DIR), ASIDE);
    remove(&scene.dirs(&keys)).unwrap();
    assert!(scene.node.has(format!("{CONF_DIR}/x.json")));
}

#[test]
fn another_file_of_our_name_is_replaced() {
    let scene = Scene::new();
    scene.node.write(CONFLIST, OTHER).unwrap();
    let outcome = scene.ensure(&json!({})).unwrap();
    assert!(outcome.repairs.concat().contains("had other contents"));
    scene.assert_in_place(&scene.desired(&json!({})));
}
