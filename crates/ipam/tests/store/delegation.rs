//! headcni-ipam below the real bridge plugin and below headcni, called by cnitool.

use lab::tools::{self, cni_path};
use lab::{Call, Moment, Netns, Node, Pod, Syscalls};
use rstest::rstest;
use serde_json::{Value, json};

use crate::store_node::{StoreNode, merged};

#[track_caller]
fn cnitool(verb: &str, pod: &Pod) -> Option<Value> {
    let tool = pod
        .node()
        .cnitool("/etc/cni/net.d", verb, "net", pod.netns_path());
    let outcome = tool.path(cni_path()).run().unwrap();
    outcome.ok().unwrap();
    outcome.json
}

fn install(node: &Node, plugin: &Value) {
    let list = json!({"cniVersion": "1.1.0", "name": "net", "plugins": [plugin]});
    let path = "/etc/cni/net.d/10-net.conflist";
    node.write(path, list.to_string()).unwrap();
}

/// The addresses of a pod's `eth0`, without link-local ones.
fn addresses_of(pod: &Pod) -> Vec<String> {
    let addresses = pod.addresses().unwrap().into_iter();
    addresses
        .filter(|address| address.dev == "eth0" && !address.cidr.starts_with("fe80"))
        .map(|address| address.cidr)
        .collect()
}

#[test]
fn bridge_runs_add_check_and_del_with_headcni_ipam() {
    let store = StoreNode::new();
    let (a, b) = (store.node.pod("a").unwrap(), store.node.pod("b").unwrap());
    let ipam = &store.subnets(&["10.1.0.0/24", "fd00::/64"])["ipam"];
    let routes = json!({"routes": [{"dst": "0.0.0.0/0"}, {"dst": "::/0"}]});
    install(
        &store.node,
        &json!({"type": "bridge", "bridge": "br0", "isGateway": true,
            "ipam": merged(ipam, &routes)}),
    );
    for pod in [&a, &b] {
        cnitool("add", pod).unwrap();
        cnitool("check", pod);
    }
    assert_eq!(addresses_of(&a), ["10.1.0.2/24", "fd00::2/64"]);
    assert_eq!(addresses_of(&b), ["10.1.0.3/24", "fd00::3/64"]);
    a.ping("10.1.0.3").unwrap();
    a.ping("10.1.0.1").unwrap();
    cnitool("status", &a);
    for pod in [&a, &b] {
        cnitool("del", pod);
    }
    assert!(store.leases().is_empty());
}

#[test]
fn headcni_delegates_to_bridge_with_headcni_ipam() {
    let store = StoreNode::new();
    let pod = store.node.pod("a").unwrap();
    let subnet_env = "HEADCNI_NETWORK=10.244.0.0/16\nHEADCNI_SUBNET=10.244.7.0/24\n\
                      HEADCNI_MTU=1380\nHEADCNI_IPMASQ=false\n";
    store
        .node
        .write("/run/headcni/subnet.env", subnet_env)
        .unwrap();
    let ipam = json!({"type": "headcni-ipam", "dataDir": store.data_dir()});
    install(
        &store.node,
        &json!({"type": "headcni",
            "delegate": {"type": "bridge", "bridge": "cni0", "ipam": ipam}}),
    );
    cnitool("add", &pod).unwrap();
    assert_eq!(addresses_of(&pod), ["10.244.7.2/24"]);
    cnitool("check", &pod);
    pod.ping("10.244.7.1").unwrap();
    assert_eq!(store.leases().len(), 1);
    // The sandbox is gone before DEL.
    pod.delete().unwrap();
    cnitool("del", &pod);
    assert!(store.leases().is_empty());
}

#[test]
fn a_node_switches_ipam_plugins_under_running_pods() {
    let store = StoreNode::new();
    let kind = |name: &str| {
        let ipam = &store.subnets(&["10.1.0.0/24"])["ipam"];
        let ipam = merged(ipam, &json!({"type": name}));
        json!({"type": "bridge", "bridge": "br0", "isGateway": true, "ipam": ipam})
    };
    let pods = ["a", "b", "c"].map(|name| store.node.pod(name).unwrap());
    for (pod, name) in pods
        .iter()
        .zip(["host-local", "headcni-ipam", "host-local"])
    {
        install(&store.node, &kind(name));
        cnitool("add", pod).unwrap();
    }
    let leased: Vec<_> = pods.iter().flat_map(addresses_of).collect();
    assert_eq!(leased, ["10.1.0.2/24", "10.1.0.3/24", "10.1.0.4/24"]);
    install(&store.node, &kind("headcni-ipam"));
    for pod in &pods {
        cnitool("del", pod);
    }
    assert!(store.leases().is_empty());
}

/// The linked-in store of headcni retries like `headcni-ipam`: see `io_errors.rs`.
#[rstest]
fn headcni_retries_a_lease_after_an_io_error(#[values("pending", "10.1.0.")] file: &str) {
    let store = StoreNode::new();
    let pod = store.node.pod("a").unwrap();
    let mut conf = store.subnets(&["10.1.0.0/24"]);
    conf["type"] = "headcni".into();
    let call = |verb: &str| Call::new(verb).path(cni_path()).conf(&conf).pod(&pod);
    let trace = call("ADD").trace(&store.node, tools::headcni(), Syscalls::All);
    call("DEL")
        .run(&store.node, tools::headcni())
        .unwrap()
        .ok()
        .unwrap();
    let syscalls = trace.unwrap().moments;
    let is_rename =
        |syscall: &&Moment| syscall.name.starts_with("rename") && syscall.line.contains(file);
    let rename = syscalls.iter().find(is_rename).unwrap();
    let add = call("ADD").inject(rename.fail("EIO")).env("KLOG_V", "4");
    let outcome = add.run(&store.node, tools::headcni()).unwrap();
    outcome.ok().unwrap();
    assert!(outcome.stderr.contains("retrying after"), "{outcome:?}");
    assert_eq!(store.leases().len(), 1);
}
