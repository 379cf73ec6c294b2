//! Delegate mode: the shipped basic configuration, driven by cnitool.

use lab::{EchoServer, Family, Netns, Node};
use serde_json::json;

use crate::calls::*;

const NET: &str = "headcni-network";

fn basic_node() -> Node {
    let node = node();
    let shipped = shipped("10-headcni-basic.conflist");
    node.write("/etc/cni/net.d/10-headcni-basic.conflist", shipped)
        .unwrap();
    node
}

#[test]
fn pods_of_the_basic_example_reach_the_gateway_and_each_other() {
    let node = basic_node();
    let (one, two) = (node.pod("one").unwrap(), node.pod("two").unwrap());
    let before = node.snapshot(DIRS).unwrap().ignoring(lasting(NET));

    let add = |pod| cnitool("add", NET, pod).run().unwrap();
    let (first, second) = (add(&one), add(&two));
    for outcome in [&first, &second] {
        assert_eq!(outcome.stderr, "", "nothing to warn about");
    }
    let (first, second) = (first.ok_json().unwrap(), second.ok_json().unwrap());
    assert_eq!(
        first["cniVersion"], "1.1.0",
        "the newest version of cniVersions"
    );
    assert_eq!(address(&first), "10.244.1.2");
    assert_eq!(address(&second), "10.244.1.3");

    one.ping("10.244.1.1").unwrap();
    one.ping("10.244.1.3").unwrap();
    two.ping("10.244.1.2").unwrap();
    let expected = [
        "default via 10.244.1.1 dev eth0",
        "10.244.0.0/16 via 10.244.1.1 dev eth0",
        "10.244.1.0/24 dev eth0 proto kernel scope link src 10.244.1.2",
    ];
    assert_eq!(main_routes(&one), expected);
    let link = one.link("eth0").unwrap().unwrap();
    assert_eq!(link["mtu"], 1380);
    assert_eq!(
        first["interfaces"][2]["mac"], link["address"],
        "the result tells the truth"
    );

    for pod in [&one, &two] {
        cnitool("check", NET, pod).run().unwrap().ok().unwrap();
        cnitool("status", NET, pod).run().unwrap().ok().unwrap();
    }
    assert_eq!(records(&node, NET).len(), 2);
    cnitool("del", NET, &one).run().unwrap().ok().unwrap();
    assert!(one.links().unwrap().is_empty());
    assert!(!is_leased(&node, NET, "10.244.1.2"));
    two.ping("10.244.1.1").unwrap();
    cnitool("check", NET, &two).run().unwrap().ok().unwrap();
    cnitool("del", NET, &two).run().unwrap().ok().unwrap();
    cnitool("del", NET, &two).run().unwrap().ok().unwrap();
    node.assert_unchanged(&before);
}

#[test]
fn a_host_port_of_the_basic_example_answers() {
    let (node, outside) = (basic_node(), Node::new("outside").unwrap());
    node.wire("up0", "192.0.2.1/24", &outside, "192.0.2.2/24")
        .unwrap();
    let pod = node.pod("p").unwrap();
    let before = node.snapshot(DIRS).unwrap().ignoring(lasting(NET));
    let ports = json!({"portMappings": [
        {"hostPort": 8080, "containerPort": 80, "protocol": "tcp"},
    ]});
    let tool = |verb| {
        let outcome = cnitool(verb, NET, &pod).capabilities(&ports).run();
        outcome.unwrap().ok().unwrap();
    };
    tool("add");
    tool("check");
    let _server = EchoServer::start(&pod, Family::V4, 80).unwrap();
    let port = "192.0.2.1:8080".parse().unwrap();
    let seen = outside.call_echo(port, "hello").unwrap();
    assert_eq!(seen.to_string(), "192.0.2.2");
    tool("del");
    assert!(outside.call_echo(port, "anybody?").is_err());
    node.assert_unchanged(&before);
}

#[test]
fn a_garbage_collection_by_cnitool_leaves_nothing() {
    let node = basic_node();
    let (one, two) = (node.pod("one").unwrap(), node.pod("two").unwrap());
    let before = node.snapshot(DIRS).unwrap().ignoring(lasting(NET));
    for pod in [&one, &two] {
        cnitool("add", NET, pod).run().unwrap().ok().unwrap();
    }
    // cnitool names no valid attachments, so that all have to go.
    cnitool("gc", NET, &one).run().unwrap().ok().unwrap();
    assert!(one.links().unwrap().is_empty());
    assert!(two.links().unwrap().is_empty());
    node.assert_unchanged(&before);
}

#[test]
fn the_delegate_is_a_bridge_unless_told() {
    let node = node();
    let pod = node.pod("p").unwrap();
    let conf = json!({
        "cniVersion": "1.1.0", "name": "net", "type": "headcni", "delegate": {"bridge": "other0"},
    });
    let result = ask("ADD", &conf, &pod).ok_json().unwrap();
    assert_eq!(result["interfaces"][0]["name"], "other0");
    pod.ping("10.244.1.1").unwrap();
}

#[test]
fn another_delegate_than_a_bridge_works_too() {
    let node = node();
    let pod = node.pod("p").unwrap();
    let conf = merged(
        &delegating("1.1.0", json!({})),
        json!({"delegate": {"type": "ptp"}}),
    );
    let before = node.snapshot(DIRS).unwrap().ignoring(lasting("net"));
    let result = ask("ADD", &conf, &pod).ok_json().unwrap();
    assert_eq!(address(&result), "10.244.1.2");
    pod.ping("10.244.1.1").unwrap();
    assert_eq!(pod.link("eth0").unwrap().unwrap()["mtu"], 1380);
    let checked = merged(&conf, json!({"prevResult": result}));
    ask("CHECK", &checked, &pod).ok().unwrap();
    ask("DEL", &checked, &pod).ok().unwrap();
    node.assert_unchanged(&before);
}
