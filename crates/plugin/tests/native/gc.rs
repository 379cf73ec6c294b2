//! GC: what isn't valid goes with all that belongs to it, and what is valid goes on.

use lab::scenario::PluginNode;
use std::net::SocketAddr;

use lab::{EchoServer, Family, Moment, Netns, Pod, Syscalls};
use serde_json::{Value, json};

use crate::networks::{
    NETWORK, call, cni_path, dual_stack, headcni, ip, ipv4, plugin_node, used_node, with,
};

/// The configuration of a GC after which these attachments are left.
pub(crate) fn valid(conf: &Value, attachments: &[(&str, &str)]) -> Value {
    let list: Value = attachments
        .iter()
        .map(|(container, ifname)| json!({ "containerID": container, "ifname": ifname }))
        .collect();
    with(conf.clone(), "cni.dev/valid-attachments", list)
}

#[track_caller]
pub(crate) fn collect(plugin: &PluginNode, conf: &Value, attachments: &[(&str, &str)]) {
    let outcome = plugin.run(&call("GC", &valid(conf, attachments)));
    if let Err(error) = outcome.ok() {
        panic!("GC: {error}");
    }
    assert_eq!(outcome.stdout, "");
}

/// Collects everything, and asserts that the links went as a group: one by one they take 23 ms
/// each, and nothing else can be done to the node's links meanwhile.
#[track_caller]
pub(crate) fn collect_at_once(plugin: &PluginNode, conf: &Value) {
    let call = call("GC", &valid(conf, &[]));
    let trace = call.trace(&plugin.node, headcni(), Syscalls::KERNEL_MESSAGES);
    let trace = trace.unwrap();
    trace.outcome.ok().unwrap();
    // By name and by number: strace doesn't always find out what a socket is for.
    let words = [
        ["RTM_DELLINK", "IFLA_GROUP"],
        ["nlmsg_type=0x11 ", r"\x08\x00\x1b\x00"],
    ];
    let is_of_a_group = |moment: &Moment| {
        let has = |words: &[&str; 2]| words.iter().all(|word| moment.line.contains(word));
        words.iter().any(has)
    };
    let count = trace.moments.len();
    assert!(
        trace.moments.iter().any(is_of_a_group),
        "{count} messages, and none to delete a group"
    );
}

pub(crate) fn with_port(conf: &Value, port: u16) -> Value {
    let ports = json!([{ "hostPort": port, "containerPort": 80, "protocol": "tcp" }]);
    with(
        conf.clone(),
        "runtimeConfig",
        json!({ "portMappings": ports }),
    )
}

#[test]
fn valid_attachments_go_on_and_the_others_go() {
    let plugin = used_node(&with_port(&dual_stack(), 8079));
    let conf = dual_stack();
    let before = plugin.snapshot();
    let (keep, kept) = plugin.attached("keep", &with_port(&conf, 8080));
    let with_keep = plugin.snapshot();
    let (drop, _) = plugin.attached("drop", &with_port(&conf, 8081));
    let (gone, _) = plugin.attached("gone", &with_port(&conf, 8082));
    let second = call("ADD", &conf).pod(&keep).ifname("net1");
    plugin.run(&second).ok().unwrap();
    gone.delete().unwrap();
    let server = EchoServer::start(&keep, Family::V4, 80).unwrap();
    let port = server.port().unwrap();

    collect(&plugin, &conf, &[("keep", "eth0"), ("unknown", "eth0")]);
    assert!(drop.links().unwrap().is_empty());
    assert_eq!(keep.links().unwrap(), ["eth0"]);
    plugin.node.assert_unchanged(&with_keep);
    for family in [0, 1] {
        plugin.node.ping(&ip(&kept, family)).unwrap();
    }
    let server: SocketAddr = format!("{}:{port}", ip(&kept, 0)).parse().unwrap();
    plugin.node.call_echo(server, "still here").unwrap();
    let known = with(with_port(&conf, 8080), "prevResult", kept);
    plugin.succeed("CHECK", &known, &keep);

    collect(&plugin, &conf, &[]);
    assert!(keep.links().unwrap().is_empty());
    plugin.node.assert_unchanged(&before);
    collect(&plugin, &conf, &[]);
    plugin.node.assert_unchanged(&before);
}

