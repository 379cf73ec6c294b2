//! An IPAM plugin that is executed and misbehaves: three tries with a DEL between them, and
//! everything is given back.

use lab::Netns;
use lab::scenario::PluginNode;
use rstest::rstest;
use serde_json::{Value, json};

use crate::kill_sweep::with_all;
use crate::networks::{call, cni_path, ip, ipv4, used_node, with};
use crate::node_state::snapshot;

const SCRIPTS: &str = "/opt/scripts";
const RESULT: &str =
    r#"{ "cniVersion": "1.1.0", "ips": [{ "address": "10.9.0.7/24", "gateway": "10.9.0.1" }] }"#;

/// A network whose addresses come from a shell script, which notes each of its calls.
fn scripted(plugin: &PluginNode, body: &str) -> Value {
    let path = format!("{SCRIPTS}/scripted-ipam");
    let note = "echo $CNI_COMMAND >> /run/calls; cat > /dev/null; tries=$(grep -c ADD /run/calls)";
    let text = format!("#!/bin/sh\n{note}\n[ $CNI_COMMAND = ADD ] || exit 0\n{body}\n");
    plugin.node.write(&path, text).unwrap();
    plugin.node.run(["chmod", "755", &path]).unwrap();
    with(with_all(ipv4()), "ipam", json!({ "type": "scripted-ipam" }))
}

fn calls(plugin: &PluginNode) -> Vec<String> {
    let text = plugin.node.read("/run/calls").unwrap_or_default();
    text.lines().map(str::to_owned).collect()
}

fn path() -> String {
    format!("{SCRIPTS}:{}", cni_path())
}

#[rstest]
#[case::says_why(
    r#"echo '{ "code": 123, "msg": "out of luck" }'; exit 1"#,
    "out of luck"
)]
#[case::says_nothing("exit 3", "3")]
#[case::dies("kill -9 $$", "9")]
#[case::prints_garbage("echo 'no { json'", "no { json")]
#[case::prints_nothing("", "nothing")]
fn an_ipam_plugin_that_always_fails_is_tried_three_times(#[case] body: &str, #[case] part: &str) {
    let plugin = used_node(&ipv4());
    let conf = scripted(&plugin, body);
    let pod = plugin.pod("p");
    let before = snapshot(&plugin);
    let outcome = plugin.run(&call("ADD", &conf).pod(&pod).path(path()));
    assert!(outcome.err_code().is_some(), "{outcome:?}");
    let told = outcome.err_msg();
    assert!(
        told.contains("scripted-ipam") && told.contains(part),
        "{outcome:?}"
    );
    assert_eq!(calls(&plugin), ["ADD", "DEL", "ADD", "DEL", "ADD", "DEL"]);
    assert_eq!(pod.links().unwrap(), [""; 0]);
    plugin.node.assert_unchanged(&before);
}

#[test]
fn an_ipam_plugin_that_recovers_is_forgiven() {
    let plugin = used_node(&with_all(ipv4()));
    let conf = scripted(
        &plugin,
        &format!("[ $tries = 3 ] || exit 1\necho '{RESULT}'"),
    );
    let pod = plugin.pod("p");
    let before = snapshot(&plugin);
    let on_pod = |verb| call(verb, &conf).pod(&pod).path(path());
    let result = plugin.run(&on_pod("ADD")).ok_json().unwrap();
    assert_eq!(calls(&plugin), ["ADD", "DEL", "ADD", "DEL", "ADD"]);
    assert_eq!(ip(&result, 0), "10.9.0.7");
    plugin.node.ping("10.9.0.7").unwrap();
    plugin.run(&on_pod("DEL")).ok().unwrap();
    assert_eq!(calls(&plugin).last().unwrap(), "DEL");
    plugin.node.assert_unchanged(&before);
}

#[rstest]
#[case::no_address(r#"echo '{ "cniVersion": "1.1.0" }'"#)]
#[case::no_number(r#"echo '{ "cniVersion": "1.1.0", "ips": [{ "address": "10.9.0.700/24" }] }'"#)]
#[case::a_route_that_cannot_be(
    r#"echo '{ "cniVersion": "1.1.0", "ips": [{ "address": "10.9.0.7/24" }],
        "routes": [{ "dst": "fd00:1::/64", "gw": "10.9.0.1" }] }'"#
)]
fn a_result_that_cannot_be_made_true_is_rolled_back(#[case] body: &str) {
    let plugin = used_node(&with_all(ipv4()));
    let conf = scripted(&plugin, body);
    let pod = plugin.pod("p");
    let before = snapshot(&plugin);
    let outcome = plugin.run(&call("ADD", &conf).pod(&pod).path(path()));
    assert!(outcome.err_code().is_some(), "{outcome:?}");
    assert_eq!(calls(&plugin).last().unwrap(), "DEL");
    assert_eq!(pod.links().unwrap(), [""; 0]);
    plugin.node.assert_unchanged(&before);
}
