//! The two examples of the architecture document, word by word, as plain `.conf` files.

use lab::{Netns, Node};
use serde_json::json;

use crate::calls::*;

const BASIC: &str = r#"{
  "cniVersion": "0.4.0",
  "name": "headcni-network",
  "type": "headcni",
  "delegate": {
    "type": "bridge",
    "bridge": "cni0"
  }
}"#;

const CHAIN: &str = r#"{
  "cniVersion": "0.4.0",
  "name": "headcni-chain",
  "type": "headcni",
  "plugins": [
    {
      "type": "headcni",
      "delegate": {
        "type": "bridge"
      }
    },
    {
      "type": "portmap",
      "capabilities": {
        "portMappings": true
      }
    }
  ]
}"#;

fn with(document: &str) -> Node {
    let node = node();
    node.write("/etc/cni/net.d/10-example.conf", document)
        .unwrap();
    node
}

#[test]
fn the_basic_example_works_as_it_stands() {
    let node = with(BASIC);
    let pod = node.pod("p").unwrap();
    let net = "headcni-network";
    let before = node.snapshot(DIRS).unwrap().ignoring(lasting(net));
    let result = cnitool("add", net, &pod).run().unwrap().ok_json().unwrap();
    assert_eq!(result["cniVersion"], "0.4.0");
    assert_eq!(result["ips"][0]["version"], "4");
    pod.ping("10.244.1.1").unwrap();
    for verb in ["check", "del"] {
        cnitool(verb, net, &pod).run().unwrap().ok().unwrap();
    }
    node.assert_unchanged(&before);
}

#[test]
fn the_shipped_example_with_our_own_addresses_works_as_it_stands() {
    let node = node();
    let shipped = include_str!("../../../../deploy/cni/10-headcni-ipam.conflist");
    node.write("/etc/cni/net.d/10-headcni-ipam.conflist", shipped)
        .unwrap();
    let pod = node.pod("p").unwrap();
    let net = "headcni-network";
    let result = cnitool("add", net, &pod).run().unwrap().ok_json().unwrap();
    let lease = format!("/var/lib/cni/networks/{net}/{}", address(&result));
    assert!(node.has(&lease), "{lease}");
    assert!(node.has(format!("/var/lib/cni/networks/{net}/.headcni")));
    pod.ping("10.244.1.1").unwrap();
    for verb in ["check", "del"] {
        cnitool(verb, net, &pod).run().unwrap().ok().unwrap();
    }
    assert!(!node.has(&lease), "{lease}");
}

#[test]
fn the_chain_works_as_it_stands_and_says_what_it_lacks() {
    let node = with(CHAIN);
    let pod = node.pod("p").unwrap();
    let net = "headcni-chain";
    let before = node.snapshot(DIRS).unwrap().ignoring(lasting(net));
    let ports = json!({"portMappings": [{"hostPort": 8080, "containerPort": 80}]});
    let tool = |verb| cnitool(verb, net, &pod).capabilities(&ports).run().unwrap();
    let outcome = tool("add");
    assert_eq!(address(&outcome.ok_json().unwrap()), "10.244.1.2");
    pod.ping("10.244.1.1").unwrap();
    // The outer configuration declares nothing, so that the runtime gives nothing.
    assert!(outcome.stderr.contains("portMappings"), "{outcome:?}");
    assert!(!node.iptables_save().unwrap().contains("8080"));
    tool("check").ok().unwrap();
    tool("del").ok().unwrap();
    node.assert_unchanged(&before);
}
