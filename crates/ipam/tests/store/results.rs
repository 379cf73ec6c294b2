//! The result of ADD and the owner's record.

use std::fs;

use rstest::rstest;
use serde_json::{Value, json};

use crate::store_node::Plugin::{HostLocal, Ours};
use crate::store_node::{StoreNode, call, merged, result_of};

fn in_version(conf: &Value, version: &str) -> Value {
    merged(conf, &json!({"cniVersion": version}))
}

#[rstest]
fn the_result_equals_that_of_host_local(
    #[values("0.1.0", "0.2.0", "0.3.0", "0.3.1", "0.4.0", "1.0.0", "1.1.0")] version: &str,
) {
    let answer = |plugin| {
        let store = StoreNode::new();
        let resolv = "/run/resolv.conf";
        let text = "nameserver 10.0.0.53\nsearch a.test b.test\noptions ndots:5\n";
        store.node.write(resolv, text).unwrap();
        let conf = store.conf(&json!({
            "ranges": [[{"subnet": "10.1.0.0/24", "gateway": "10.1.0.254"}],
                [{"subnet": "fd00::/64"}]],
            "routes": [{"dst": "0.0.0.0/0"}, {"dst": "10.8.0.0/16", "gw": "10.1.0.254"},
                {"dst": "::/0"}],
            "resolvConf": resolv,
        }));
        let conf = in_version(&conf, version);
        result_of(&store.call(plugin, "ADD", "a", &conf))
    };
    let (ours, theirs) = (answer(Ours), answer(HostLocal));
    assert_eq!(ours, theirs);
    assert!(ours.get("interfaces").is_none(), "{ours}");
    assert_eq!(ours["dns"]["nameservers"], json!(["10.0.0.53"]));
    let gateway = match version {
        "0.1.0" | "0.2.0" => &ours["ip4"]["gateway"],
        _ => &ours["ips"][0]["gateway"],
    };
    assert_eq!(gateway, "10.1.0.254");
}

#[test]
fn two_addresses_of_a_family_are_refused_before_0_3_0() {
    let store = StoreNode::new();
    let conf = store.subnets(&["10.1.0.0/24", "10.2.0.0/24"]);
    let message = store.assert_error("ADD", "a", &in_version(&conf, "0.2.0"), 7);
    assert!(message.contains("0.2.0"), "{message}");
    assert!(store.leases().is_empty());
}

#[test]
fn the_pod_is_recorded_beside_the_address_file() {
    let store = StoreNode::new();
    let conf = store.subnets(&["10.1.0.0/24"]);
    let args = "IgnoreUnknown=1;K8S_POD_NAMESPACE=shop;K8S_POD_NAME=web-0;K8S_POD_UID=1-2;\
                K8S_POD_INFRA_CONTAINER_ID=a";
    result_of(&store.run(Ours, &call("ADD", "a", &conf).args(args)));
    let record = fs::read(store.file(".headcni/owners/a@eth0")).unwrap();
    let record: Value = serde_json::from_slice(&record).unwrap();
    assert_eq!(record["pod"]["namespace"], "shop");
    assert_eq!(record["pod"]["name"], "web-0");
    assert_eq!(record["pod"]["uid"], "1-2");
    assert_eq!(
        fs::read_to_string(store.file("10.1.0.2")).unwrap(),
        "a\r\neth0"
    );
    // The record survives a rebuild after a change by host-local.
    store.add(HostLocal, "h", &conf);
    store.add(Ours, "b", &conf);
    let again = fs::read(store.file(".headcni/owners/a@eth0")).unwrap();
    assert_eq!(serde_json::from_slice::<Value>(&again).unwrap(), record);
    let other = fs::read(store.file(".headcni/owners/b@eth0")).unwrap();
    let other: Value = serde_json::from_slice(&other).unwrap();
    assert!(other.get("pod").is_none(), "b is no pod: {other}");
}

#[rstest]
#[case::none("")]
#[case::half("IgnoreUnknown=1;K8S_POD_NAME=web-0")]
#[case::empty("IgnoreUnknown=1;K8S_POD_NAMESPACE=;K8S_POD_NAME=")]
fn missing_pod_arguments_are_no_error(#[case] args: &str) {
    let store = StoreNode::new();
    let conf = store.subnets(&["10.1.0.0/24"]);
    result_of(&store.run(Ours, &call("ADD", "a", &conf).args(args)));
}

#[test]
fn leases_are_in_the_documented_default_directory() {
    let store = StoreNode::new();
    let conf = json!({
        "cniVersion": "1.1.0", "name": "headcni", "type": "test",
        "ipam": {"type": "headcni-ipam", "subnet": "10.1.0.0/24"},
    });
    store.add(Ours, "a", &conf);
    let lease = store.node.read("/var/lib/cni/networks/headcni/10.1.0.2");
    assert_eq!(lease.unwrap(), "a\r\neth0");
}
