//! Configurations of other CNIs are renamed aside and restored.

use node_cniconf::remove;
use serde_json::{Value, json};

use crate::fixture::{CONF_DIR, CONFLIST, CniConfNode, KEPT, LEDGER, OTHER, SUBNET_ENV};

fn shared() -> Value {
    json!({ "cni": { "exclusive": false } })
}

fn with_other_conflists() -> CniConfNode {
    let fixture = CniConfNode::new();
    for name in ["00-multus.conf", "20-other.conflist", "x.json"] {
        fixture
            .node
            .write(format!("{CONF_DIR}/{name}"), OTHER)
            .unwrap();
    }
    fixture.shell("mkdir /etc/cni/net.d/multus.d; touch /etc/cni/net.d/multus.d/multus.kubeconfig");
    fixture
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
fn other_conflists_are_renamed_aside_and_recorded() {
    let fixture = with_other_conflists();
    let outcome = fixture.ensure(&json!({})).unwrap();
    assert_eq!(fixture.list(CONF_DIR), ASIDE);
    assert_eq!(outcome.repairs.len(), 6, "{:?}", outcome.repairs);
    assert_eq!(fixture.ensure(&json!({})).unwrap().repairs, [""; 0]);
    let ledger: Value = serde_json::from_str(&fixture.node.read(LEDGER).unwrap()).unwrap();
    let names = ledger["setAside"].as_array().unwrap().iter();
    let names: Vec<&Value> = names.map(|entry| &entry["name"]).collect();
    assert_eq!(names, ["00-multus.conf", "20-other.conflist", "x.json"]);
    assert_eq!(fixture.permissions(LEDGER), "600 0");
}

#[test]
fn without_exclusive_others_stay_with_a_warning_if_ours_is_not_first() {
    let fixture = with_other_conflists();
    fixture.ensure(&json!({})).unwrap();
    let outcome = fixture.ensure(&shared()).unwrap();
    assert_eq!(fixture.list(CONF_DIR), TOGETHER);
    assert_eq!(outcome.repairs.len(), 3);
    let warned = outcome
        .warnings
        .iter()
        .any(|warning| warning.contains("00-multus.conf"));
    assert!(warned, "{:?}", outcome.warnings);

    fixture.shell("rm /etc/cni/net.d/00-multus.conf");
    let outcome = fixture.ensure(&shared()).unwrap();
    assert!(
        !outcome
            .warnings
            .iter()
            .any(|warning| warning.contains("before ours"))
    );
}

#[test]
fn a_missing_plugin_is_a_warning() {
    let fixture = CniConfNode::new();
    let warned = |fixture: &CniConfNode| fixture.ensure(&json!({})).unwrap().warnings.concat();
    assert!(
        warned(&fixture).contains("\"headcni\" is not in"),
        "{}",
        warned(&fixture)
    );
    fixture.node.write("/opt/cni/bin/headcni", "").unwrap();
    assert_eq!(warned(&fixture), "");
}

#[test]
fn removal_restores_the_node() {
    let fixture = with_other_conflists();
    let dirs = ["/etc/cni", "/run/headcni", "/var/lib/headcni"];
    fixture.shell("mkdir -p /run/headcni /var/lib/headcni");
    let before = fixture.node.snapshot(&dirs).unwrap();
    fixture.ensure(&json!({})).unwrap();
    let done = remove(&fixture.dirs(&json!({}))).unwrap();
    assert!(
        done.iter()
            .any(|words| words.contains("20-other.conflist was put back"))
    );
    fixture.node.assert_unchanged(&before);
    assert_eq!(remove(&fixture.dirs(&json!({}))).unwrap(), [""; 0]);
    fixture.node.assert_unchanged(&before);
}

#[test]
fn removal_from_a_new_node_succeeds() {
    let fixture = CniConfNode::new();
    let dirs = fixture.dirs(&json!({}));
    assert_eq!(remove(&dirs).unwrap(), [""; 0]);
    assert!(!fixture.node.has("/etc/cni"));
    fixture.shell("mkdir /etc/cni; touch /etc/cni/net.d");
    assert_eq!(remove(&dirs).unwrap(), [""; 0]);
}

#[test]
fn other_conflists_are_restored_without_the_record() {
    for spoil in ["rm", "truncate -s 20", "truncate -s 0"] {
        let fixture = with_other_conflists();
        fixture.ensure(&json!({})).unwrap();
        fixture.shell(&format!("{spoil} {LEDGER}"));
        remove(&fixture.dirs(&json!({}))).unwrap();
        let left: Vec<&str> = TOGETHER
            .into_iter()
            .filter(|name| !name.contains("headcni"))
            .collect();
        assert_eq!(fixture.list(CONF_DIR), left);
        for path in [SUBNET_ENV, KEPT, LEDGER] {
            assert!(!fixture.node.has(path), "{path}");
        }
    }
}

#[test]
fn a_failed_removal_does_not_stop_the_others() {
    let fixture = with_other_conflists();
    fixture.ensure(&json!({})).unwrap();
    fixture.shell(&format!("rm {CONFLIST}; mkdir {CONFLIST}"));
    let error = remove(&fixture.dirs(&json!({}))).unwrap_err().explained();
    assert!(error.contains("remove the directory"), "{error}");
    assert!(!fixture.node.has(SUBNET_ENV) && !fixture.node.has(KEPT));
    assert!(fixture.node.has(format!("{CONF_DIR}/20-other.conflist")));
    fixture.shell(&format!("rmdir {CONFLIST}"));
    remove(&fixture.dirs(&json!({}))).unwrap();
    assert!(!fixture.node.has(LEDGER));
}

#[test]
fn a_changed_conf_dir_is_cleaned() {
    let fixture = with_other_conflists();
    fixture.ensure(&json!({})).unwrap();
    let moved = json!({ "cni": { "confDir": "/run/srv-cni" } });
    fixture
        .node
        .write("/run/srv-cni/30-there.conf", OTHER)
        .unwrap();
    fixture.ensure(&moved).unwrap();
    let left: Vec<&str> = TOGETHER
        .into_iter()
        .filter(|name| !name.contains("headcni"))
        .collect();
    assert_eq!(fixture.list(CONF_DIR), left);
    let there = ["10-headcni.conflist", "30-there.conf.headcni-aside"];
    assert_eq!(fixture.list("/run/srv-cni"), there);
    remove(&fixture.dirs(&json!({}))).unwrap();
    assert_eq!(fixture.list("/run/srv-cni"), ["30-there.conf"]);
}

#[test]
fn another_path_to_the_same_conf_dir_is_not_a_change() {
    let fixture = with_other_conflists();
    fixture.ensure(&json!({})).unwrap();
    fixture.shell("ln -s cni /etc/alias");
    let keys = json!({ "cni": { "confDir": "/etc/alias/net.d" } });
    assert_eq!(fixture.ensure(&keys).unwrap().repairs, [""; 0]);
    assert_eq!(fixture.list(CONF_DIR), ASIDE);
    remove(&fixture.dirs(&keys)).unwrap();
    assert!(fixture.node.has(format!("{CONF_DIR}/x.json")));
}

#[test]
fn a_foreign_file_with_our_name_is_replaced() {
    let fixture = CniConfNode::new();
    fixture.node.write(CONFLIST, OTHER).unwrap();
    let outcome = fixture.ensure(&json!({})).unwrap();
    assert!(outcome.repairs.concat().contains("had other contents"));
    fixture.assert_in_place(&fixture.desired(&json!({})));
}
