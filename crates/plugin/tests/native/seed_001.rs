//! The document of seed 001 as it stands, with the real host-local.

use lab::scenario::PluginNode;
use std::net::SocketAddr;

use lab::{EchoServer, Family, Ignore, Netns, Node, Outcome, Pod, Snapshot};
use rstest::rstest;
use serde_json::{Value, json};

use crate::networks::{call, cni_path, host_link, ip, plugin_node, used_node, with};

const DOCUMENT: &str = include_str!("../../src/native_conf/seed_001.json");
const NET: &str = "tailscale-cni";
const LEASES: &str = "/var/lib/cni/networks/tailscale-cni";

pub(crate) fn document() -> Value {
    serde_json::from_str(DOCUMENT).unwrap()
}

/// The document with one more key in `ipam`, or another value for one.
fn with_ipam(key: &str, value: Value) -> Value {
    let mut conf = document();
    conf["ipam"][key] = value;
    conf
}

fn cnitool(verb: &str, pod: &Pod) -> Outcome {
    let tool = pod
        .node()
        .cnitool("/etc/cni/net.d", verb, NET, pod.netns_path());
    tool.path(cni_path()).run().unwrap()
}

/// What remains, but for what host-local keeps for the next pod.
fn snapshot(plugin: &PluginNode) -> Snapshot {
    let dirs = ["/var/lib/cni", "/run/headcni"];
    let taken = plugin.node.snapshot(&dirs).unwrap();
    taken.ignoring(Ignore::new().host_local(LEASES))
}

#[test]
fn the_document_works_as_it_stands_with_cnitool() {
    let plugin = used_node(&document());
    let file = "/etc/cni/net.d/10-seed.conf";
    plugin.node.write(file, DOCUMENT).unwrap();
    let before = snapshot(&plugin);
    let (one, two) = (plugin.pod("one"), plugin.pod("two"));
    let first = cnitool("add", &one).ok_json().unwrap();
    let second = cnitool("add", &two).ok_json().unwrap();

    assert_eq!(first["cniVersion"], "1.0.0");
    assert_eq!(ip(&first, 0), "10.244.0.11", "the first pod ever had .10");
    assert_eq!(first["ips"][0]["gateway"], "10.244.0.1");
    assert_eq!(
        first["dns"],
        json!({ "nameservers": ["10.2.0.1"], "domain": "cluster.local",
                "search": ["c.binrc.com"] })
    );
    assert_eq!(one.link("eth0").unwrap().unwrap()["mtu"], 1280);
    assert!(plugin.node.has(format!("{LEASES}/10.244.0.11")));
    one.ping("10.244.0.1").unwrap();
    one.ping(&ip(&second, 0)).unwrap();
    plugin.node.ping(&ip(&first, 0)).unwrap();

    for verb in ["check", "del"] {
        cnitool(verb, &one).ok().unwrap();
        cnitool(verb, &two).ok().unwrap();
    }
    assert!(one.links().unwrap().is_empty());
    plugin.node.assert_unchanged(&before);
}

#[test]
fn the_log_says_that_policies_are_not_enforced_as_long_as_they_are_wanted() {
    let plugin = plugin_node();
    let pod = plugin.pod("p");
    let log = "/var/log/headcni.log";
    let conf = with(document(), "log_file", json!(log));
    plugin.succeed("ADD", &conf, &pod);
    let said = plugin.node.read(log).unwrap();
    assert!(said.contains("does not enforce NetworkPolicy"), "{said}");
    assert!(said.contains(r#""level":"warn""#), "{said}");

    let other = plugin.pod("q");
    let quiet = with(conf, "enable_network_policy", json!(false));
    plugin.succeed("ADD", &quiet, &other);
    let now = plugin.node.read(log).unwrap();
    assert!(!now[said.len()..].contains("NetworkPolicy"), "{now}");
}

#[test]
fn pod_cidr_is_the_range_where_ipam_names_none() {
    for ipam in [
        json!({ "type": "host-local" }),
        json!({ "type": "headcni-ipam" }),
        json!({}),
    ] {
        let plugin = plugin_node();
        let conf = with(document(), "ipam", ipam);
        let (_pod, result) = plugin.attached("p", &conf);
        assert_eq!(result["ips"][0]["address"], "10.244.0.2/24", "{conf}");
        assert_eq!(result["ips"][0]["gateway"], "10.244.0.1");
    }
}

#[rstest]
#[case::another_range(with(document(), "ipam",
    json!({ "type": "host-local", "subnet": "10.245.0.0/24" })), &["pod_cidr", "10.245.0.0/24"])]
