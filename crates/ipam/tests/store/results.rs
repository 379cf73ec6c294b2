//! What an ADD answers, and what is remembered of it.

use std::fs;

use rstest::rstest;
use serde_json::{Value, json};

use crate::store_node::Plugin::{HostLocal, Ours};
use crate::store_node::{StoreNode, call, merged, assert_error, result_of};

fn in_version(conf: &Value, version: &str) -> Value {
    merged(conf, &json!({"cniVersion": version}))
}

#[rstest]
fn the_result_is_that_of_host_local(
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
fn an_old_version_has_no_room_for_two_of_a_family() {
    let store = StoreNode::new();
    let conf = store.subnets(&["10.1.0.0/24", "10.2.0.0/24"]);
    let message = store.assert_error("ADD", "a", &in_version(&conf, "0.2.0"), 7);
    assert!(message.contains("0.2.0"), "{message}");
    assert!(store.leases().is_empty());
}

#[test]
fn a_pod_is_remembered_beside_host_local_s_form() {
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
    // Also after host-local was there and the index was made anew.
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
fn a_directory_that_ends_in_the_networks_name_is_taken_as_it_is() {
    let store = StoreNode::new();
    let named = store.data_dir().join("net");
    let conf = store.conf(&json!({"subnet": "10.1.0.0/24", "dataDir": named}));
    store.add(Ours, "a", &conf);
    assert_eq!(store.leases_of("a").len(), 1);
}

#[test]
fn unless_told_otherwise_leases_lie_where_the_documents_say() {
    let store = StoreNode::new();
    let conf = json!({
        "cniVersion": "1.1.0", "name": "headcni", "type": "test",
        "ipam": {"type": "headcni-ipam", "subnet": "10.1.0.0/24"},
    });
    store.add(Ours, "a", &conf);
    let lease = store.node.read("/var/lib/cni/networks/headcni/10.1.0.2");
    assert_eq!(lease.unwrap(), "a\r\neth0");
}

#[test]
fn an_owner_that_has_a_lease_is_told_which() {
    let store = StoreNode::new();
    let conf = store.subnets(&["10.1.0.0/24", "fd00::/64"]);
    store.add(Ours, "a", &conf);
    let before = store.files();
    let message = assert_error(&store.call(Ours, "ADD", "a", &conf), 102);
    assert!(message.contains("10.1.0.2, fd00::2"), "{message}");
    assert_eq!(store.files(), before);
}
