//! CHECK passes right after ADD, whatever the runtime speaks and whoever else is in the chain.

use lab::scenario::PluginNode;
use lab::{Netns, Outcome, Pod};
use rstest::rstest;
use serde_json::{Value, json};

use crate::networks::{call, cni_path, dual_stack, ip, ipv4, plugin_node, used_node, with};

fn with_ports(conf: Value) -> Value {
    let ports = json!([{ "hostPort": 8080, "containerPort": 80, "protocol": "tcp" },
        { "hostPort": 5353, "containerPort": 53, "protocol": "udp" }]);
    with(conf, "runtimeConfig", json!({ "portMappings": ports }))
}

#[rstest]
#[case::ipv4(ipv4())]
#[case::dual_stack(dual_stack())]
#[case::host_ports(with_ports(dual_stack()))]
fn an_attachment_is_as_its_add_left_it(
    #[case] conf: Value,
    #[values("0.4.0", "1.0.0", "1.1.0")] version: &str,
) {
    let plugin = plugin_node();
    let conf = with(conf, "cniVersion", json!(version));
    let (pod, result) = plugin.attached("p", &conf);
    let before = plugin.snapshot();
    let known = with(conf.clone(), "prevResult", result);
    let outcome = plugin.succeed("CHECK", &known, &pod);
    assert_eq!(outcome.stdout, "");
    plugin.node.assert_unchanged(&before);
    // Without a record the configuration of the call has to do.
    plugin
        .node
        .run(["rm", "-r", "/var/lib/cni/headcni"])
        .unwrap();
    plugin.succeed("CHECK", &known, &pod);
    plugin.succeed("DEL", &known, &pod);
    assert!(!plugin.attempt("CHECK", &known, &pod).status.success());
}

#[test]
fn check_needs_something_to_compare_with() {
    let plugin = plugin_node();
    let (pod, result) = plugin.attached("p", &ipv4());
    let outcome = plugin.fail("CHECK", &ipv4(), &pod, 7);
    assert!(outcome.err_msg().contains("prevResult"), "{outcome:?}");
    let of_others = json!({ "cniVersion": "1.1.0", "interfaces": [{ "name": "eth0" }],
        "ips": result["ips"] });
    let outcome = plugin.fail("CHECK", &with(ipv4(), "prevResult", of_others), &pod, 7);
    assert!(outcome.err_msg().contains("eth0"), "{outcome:?}");
}

#[test]
fn check_of_a_pod_that_is_gone_or_never_was_fails() {
    let plugin = plugin_node();
    let (pod, result) = plugin.attached("p", &ipv4());
    let known = with(ipv4(), "prevResult", result);
    let never = plugin.attempt("CHECK", &known, &plugin.pod("q"));
    assert!(!never.status.success(), "{never:?}");
    let nowhere = plugin.run(&call("CHECK", &known).container_id("p").ifname("eth0"));
    assert_eq!(nowhere.err_code(), Some(4), "{nowhere:?}");
    pod.delete().unwrap();
    let gone = plugin.attempt("CHECK", &known, &pod);
    assert!(!gone.status.success(), "{gone:?}");
}

fn cnitool(verb: &str, pod: &Pod) -> Outcome {
    let node = pod.node();
    let tool = node.cnitool("/etc/cni/net.d", verb, "net", pod.netns_path());
    tool.path(cni_path()).run().unwrap()
}

/// The native network as the first of a chain.
fn chained(plugin: &PluginNode, conf: &Value, then: &Value) {
    let list = json!({ "cniVersion": "1.1.0", "name": "net", "plugins": [conf, then] });
    let file = "/etc/cni/net.d/10-net.conflist";
    plugin.node.write(file, list.to_string()).unwrap();
}

#[test]
fn the_real_tuning_plugin_may_follow() {
    let plugin = used_node(&dual_stack());
    let before = plugin.snapshot();
    let tuning = json!({ "type": "tuning", "mtu": 1300, "promisc": true,
        "sysctl": { "net.core.somaxconn": "500" } });
    chained(&plugin, &with(dual_stack(), "mtu", json!(1300)), &tuning);
    let pod = plugin.pod("p");
    let result = cnitool("add", &pod).ok_json().unwrap();
    for family in [0, 1] {
        plugin.node.ping(&ip(&result, family)).unwrap();
    }
    cnitool("check", &pod).ok().unwrap();
    cnitool("del", &pod).ok().unwrap();
    plugin
        .node
        .run(["rm", "/etc/cni/net.d/10-net.conflist"])
        .unwrap();
    plugin.node.assert_unchanged(&before);
}

/// Nothing of ours runs after it, and neighbours are told by their hardware address: so it has to
/// be asked of headcni itself, as below.
#[test]
fn a_hardware_address_that_tuning_changes_is_found_out() {
    let plugin = plugin_node();
    let mac = "02:42:ac:11:00:07";
    chained(
        &plugin,
        &dual_stack(),
        &json!({ "type": "tuning", "mac": mac }),
    );
    let pod = plugin.pod("p");
    let result = cnitool("add", &pod).ok_json().unwrap();
    assert_eq!(result["interfaces"][1]["mac"], mac);
    let checked = cnitool("check", &pod);
    assert!(!checked.status.success(), "the pod can't be reached");
    assert!(checked.stderr.contains("neighbour 10.9.0.2"), "{checked:?}");
    cnitool("del", &pod).ok().unwrap();
}

#[test]
fn a_hardware_address_that_headcni_itself_gives_goes_with_tuning() {
    let plugin = plugin_node();
    let capable = with(dual_stack(), "capabilities", json!({ "mac": true }));
    chained(&plugin, &capable, &json!({ "type": "tuning", "mtu": 1280 }));
    let pod = plugin.pod("p");
    let mac = json!({ "mac": "02:42:ac:11:00:07" });
    let node = &plugin.node;
    let tool = node.cnitool("/etc/cni/net.d", "add", "net", pod.netns_path());
    let added = tool.path(cni_path()).capabilities(&mac).run().unwrap();
    let result = added.ok_json().unwrap();
    assert_eq!(result["interfaces"][1]["mac"], mac["mac"]);
    node.ping(&ip(&result, 0)).unwrap();
    cnitool("check", &pod).ok().unwrap();
}
