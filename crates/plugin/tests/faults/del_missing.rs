//! DEL of what is unknown, half made or gone succeeds, and releases what is left.

use lab::Netns;
use rstest::rstest;
use serde_json::{Value, json};

use crate::networks::{
    RECORD_DIR, SUBNET_FILE, SUBNETS, call, chain, delegate, has_port_rules, plugin_node,
    succeeded, unmasqueraded_chain, used_node, with,
};

#[rstest]
#[case::no_variable(None)]
#[case::empty(Some(""))]
#[case::never_existed(Some("/run/netns/never"))]
#[case::a_living_one(Some("/run/netns/p"))]
fn del_of_an_unknown_container_succeeds_and_changes_nothing(#[case] netns: Option<&str>) {
    let plugin = used_node();
    let _pod = plugin.pod("p");
    let before = plugin.snapshot();
    let mut del = call("DEL", &chain(&[]))
        .container_id("unknown")
        .ifname("eth0");
    if let Some(netns) = netns {
        del = del.netns(netns);
    }
    for _ in 0..2 {
        let outcome = succeeded(plugin.run(&del));
        assert_eq!(outcome.stdout, "");
    }
    plugin.node.assert_unchanged(&before);
}

#[test]
fn del_on_a_node_that_never_had_a_pod_succeeds() {
    let plugin = plugin_node();
    let del = call("DEL", &chain(&[]))
        .container_id("unknown")
        .ifname("eth0");
    succeeded(plugin.run(&del));
    assert!(!plugin.node.has(RECORD_DIR));
    assert_eq!(plugin.leases(), [""; 0]);
}

#[rstest]
#[case::empty("")]
#[case::its_path("/run/netns/p")]
#[case::another("/run/netns/never")]
fn del_after_the_namespace_went_releases_everything(#[case] netns: &str) {
    let conf = unmasqueraded_chain();
    let plugin = used_node();
    let before = plugin.snapshot();
    for prev_result in [false, true] {
        let pod = plugin.pod("p");
        let result = plugin.succeed("ADD", &conf, &pod).ok_json().unwrap();
        assert!(has_port_rules(&plugin));
        pod.delete().unwrap();
        let mut conf = conf.clone();
        if prev_result {
            conf["prevResult"] = result;
        }
        let del = call("DEL", &conf)
            .container_id("p")
            .ifname("eth0")
            .netns(netns);
        succeeded(plugin.run(&del));
        plugin.node.assert_unchanged(&before);
        succeeded(plugin.run(&del));
        plugin.node.assert_unchanged(&before);
    }
}

#[test]
fn del_with_a_record_needs_no_subnet_file() {
    let plugin = used_node();
    let pod = plugin.pod("p");
    let before = plugin.snapshot();
    plugin.node.write(SUBNET_FILE, SUBNETS).unwrap();
    plugin.succeed("ADD", &delegate(), &pod);
    assert_eq!(plugin.leases().len(), 1);
    plugin.node.run(["rm", SUBNET_FILE]).unwrap();
    plugin.succeed("DEL", &delegate(), &pod);
    plugin.node.assert_unchanged(&before);
}

#[rstest]
#[case::gone(None)]
#[case::torn(Some("HEADCNI_NETWORK=10.66.0.0/16\nHEADCNI_SUB"))]
#[case::empty(Some(""))]
fn del_without_record_and_subnet_file_goes_by_the_result(#[case] file: Option<&str>) {
    let plugin = used_node();
    let pod = plugin.pod("p");
    let before = plugin.snapshot();
    plugin.node.write(SUBNET_FILE, SUBNETS).unwrap();
    let result = plugin.succeed("ADD", &delegate(), &pod).ok_json().unwrap();
    plugin
        .node
        .run(["rm", "-r", RECORD_DIR, SUBNET_FILE])
        .unwrap();
    if let Some(text) = file {
        plugin.node.write(SUBNET_FILE, text).unwrap();
    }
    plugin.succeed("DEL", &with(delegate(), "prevResult", result), &pod);
    if file.is_some() {
        plugin.node.run(["rm", SUBNET_FILE]).unwrap();
    }
    plugin.node.assert_unchanged(&before);
}

#[rstest]
#[case::gone(None)]
#[case::torn(Some("HEADCNI_NETWORK=10.66.0.0/16\nHEADCNI_SUB"))]
fn del_of_an_unknown_container_needs_no_subnet_file(#[case] file: Option<&str>) {
    let plugin = plugin_node();
    let pod = plugin.pod("p");
    if let Some(text) = file {
        plugin.node.write(SUBNET_FILE, text).unwrap();
    }
    for prev_result in [Value::Null, json!({}), json!({ "cniVersion": "1.1.0" })] {
        plugin.succeed("DEL", &with(delegate(), "prevResult", prev_result), &pod);
    }
}

const DAMAGES: [&str; 5] = ["", "{", "garbage\0", "[]", r#"{"boot":"x"}"#];

#[test]
fn del_by_a_damaged_record_goes_by_the_configuration_and_warns() {
    let plugin = used_node();
    let pod = plugin.pod("p");
    let before = plugin.snapshot();
    let conf = chain(&[]);
    for damage in DAMAGES {
        plugin.succeed("ADD", &conf, &pod);
        plugin.write_record("p", damage);
        let outcome = plugin.succeed("DEL", &conf, &pod);
        assert!(
            outcome.stderr.contains("p@eth0.json is damaged"),
            "{damage}: {outcome:?}"
        );
        plugin.node.assert_unchanged(&before);
    }
}

#[test]
fn gc_by_a_damaged_record_goes_by_the_configuration_and_warns() {
    let plugin = used_node();
    let conf = unmasqueraded_chain();
    let before = plugin.snapshot();
    for damage in DAMAGES {
        let pod = plugin.pod("p");
        plugin.succeed("ADD", &conf, &pod);
        plugin.write_record("p", damage);
        pod.delete().unwrap();
        let outcome = succeeded(plugin.gc(&conf, &[]));
        assert!(
            outcome.stderr.contains("p@eth0.json is damaged"),
            "{damage}: {outcome:?}"
        );
        assert_eq!(
            plugin.leases(),
            [""; 0],
            "{damage}: and no file tells of this lease any more"
        );
        plugin.node.assert_unchanged(&before);
    }
}

#[test]
fn an_add_after_a_damaged_record_works() {
    let plugin = used_node();
    let conf = unmasqueraded_chain();
    let before = plugin.snapshot();
    for damage in DAMAGES {
        // As after a reboot: the namespace is new, the lease is not.
        let pod = plugin.pod("p");
        plugin.succeed("ADD", &conf, &pod);
        plugin.write_record("p", damage);
        pod.delete().unwrap();
        let pod = plugin.pod("p");
        let outcome = plugin.attempt("ADD", &conf, &pod);
        assert!(outcome.status.success(), "{damage}: {outcome:?}");
        plugin.succeed("DEL", &conf, &pod);
        pod.delete().unwrap();
        plugin.node.assert_unchanged(&before);
    }
}

#[test]
fn a_del_that_cannot_be_leaves_nothing_of_its_own() {
    let plugin = used_node();
    let pod = plugin.pod("p");
    let before = plugin.snapshot();
    let conf = chain(&[json!({ "type": "not-there" })]);
    plugin.fail("DEL", &conf, &pod, 7);
    plugin.node.assert_unchanged(&before);
}
