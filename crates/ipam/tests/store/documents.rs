//! The three documented configurations work exactly as they are written.

use lab::{Netns, tools};
use rstest::rstest;
use serde_json::{Value, json};

use crate::store_node::Plugin::Ours;
use crate::store_node::{StoreNode, call, result_of};

const SUBNET: &str = include_str!("documents/subnet.json");
const RANGES: &str = include_str!("documents/ranges.json");
const CONFLIST: &str = include_str!("documents/headcni.conflist");

/// `dataDir` of all three.
const DATA_DIR: &str = "/var/lib/cni/networks/headcni";

#[rstest]
#[case::subnet(SUBNET)]
#[case::ranges(RANGES)]
fn headcni_ipam_leases_by_the_document(#[case] document: &str) {
    let store = StoreNode::new();
    let conf: Value = serde_json::from_str(document).unwrap();
    let add = |container: &str| {
        let call = call("ADD", container, &Value::Null).stdin(document);
        result_of(&store.run(Ours, &call))
    };
    assert_eq!(
        add("a"),
        json!({
            "cniVersion": "1.0.0",
            "ips": [{ "address": "10.244.0.2/16", "gateway": "10.244.0.1" }],
        })
    );
    // Sequential: the address of `a` is not reused yet.
    store.del(Ours, "a", &conf);
    assert_eq!(add("b")["ips"][0]["address"], "10.244.0.3/16");
    let lease = store.node.read(format!("{DATA_DIR}/10.244.0.3"));
    assert_eq!(lease.unwrap(), "b\r\neth0");
}

#[test]
fn headcni_attaches_a_pod_by_the_conflist() {
    let store = StoreNode::new();
    let node = &store.node;
    let pod = node.pod("a").unwrap();
    node.write("/etc/cni/net.d/10-headcni.conflist", CONFLIST)
        .unwrap();
    let cnitool = |verb: &str| {
        let tool = node.cnitool("/etc/cni/net.d", verb, "headcni", pod.netns_path());
        tool.path(tools::headcni_bin_dir().display().to_string())
            .run()
            .unwrap()
    };
    let result = cnitool("add").ok_json().unwrap();
    assert_eq!(result["ips"][0]["address"], "10.244.0.2/16");
    assert_eq!(result["ips"][0]["gateway"], "10.244.0.1");
    assert_eq!(pod.link("eth0").unwrap().unwrap()["mtu"], 1500);
    assert!(node.has(format!("{DATA_DIR}/10.244.0.2")));
    pod.ping("10.244.0.1").unwrap();
    cnitool("check").ok().unwrap();
    cnitool("del").ok().unwrap();
    assert!(!node.has(format!("{DATA_DIR}/10.244.0.2")));
}
