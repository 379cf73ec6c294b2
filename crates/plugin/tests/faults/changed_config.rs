//! A configuration that was edited between ADD and DEL: the record counts.

use lab::CniTool;
use lab::scenario::PluginNode;
use rstest::rstest;
use serde_json::{Value, json};

use crate::networks::{NETWORK, chain, headcni, used_node, with};

#[rstest]
#[case::another_mode(json!({ "plugins": null, "delegate": { "type": "nonsense" } }))]
#[case::other_members(json!({ "plugins": [{ "type": "not-installed" }] }))]
#[case::no_members(json!({ "plugins": [] }))]
#[case::a_bad_member(json!({ "plugins": [{ "type": "../bridge" }] }))]
#[case::a_bad_mtu(json!({ "mtu": 12 }))]
#[case::a_bad_log_level(json!({ "log_level": "loud" }))]
#[case::a_bad_timeout(json!({ "delegate_timeout_seconds": 0 }))]
fn del_goes_by_the_record_whatever_the_configuration_became(#[case] edit: Value) {
    let plugin = used_node();
    let pod = plugin.pod("p");
    let before = plugin.snapshot();
    let mut conf = chain(&[]);
    let result = plugin.succeed("ADD", &conf, &pod).ok_json().unwrap();
    conf["prevResult"] = result;
    for (key, value) in edit.as_object().unwrap() {
        conf[key] = value.clone();
    }
    plugin.succeed("DEL", &conf, &pod);
    plugin.node.assert_unchanged(&before);
}

fn write_list(plugin: &PluginNode, version: &str) {
    let mut member = chain(&[]);
    let keys = member.as_object_mut().unwrap();
    keys.retain(|key, _| !["cniVersion", "name", "runtimeConfig"].contains(&key.as_str()));
    let list = json!({ "cniVersion": version, "name": NETWORK, "plugins": [member] });
    plugin
        .node
        .write("/etc/cni/net.d/10-faults.conflist", list.to_string())
        .unwrap();
}

fn cnitool(plugin: &PluginNode, verb: &str) -> CniTool {
    let tool = plugin
        .node
        .cnitool("/etc/cni/net.d", verb, NETWORK, "/run/netns/p");
    let plugins = lab::tools::cni_plugin_dir().display().to_string();
    let ours = headcni().parent().unwrap().display().to_string();
    let ports =
        json!({ "portMappings": [{ "hostPort": 8080, "containerPort": 80, "protocol": "tcp" }] });
    tool.path(format!("{ours}:{plugins}")).capabilities(&ports)
}

// libcni converts the result that it remembers to the new version.
#[rstest]
#[case("0.3.1", "1.1.0")]
#[case("0.4.0", "1.0.0")]
#[case("1.0.0", "1.1.0")]
#[case("1.1.0", "0.4.0")]
fn del_works_after_the_network_changed_its_version(#[case] old: &str, #[case] new: &str) {
    let plugin = used_node();
    let _pod = plugin.pod("p");
    write_list(&plugin, new);
    let before = plugin.snapshot();
    write_list(&plugin, old);
    cnitool(&plugin, "add").run().unwrap().ok().unwrap();
    write_list(&plugin, new);
    let del = cnitool(&plugin, "del").run().unwrap();
    assert!(del.status.success(), "{del:?}");
    plugin.node.assert_unchanged(&before);
}

#[rstest]
#[case("0.4.0", "1.0.0")]
#[case("1.1.0", "0.4.0")]
fn check_works_after_the_network_changed_its_version(#[case] old: &str, #[case] new: &str) {
    let plugin = used_node();
    let _pod = plugin.pod("p");
    write_list(&plugin, old);
    cnitool(&plugin, "add").run().unwrap().ok().unwrap();
    cnitool(&plugin, "check").run().unwrap().ok().unwrap();
    write_list(&plugin, new);
    let check = cnitool(&plugin, "check").run().unwrap();
    assert!(check.status.success(), "{check:?}");
}

#[test]
fn a_data_directory_that_moved_leaves_the_configuration_to_go_by() {
    let plugin = used_node();
    let pod = plugin.pod("p");
    let before = plugin.snapshot();
    let conf = with(chain(&[]), "dataDir", json!("/run/faults-data"));
    plugin.succeed("ADD", &conf, &pod);
    plugin.succeed("DEL", &chain(&[]), &pod);
    assert_eq!(plugin.leases(), [""; 0]);
    // The old record is all that remains, and it hurts nobody.
    plugin.succeed("DEL", &conf, &pod);
    plugin.node.assert_unchanged(&before);
}