#[test]
fn fifty_dead_attachments_go_at_once() {
    let plugin = used_node(&ipv4());
    let before = plugin.snapshot();
    let pods: Vec<Pod> = (0..50)
        .map(|n| plugin.attached(&format!("p{n}"), &ipv4()).0)
        .collect();
    assert_eq!(plugin.node.links().unwrap().len(), 50);
    // As after a crash of the node's runtime: half of the namespaces are gone.
    for pod in &pods[..25] {
        pod.delete().unwrap();
    }
    collect_at_once(&plugin, &ipv4());
    assert!(pods[25..].iter().all(|pod| pod.links().unwrap().is_empty()));
    plugin.node.assert_unchanged(&before);
}

#[test]
fn other_networks_and_foreign_links_are_none_of_its_business() {
    let plugin = used_node(&dual_stack());
    let other = with(dual_stack(), "name", json!("other"));
    let mut other = with(
        other,
        "ipam",
        json!({ "type": "headcni-ipam", "subnet": "10.8.0.0/24" }),
    );
    other["runtimeConfig"] = with_port(&other, 8080)["runtimeConfig"].clone();
    let (pod, result) = plugin.attached("p", &other);
    for line in [
        "ip link add hc0 type bridge",
        "ip link set hc0 alias headcni",
        "ip link add hcforeign type veth peer name hcpeer",
        "ip link add hcgroup type veth peer name hcgroup1",
        "ip link set hcgroup group 26723",
        "ip link set hcforeign alias another",
    ] {
        plugin.node.run(line.split(' ')).unwrap();
    }
    let before = plugin.snapshot();
    collect(&plugin, &dual_stack(), &[]);
    plugin.node.assert_unchanged(&before);
    plugin.node.ping(&ip(&result, 0)).unwrap();
    plugin.succeed("CHECK", &with(other, "prevResult", result), &pod);
}

#[test]
fn leases_of_an_executed_ipam_are_released_by_its_own_del() {
    let conf = with(
        ipv4(),
        "ipam",
        json!({ "type": "host-local", "subnet": "10.9.0.0/24" }),
    );
    let plugin = plugin_node();
    let (_keep, kept) = plugin.attached("keep", &conf);
    let (gone, result) = plugin.attached("gone", &conf);
    let lease = |result: &Value| format!("/var/lib/cni/networks/net/{}", ip(result, 0));
    gone.delete().unwrap();
    assert!(plugin.node.has(lease(&result)));
    collect(&plugin, &conf, &[("keep", "eth0")]);
    assert!(!plugin.node.has(lease(&result)));
    assert!(plugin.node.has(lease(&kept)));
    plugin.node.ping(&ip(&kept, 0)).unwrap();
    collect(&plugin, &conf, &[]);
    assert!(!plugin.node.has(lease(&kept)));
    assert!(plugin.node.links().unwrap().is_empty());
}

#[test]
fn the_real_cnitool_collects() {
    let plugin = used_node(&dual_stack());
    let conf = json!({ "cniVersion": "1.1.0", "name": NETWORK, "plugins": [dual_stack()] });
    let file = "/etc/cni/net.d/10-net.conflist";
    plugin.node.write(file, conf.to_string()).unwrap();
    let before = plugin.snapshot();
    let (known, forgotten) = (plugin.pod("known"), plugin.pod("forgotten"));
    let cnitool = |verb: &str, pod: &Pod| {
        let tool = plugin
            .node
            .cnitool("/etc/cni/net.d", verb, NETWORK, pod.netns_path());
        tool.path(cni_path()).run().unwrap()
    };
    cnitool("add", &known).ok().unwrap();
    cnitool("add", &forgotten).ok().unwrap();
    // libcni itself undoes what is in its cache; this one it has forgotten.
    let forget = "rm $(grep -l /netns/forgotten -r /var/lib/cni/results)";
    plugin.node.run(["sh", "-c", forget]).unwrap();
    // cnitool knows of no valid attachment.
    cnitool("gc", &known).ok().unwrap();
    assert!(forgotten.links().unwrap().is_empty());
    assert!(known.links().unwrap().is_empty());
    plugin.node.assert_unchanged(&before);
}
