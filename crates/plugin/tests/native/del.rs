//! DEL takes everything away, whatever has become of the pod, the record or the configuration.

use lab::scenario::PluginNode;
use lab::{Call, Netns};
use rstest::rstest;
use serde_json::{Value, json};

use crate::kill_sweep::{collect, with_all};
use crate::networks::{
    LEASE_DIR, RECORD_DIR, call, dual_stack, headcni, host_link, plugin_node, used_node, with,
};
use crate::node_state::snapshot;

/// A call for `eth0` of the container `p` that says nothing about its namespace.
fn bare(verb: &str, conf: &Value) -> Call {
    call(verb, conf).container_id("p").ifname("eth0")
}

fn shell(plugin: &PluginNode, line: &str) {
    plugin.node.run(["sh", "-ec", line]).unwrap();
}

#[rstest]
#[case::unset(None)]
#[case::empty(Some(""))]
#[case::its_path(Some("/run/netns/p"))]
#[case::another(Some("/run/netns/never"))]
#[case::the_node_s_own(Some("/proc/self/ns/net"))]
#[case::no_namespace(Some("/dev/null"))]
fn del_whatever_is_said_of_the_namespace(
    #[case] netns: Option<&str>,
    #[values(false, true)] is_gone: bool,
) {
    let conf = with_all(dual_stack());
    let plugin = used_node(&conf);
    let before = snapshot(&plugin);
    let (pod, _) = plugin.attached("p", &conf);
    if is_gone {
        pod.delete().unwrap();
    }
    let mut del = bare("DEL", &conf);
    if let Some(path) = netns {
        del = del.netns(path);
    }
    for _ in 0..2 {
        plugin.run(&del).ok().unwrap();
        plugin.node.assert_unchanged(&before);
    }
}

#[rstest]
#[case::no_record(&format!("rm -r {RECORD_DIR}"))]
#[case::a_torn_record(&format!("truncate -s 40 {RECORD_DIR}/p@eth0.json"))]
#[case::an_empty_record(&format!("truncate -s 0 {RECORD_DIR}/p@eth0.json"))]
#[case::a_record_of_nonsense(&format!("head -c 500 /dev/urandom > {RECORD_DIR}/p@eth0.json"))]
#[case::no_lease(&format!("rm {LEASE_DIR}/10.9.* {LEASE_DIR}/fd00*"))]
#[case::no_lease_store(&format!("rm -r {LEASE_DIR}"))]
#[case::no_lease_index(&format!("rm -r {LEASE_DIR}/.headcni"))]
#[case::nothing_on_disk("rm -r /var/lib/cni/*")]
#[case::no_link("for l in /sys/class/net/hc*; do ip link delete ${l##*/}; done")]
#[case::no_rules("nft flush ruleset")]
fn del_with_a_part_of_it_gone(#[case] harm: &str, #[values(false, true)] is_remembered: bool) {
    let conf = with_all(dual_stack());
    let plugin = used_node(&conf);
    let before = snapshot(&plugin);
    let (pod, result) = plugin.attached("p", &conf);
    shell(&plugin, harm);
    // What runtimes remember of the ADD.
    let stated = if is_remembered { result } else { Value::Null };
    for _ in 0..2 {
        plugin.succeed(
            "DEL",
            &with(conf.clone(), "prevResult", stated.clone()),
            &pod,
        );
    }
    assert_eq!(pod.links().unwrap(), [""; 0]);
    // What was harmed is as it was again with the next pod.
    let (next, _) = plugin.attached("next", &conf);
    plugin.succeed("DEL", &conf, &next);
    plugin.node.assert_unchanged(&before);
}

#[rstest]
#[case::another_subnet("ipam", json!({ "type": "headcni-ipam", "subnet": "10.77.0.0/24" }))]
#[case::another_ipam("ipam", json!({ "type": "host-local", "subnet": "10.9.0.0/24" }))]
#[case::an_ipam_that_is_not_installed("ipam", json!({ "type": "not-installed" }))]
#[case::no_ipam("ipam", Value::Null)]
#[case::a_broken_range("pod_cidr", json!("10.9.0.0/240"))]
#[case::a_contradiction("enable_ipv6", json!(false))]
#[case::a_broken_mtu("mtu", json!(-1))]
#[case::broken_ports("runtimeConfig", json!({ "portMappings": [{ "hostPort": 99999 }] }))]
#[case::no_ports("runtimeConfig", Value::Null)]
#[case::nonsense_remembered("prevResult", json!({ "cniVersion": "1.1.0", "ips": 7 }))]
fn del_with_a_configuration_edited_since(#[case] key: &str, #[case] value: Value) {
    let conf = with_all(dual_stack());
    let plugin = used_node(&conf);
    let before = snapshot(&plugin);
    let (pod, _) = plugin.attached("p", &conf);
    // What was done is on record.
    plugin.succeed("DEL", &with(conf, key, value), &pod);
    plugin.node.assert_unchanged(&before);
}

#[rstest]
#[case::unset(None)]
#[case::a_living_one(Some("/run/netns/p"))]
fn del_of_an_unknown_container_changes_nothing(#[case] netns: Option<&str>) {
    let conf = with_all(dual_stack());
    let plugin = used_node(&conf);
    let (_pod, result) = plugin.attached("p", &conf);
    let before = snapshot(&plugin);
    let mut del = call("DEL", &conf).container_id("unknown").ifname("eth0");
    if let Some(path) = netns {
        del = del.netns(path);
    }
    plugin.run(&del).ok().unwrap();
    plugin.node.assert_unchanged(&before);
    assert!(plugin.node.link(&host_link(&result)).unwrap().is_some());
}

#[test]
fn del_on_a_node_that_never_had_a_pod_makes_nothing() {
    let plugin = plugin_node();
    let before = plugin.snapshot();
    plugin.run(&bare("DEL", &dual_stack())).ok().unwrap();
    plugin.node.assert_unchanged(&before);
}

#[rstest]
#[case::no_state(&format!("rm -r {RECORD_DIR}"))]
#[case::no_leases(&format!("rm -r {LEASE_DIR}"))]
#[case::a_torn_record(&format!("truncate -s 40 {RECORD_DIR}/p@eth0.json"))]
#[case::no_link("for l in /sys/class/net/hc*; do ip link delete ${l##*/}; done")]
fn gc_with_a_part_of_it_gone(#[case] harm: &str) {
    let conf = with_all(dual_stack());
    let plugin = used_node(&conf);
    let before = snapshot(&plugin);
    let (pod, _) = plugin.attached("p", &conf);
    shell(&plugin, harm);
    collect(&plugin, &conf, &[]).ok().unwrap();
    assert_eq!(pod.links().unwrap(), [""; 0]);
    plugin.node.assert_unchanged(&before);
}

#[test]
fn nothing_but_the_plugin_itself_need_be_installed() {
    let conf = with_all(dual_stack());
    let plugin = used_node(&conf);
    let before = snapshot(&plugin);
    let pod = plugin.pod("p");
    let run = |verb: &str, conf: &Value| {
        let call = call(verb, conf).pod(&pod).path("/run/nothing/here");
        call.run(&plugin.node, headcni()).unwrap().ok().unwrap();
    };
    run("ADD", &conf);
    run("DEL", &conf);
    run("ADD", &conf);
    run(
        "GC",
        &with(conf.clone(), "cni.dev/valid-attachments", json!([])),
    );
    plugin.node.assert_unchanged(&before);
}
