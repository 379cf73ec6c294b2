//! Chain mode: the shipped chain, driven by cnitool.

use lab::{EchoServer, Family, Netns, Node};
use serde_json::{Value, json};

use crate::calls::*;

const NET: &str = "headcni-chain";

fn chain_node() -> Node {
    let node = node();
    let shipped = shipped("10-headcni-chain.conflist");
    node.write("/etc/cni/net.d/10-headcni-chain.conflist", shipped)
        .unwrap();
    node
}

fn one_port() -> Value {
    json!({"portMappings": [{"hostPort": 8080, "containerPort": 80, "protocol": "tcp"}]})
}

#[test]
fn a_host_port_of_the_chain_answers() {
    let (node, outside) = (chain_node(), Node::new("outside").unwrap());
    node.wire("up0", "192.0.2.1/24", &outside, "192.0.2.2/24")
        .unwrap();
    let pod = node.pod("p").unwrap();
    let before = node.snapshot(DIRS).unwrap().ignoring(lasting(NET));
    let tool = |verb| {
        let tool = cnitool(verb, NET, &pod).capabilities(&one_port());
        let outcome = tool.run().unwrap();
        outcome.ok().unwrap();
        outcome
    };
    let added = tool("add");
    assert_eq!(added.stderr, "", "the shipped chain declares what it needs");
    assert_eq!(address(&added.ok_json().unwrap()), "10.244.1.2");
    tool("check");
    tool("status");
    pod.ping("10.244.1.1").unwrap();
    assert_eq!(pod.link("eth0").unwrap().unwrap()["mtu"], 1380);

    let _server = EchoServer::start(&pod, Family::V4, 80).unwrap();
    let port = "192.0.2.1:8080".parse().unwrap();
    let seen = outside.call_echo(port, "hello").unwrap();
    assert_eq!(seen.to_string(), "192.0.2.2");
    let rules = node.iptables_save().unwrap();
    assert!(rules.contains("--to-destination 10.244.1.2:80"), "{rules}");
    tool("del");
    assert!(outside.call_echo(port, "anybody?").is_err());
    assert!(pod.links().unwrap().is_empty());
    tool("del");
    node.assert_unchanged(&before);
}

#[test]
fn two_pods_of_the_chain_talk() {
    let node = chain_node();
    let (one, two) = (node.pod("one").unwrap(), node.pod("two").unwrap());
    let before = node.snapshot(DIRS).unwrap().ignoring(lasting(NET));
    for pod in [&one, &two] {
        let outcome = cnitool("add", NET, pod).run().unwrap();
        outcome.ok().unwrap();
        assert_eq!(outcome.stderr, "", "no port mapping is no trouble");
    }
    one.ping("10.244.1.3").unwrap();
    two.ping("10.244.1.2").unwrap();
    cnitool("gc", NET, &one).run().unwrap().ok().unwrap();
    node.assert_unchanged(&before);
}

#[test]
fn check_reaches_the_last_member() {
    let node = chain_node();
    let pod = node.pod("p").unwrap();
    let tool = |verb| {
        let tool = cnitool(verb, NET, &pod).capabilities(&one_port());
        tool.run().unwrap()
    };
    tool("add").ok().unwrap();
    tool("check").ok().unwrap();
    node.run(["iptables", "-t", "nat", "-F", "CNI-HOSTPORT-DNAT"])
        .unwrap();
    let outcome = tool("check");
    assert!(!outcome.status.success());
    assert!(outcome.stderr.contains("portmap: "), "{}", outcome.stderr);
}

#[test]
fn gc_removes_a_host_port_that_the_runtime_has_forgotten() {
    let node = chain_node();
    let pod = node.pod("p").unwrap();
    let before = node.snapshot(DIRS).unwrap().ignoring(lasting(NET));
    let tool = cnitool("add", NET, &pod).capabilities(&one_port());
    tool.run().unwrap().ok().unwrap();
    // Without its cache cnitool sends no DEL of its own, so that only ours are left.
    node.run(["rm", "-r", "/var/lib/cni/results"]).unwrap();
    cnitool("gc", NET, &pod).run().unwrap().ok().unwrap();
    assert!(pod.links().unwrap().is_empty());
    node.assert_unchanged(&before);
}

#[test]
fn a_chain_of_an_old_version_works() {
    let node = node();
    let pod = node.pod("p").unwrap();
    let members = [
        json!({"type": "headcni", "delegate": {"bridge": "cni0"}}),
        json!({"type": "portmap", "capabilities": {"portMappings": true}}),
    ];
    for version in ["0.2.0", "0.3.1"] {
        let before = node.snapshot(DIRS).unwrap().ignoring(lasting("net"));
        let conf = chaining(version, &members, json!({"runtimeConfig": one_port()}));
        ask("ADD", &conf, &pod).ok().unwrap();
        let rules = node.iptables_save().unwrap();
        assert!(rules.contains("--to-destination 10.244.1."), "{rules}");
        ask("DEL", &conf, &pod).ok().unwrap();
        node.assert_unchanged(&before);
    }
}
