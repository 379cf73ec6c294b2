//! The conflist works with the real runtime and plugins.

use lab::tools::cni_path;
use lab::{Netns, Outcome, Pod};
use rstest::rstest;
use serde_json::{Value, json};

use crate::fixture::{CONF_DIR, CONFLIST, CniConfNode, LEDGER, SUBNET_ENV};

fn cnitool(verb: &str, pod: &Pod) -> Outcome {
    let tool = pod
        .node()
        .cnitool(CONF_DIR, verb, "headcni", pod.netns_path());
    tool.path(cni_path()).run().unwrap()
}

fn cnitool_ok(verb: &str, pod: &Pod) -> Outcome {
    let outcome = cnitool(verb, pod);
    outcome
        .ok()
        .unwrap_or_else(|error| panic!("{verb}: {error}"));
    outcome
}

fn chained() -> Value {
    json!([
        { "type": "tuning", "sysctl": { "net.ipv4.tcp_keepalive_time": "600" } },
        { "type": "portmap", "capabilities": { "portMappings": true } },
    ])
}

#[rstest]
#[case::native(json!({}), "10.244.1.1")]
#[case::native_with_all(json!({
    "network": { "serviceCIDR": "10.96.0.0/16", "mtu": 1400 },
    "cni": { "cniPlugins": chained(), "logFile": "/var/log/headcni.log" },
    "ipam": { "strategy": "random", "rangeStart": "10.244.1.100", "gateway": "10.244.1.254" },
    "headscale": { "url": "https://headscale.example.org" },
    "dns": { "magicDNS": { "enable": true, "nameservers": ["100.100.100.100"] } },
    "networkPolicy": { "enabled": true },
}), "10.244.1.254")]
#[case::native_with_host_local(json!({ "ipam": { "type": "host-local" } }), "10.244.1.1")]
#[case::bridge(json!({ "cni": { "mode": "bridge" } }), "10.244.1.1")]
#[case::bridge_with_all(json!({
    "cni": { "mode": "bridge", "cniPlugins": chained(),
        "bridge": { "name": "cni5", "ipMasq": true, "hairpinMode": false } },
    "ipam": { "type": "headcni-ipam", "strategy": "dense-pack" },
}), "10.244.1.1")]
fn a_pod_gets_its_network_by_the_conflist(
    #[case] keys: Value,
    #[case] gateway: &str,
    #[values(&["10.244.1.0/24"], &["10.244.1.0/24", "fd00:244:0:1::/64"])] local: &[&str],
) {
    let fixture = CniConfNode::new();
    let desired = fixture.desired_for(&keys, local);
    node_cniconf::ensure(&desired).unwrap();
    assert_eq!(fixture.permissions(CONFLIST), "600 0");

    let (one, two) = (
        fixture.node.pod("one").unwrap(),
        fixture.node.pod("two").unwrap(),
    );
    let result = cnitool_ok("add", &one).ok_json().unwrap();
    let other = cnitool_ok("add", &two).ok_json().unwrap();
    assert_eq!(
        result["ips"].as_array().unwrap().len(),
        local.len(),
        "{result}"
    );
    assert_eq!(result["ips"][0]["gateway"], gateway);
    one.ping(gateway).unwrap();
    let ip = other["ips"][0]["address"]
        .as_str()
        .unwrap()
        .replace("/24", "");
    one.ping(&ip).unwrap();
    let mtu = keys["network"]["mtu"].as_u64().unwrap_or(1280);
    assert_eq!(one.link("eth0").unwrap().unwrap()["mtu"], mtu);
    if local.len() == 2 {
        one.ping("fd00:244:0:1::1").unwrap();
    }
    for verb in ["check", "del"] {
        cnitool_ok(verb, &one);
        cnitool_ok(verb, &two);
    }
    assert!(one.links().unwrap().is_empty());
}

#[test]
fn status_succeeds() {
    let fixture = CniConfNode::ready();
    let pod = fixture.node.pod("p").unwrap();
    cnitool_ok("status", &pod);
}

#[test]
fn capabilities_of_the_runtime_reach_the_plugin() {
    let fixture = CniConfNode::ready();
    let pod = fixture.node.pod("p").unwrap();
    let wishes = json!({
        "ips": ["10.244.1.77"], "mac": "0a:58:00:00:00:07",
        "portMappings": [{ "hostPort": 8080, "containerPort": 80, "protocol": "tcp" }],
        "bandwidth": { "ingressRate": 1_000_000, "ingressBurst": 1_000_000 },
    });
    let tool = fixture
        .node
        .cnitool(CONF_DIR, "add", "headcni", pod.netns_path());
    let result = tool.path(cni_path()).capabilities(&wishes).run().unwrap();
    let result = result.ok_json().unwrap();
    assert_eq!(result["ips"][0]["address"], "10.244.1.77/24");
    assert_eq!(
        pod.link("eth0").unwrap().unwrap()["address"],
        "0a:58:00:00:00:07"
    );
    let ports = fixture.shell("nft list table inet headcni-ports");
    assert!(
        ports.contains("8080") && ports.contains("10.244.1.77"),
        "{ports}"
    );
    let link = result["interfaces"][0]["name"].as_str().unwrap();
    let limit = fixture.shell(&format!("tc qdisc show dev {link}"));
    assert!(limit.contains("rate 1Mbit"), "{limit}");
}

#[test]
fn pods_start_after_a_reboot_without_api_and_headscale() {
    for keys in [json!({}), json!({ "cni": { "mode": "bridge" } })] {
        let fixture = CniConfNode::new();
        fixture.ensure(&keys).unwrap();
        fixture.shell(&format!("rm -r /run/headcni {LEDGER}"));
        assert!(!fixture.node.has(SUBNET_ENV));
        let pod = fixture.node.pod("p").unwrap();
        cnitool_ok("add", &pod);
        pod.ping("10.244.1.1").unwrap();
    }
}

#[test]
fn a_new_pod_cidr_applies_to_new_pods() {
    let fixture = CniConfNode::new();
    let ensure = |local: &str| {
        let desired = fixture.desired_for(&json!({}), &[local]);
        node_cniconf::ensure(&desired).unwrap()
    };
    ensure("10.244.1.0/24");
    let (one, two) = (
        fixture.node.pod("one").unwrap(),
        fixture.node.pod("two").unwrap(),
    );
    cnitool_ok("add", &one);
    assert_eq!(ensure("10.244.9.0/24").repairs.len(), 3);
    let result = cnitool_ok("add", &two).ok_json().unwrap();
    assert_eq!(result["ips"][0]["address"], "10.244.9.2/24");
    two.ping("10.244.9.1").unwrap();
    one.ping("10.244.1.1").unwrap();
    cnitool_ok("del", &one);
    assert!(one.links().unwrap().is_empty());
}
