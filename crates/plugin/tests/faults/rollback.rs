//! A member that fails on ADD: those before it are undone in reverse, and nothing remains.

use lab::scenario::PluginNode;
use std::path::Path;
use std::time::Duration;

use lab::{Netns, Noop, tools};
use rstest::rstest;
use serde_json::json;

use crate::networks::{LEASE_DIR, RECORD_DIR, chain, has_port_rules, plugin_node, used_node, with};

/// Scripts in front of the real plugins, which note each call.
fn note_calls(plugin: &PluginNode, plugins: &[&str]) {
    for name in plugins {
        let real = tools::cni_plugin_dir().join(name);
        let note = format!("echo {name} $verb >> /run/faults-calls");
        plugin.script(name, &format!("{note}\nexec {}", real.display()));
    }
}

#[rstest]
#[case::says_why(
    r#"[ $verb = DEL ] || { echo '{"code":123,"msg":"out of luck","details":"sorry"}'; exit 1; }"#,
    123,
    "third: out of luck"
)]
#[case::says_nothing("[ $verb = DEL ] || exit 3", 100, "exit status: 3")]
#[case::dies("[ $verb = DEL ] || kill -9 $$", 100, "signal: 9")]
#[case::prints_garbage("echo 'no { json'", 100, "no { json")]
#[case::prints_nothing("", 100, "nothing on stdout")]
#[case::prints_a_list("echo '[]'", 100, "gave no result")]
#[case::prints_a_result_and_fails(
    r#"[ $verb = DEL ] || { echo '{"cniVersion":"1.1.0"}'; exit 1; }"#,
    100,
    "exit status: 1"
)]
fn a_failing_third_member_undoes_the_first_two_in_reverse(
    #[case] body: &str,
    #[case] code: u64,
    #[case] part: &str,
) {
    let plugin = used_node();
    let pod = plugin.pod("p");
    let before = plugin.snapshot();
    note_calls(&plugin, &["bridge", "portmap"]);
    let note = "echo third $verb >> /run/faults-calls";
    plugin.script("third", &format!("{note}\n{body}"));

    let outcome = plugin.fail("ADD", &chain(&[json!({ "type": "third" })]), &pod, code);
    assert!(outcome.err_msg().contains(part), "{outcome:?}");
    assert!(!outcome.err_details().contains("undo"), "{outcome:?}");
    let calls = plugin.node.read("/run/faults-calls").unwrap();
    let order = [
        "bridge ADD",
        "portmap ADD",
        "third ADD",
        "third DEL",
        "portmap DEL",
        "bridge DEL",
    ];
    assert_eq!(calls.lines().collect::<Vec<_>>(), order);
    assert_eq!(pod.links().unwrap(), [""; 0]);
    plugin.node.run(["rm", "/run/faults-calls"]).unwrap();
    plugin.node.assert_unchanged(&before);
}

#[test]
fn a_missing_third_member_is_found_before_the_first_is_executed() {
    let plugin = used_node();
    let pod = plugin.pod("p");
    let before = plugin.snapshot();
    note_calls(&plugin, &["bridge", "portmap"]);
    let conf = chain(&[json!({ "type": "not-installed" })]);
    let outcome = plugin.fail("ADD", &conf, &pod, 7);
    assert!(outcome.err_msg().contains("not-installed"), "{outcome:?}");
    assert!(!plugin.node.has("/run/faults-calls"));
    plugin.node.assert_unchanged(&before);
}

#[test]
fn a_member_that_hangs_is_ended_with_all_that_it_started() {
    let plugin = used_node();
    let pod = plugin.pod("p");
    let before = plugin.snapshot();
    // The grandchild has our stdout, too, and would make a link a while after its own end.
    let hang =
        "sh -c 'echo $$ > /run/faults-pid; sleep 1000; ip link add late type bridge' & sleep 1000";
    plugin.script("third", &format!("[ $verb = DEL ] || {{ {hang}; }}"));

    let conf = chain(&[json!({ "type": "third" })]);
    let conf = with(conf, "delegate_timeout_seconds", json!(3));
    let outcome = plugin.fail("ADD", &conf, &pod, 101);
    assert!(
        outcome.err_msg().contains("delegate_timeout_seconds"),
        "{outcome:?}"
    );
    assert!(outcome.elapsed < Duration::from_secs(20), "{outcome:?}");
    let pid = plugin.node.read("/run/faults-pid").unwrap();
    let status = Path::new("/proc").join(pid.trim()).join("status");
    let status = std::fs::read_to_string(status).unwrap_or_default();
    assert!(
        status.is_empty() || status.contains("State:\tZ"),
        "{status}"
    );
    plugin.node.run(["rm", "/run/faults-pid"]).unwrap();
    plugin.node.assert_unchanged(&before);
}

#[test]
fn a_rollback_that_fails_is_told_and_finished_by_del() {
    let plugin = used_node();
    let pod = plugin.pod("p");
    let before = plugin.snapshot();
    let mut third = Noop::new().unwrap();
    third.report_error(42, "never works").unwrap();
    let conf = chain(&[third.conf()]);

    // It fails on DEL as well.
    let outcome = plugin.fail("ADD", &conf, &pod, 42);
    assert!(
        outcome.err_msg().contains("noop: never works"),
        "{outcome:?}"
    );
    let details = outcome.err_details();
    assert!(
        details.contains("roll-back failed") && details.contains("never works"),
        "{outcome:?}"
    );
    assert_eq!(third.verbs().unwrap(), ["ADD", "DEL"]);
    assert_eq!(
        plugin.leases(),
        [""; 0],
        "the others are undone all the same"
    );
    assert!(!has_port_rules(&plugin));
    let record = plugin.record("p").unwrap();
    assert_eq!(record["progress"], "started");

    plugin.fail("DEL", &conf, &pod, 42);
    assert!(plugin.record("p").is_some(), "still not undone");
    third.reset().unwrap();
    plugin.succeed("DEL", &conf, &pod);
    assert_eq!(third.verbs().unwrap(), ["ADD", "DEL", "DEL", "DEL"]);
    plugin.node.assert_unchanged(&before);
}

#[test]
fn the_first_add_on_a_node_that_fails_leaves_no_files() {
    let plugin = plugin_node();
    let pod = plugin.pod("p");
    plugin.script("third", "[ $verb = DEL ] || exit 1");
    plugin.fail("ADD", &chain(&[json!({ "type": "third" })]), &pod, 100);
    assert_eq!(plugin.leases(), [""; 0]);
    assert!(
        !plugin.node.has(RECORD_DIR),
        "{:?}",
        plugin.files(RECORD_DIR)
    );
    assert_eq!(plugin.files(LEASE_DIR), ["last_reserved_ip.0", "lock"]);
    assert_eq!(plugin.node.links().unwrap(), ["faultbr0"]);
}