#[case::a_wider_range(with_ipam("subnet", json!("10.244.0.0/16")), &["pod_cidr", "10.244.0.0/16"])]
#[case::a_service_s_range(with(document(), "service_cidr", json!("10.244.0.0/16")),
    &["service_cidr", "10.244.0.0/24"])]
#[case::no_ipv6_range(with(document(), "enable_ipv6", json!(true)), &["enable_ipv6", "IPv6"])]
#[case::an_ipv6_range(with(document(), "pod_cidr", json!("10.244.0.0/24,fd00::/64")),
    &["enable_ipv6", "fd00::/64"])]
#[case::no_url(with(document(), "headscale_url", json!("hs.binrc.com")), &["headscale_url"])]
#[case::no_network(with(document(), "pod_cidr", json!("10.244.0.0")), &["pod_cidr"])]
#[case::no_flag(with(document(), "enable_network_policy", json!("yes")),
    &["enable_network_policy"])]
#[case::no_socket(with(document(), "tailscale_socket", json!("ts.sock")), &["tailscale_socket"])]
fn a_contradiction_is_an_error_by_name(#[case] conf: Value, #[case] parts: &[&str]) {
    let plugin = plugin_node();
    let pod = plugin.pod("p");
    let before = snapshot(&plugin);
    let outcome = plugin.fail("ADD", &conf, &pod, 7);
    for part in parts {
        assert!(outcome.err_msg().contains(part), "{}", outcome.err_msg());
    }
    assert!(pod.links().unwrap().is_empty());
    // The runtime cleans up after it with the same document.
    plugin.succeed("DEL", &conf, &pod);
    plugin.node.assert_unchanged(&before);
}

#[test]
fn services_are_neither_masqueraded_nor_unreachable() {
    let plugin = plugin_node();
    let outside = Node::new("outside").unwrap();
    let (node, wire) = (&plugin.node, "wire");
    node.wire(wire, "192.168.7.1/24", &outside, "192.168.7.2/24")
        .unwrap();
    let service = "10.96.0.10";
    let run = |place: &Node, line: &str| place.run(line.split(' ')).unwrap();
    run(&outside, "ip address add 10.96.0.10/32 dev lo");
    run(&outside, "ip route add 10.244.0.0/24 via 192.168.7.1");
    run(node, "ip route add 10.96.0.0/16 via 192.168.7.2");
    let (pod, result) = plugin.attached("p", &document());
    let server = EchoServer::start(&outside, Family::V4, 0).unwrap();
    let port = server.port().unwrap();
    let seen_by = |address: &str| {
        let server: SocketAddr = format!("{address}:{port}").parse().unwrap();
        pod.call_echo(server, "hello").unwrap().to_string()
    };
    assert_eq!(seen_by(service), ip(&result, 0));
    assert_eq!(seen_by("192.168.7.2"), "192.168.7.1", "the rest is");
    // An address that nobody has leaves by the wire, where whoever serves it can see it.
    let way = plugin.node.run([
        "ip",
        "route",
        "get",
        "10.96.3.4",
        "from",
        &ip(&result, 0),
        "iif",
        &host_link(&result),
    ]);
    assert!(way.unwrap().stdout.contains("via 192.168.7.2 dev wire"));
}

#[test]
fn nobody_calls_headscale() {
    let plugin = plugin_node();
    let pod = plugin.pod("p");
    let conf = with(
        with(document(), "headscale_url", json!("http://127.0.0.1:9")),
        "status_strict",
        json!(true),
    );
    let conf = with(conf, "cniVersion", json!("1.1.0"));
    let traced = |verb: &str, conf: &Value| {
        let options = "strace -f -qq -e trace=socket,connect -o /run/trace";
        let call = call(verb, conf).pod(&pod).under(options.split(' '));
        let outcome = plugin.run(&call);
        (outcome, plugin.node.read("/run/trace").unwrap())
    };
    let (added, on_add) = traced("ADD", &conf);
    let result = added.ok_json().unwrap();
    let known = with(conf.clone(), "prevResult", result);
    let (checked, on_check) = traced("CHECK", &known);
    checked.ok().unwrap();
    // This one does talk to somebody: tailscaled, which isn't there.
    let (status, on_status) = traced("STATUS", &conf);
    assert_eq!(status.err_code(), Some(51), "{status:?}");
    assert!(on_status.contains("tailscaled.sock"), "{on_status}");
    let (deleted, on_del) = traced("DEL", &known);
    deleted.ok().unwrap();
    for trace in [on_add, on_check, on_status, on_del] {
        assert!(trace.contains("AF_"), "strace tells nothing: {trace}");
        assert!(!trace.contains("AF_INET"), "{trace}");
    }
}
