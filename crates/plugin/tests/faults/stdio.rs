//! stdin, stdout and signals: ours, and those of the plugins that we execute.

use lab::scenario::PluginNode;
use std::os::unix::process::ExitStatusExt;
use std::time::Duration;

use lab::Outcome;
use rstest::rstest;
use serde_json::{Value, json};

use crate::networks::{RECORD_DIR, call, chain, plugin_node, succeeded, used_node, with};

/// A chain of this one script.
fn only(kind: &str) -> Value {
    with(chain(&[]), "plugins", json!([{ "type": kind }]))
}

/// Runs a call with the shell's redirections in `how`.
fn redirected(plugin: &PluginNode, verb: &str, conf: &Value, how: &str) -> Outcome {
    let call = call(verb, conf)
        .container_id("p")
        .ifname("eth0")
        .netns("/run/netns/p");
    plugin.run(&call.under(["sh", "-c", how]))
}

#[rstest]
#[case::closed("exec \"$0\" <&-")]
#[case::empty("exec \"$0\" </dev/null")]
#[case::cut_off("head -c 100 | \"$0\"")]
#[case::endless("yes | \"$0\"")]
#[case::a_directory("exec \"$0\" </etc")]
fn input_that_is_no_configuration_is_refused(#[case] how: &str) {
    let plugin = plugin_node();
    let outcome = redirected(&plugin, "ADD", &chain(&[]), how);
    assert!(matches!(outcome.err_code(), Some(5 | 6)), "{outcome:?}");
    assert!(outcome.err_msg().contains("stdin"), "{outcome:?}");
    assert!(!plugin.node.has(RECORD_DIR));
}

#[rstest]
#[case::a_pipe_without_reader("exec 3>&1; { \"$0\"; echo $? >&3; } | true")]
#[case::a_full_disk("\"$0\" >/dev/full; echo $?")]
fn a_result_that_nobody_gets_is_no_success(#[case] how: &str) {
    let plugin = used_node();
    let pod = plugin.pod("p");
    let before = plugin.snapshot();
    // The shell must not die of the broken pipe that the plugin is to find. `true` may not have
    // ended when the plugin answers, but it has when bridge and portmap have done their work.
    let outcome = redirected(&plugin, "ADD", &chain(&[]), how);
    assert_eq!(outcome.stdout.trim(), "1", "{outcome:?}");
    plugin.succeed("DEL", &chain(&[]), &pod);
    plugin.node.assert_unchanged(&before);
}

#[test]
fn a_plugin_that_prints_without_end_is_ended() {
    let plugin = used_node();
    let pod = plugin.pod("p");
    let before = plugin.snapshot();
    plugin.script(
        "loud",
        "[ $verb = DEL ] || head -c 100000000 /dev/zero | tr '\\0' ' '",
    );
    let outcome = plugin.fail("ADD", &chain(&[json!({ "type": "loud" })]), &pod, 100);
    assert!(outcome.err_msg().contains("\"loud\""), "{outcome:?}");
    assert!(outcome.stdout.len() < 10_000);
    plugin.node.assert_unchanged(&before);
}

#[test]
fn a_plugin_that_reads_no_input_gets_by() {
    let plugin = plugin_node();
    let pod = plugin.pod("p");
    plugin.script("deaf", r#"exec <&-; echo '{"cniVersion":"1.1.0"}'"#);
    // More than a pipe holds.
    let conf = with(
        only("deaf"),
        "args",
        json!({ "padding": "x".repeat(1 << 20) }),
    );
    plugin.succeed("ADD", &conf, &pod);
    plugin.succeed("DEL", &conf, &pod);
    assert!(!plugin.node.has(RECORD_DIR));
}

#[test]
fn a_plugin_that_closes_its_output_and_stays_is_ended_at_the_deadline() {
    let plugin = plugin_node();
    let pod = plugin.pod("p");
    let body =
        r#"[ $verb = DEL ] && exit; echo '{"cniVersion":"1.1.0"}'; exec >&-; exec sleep 1000"#;
    plugin.script("stays", body);
    let conf = with(only("stays"), "delegate_timeout_seconds", json!(1));
    let outcome = plugin.fail("ADD", &conf, &pod, 101);
    assert!(outcome.elapsed < Duration::from_secs(10), "{outcome:?}");
    assert!(!plugin.node.has(RECORD_DIR));
}

#[test]
fn plugins_get_signals_and_stdin_as_a_runtime_would_give_them() {
    const SIGPIPE: u64 = 1 << 12;
    let plugin = plugin_node();
    let pod = plugin.pod("p");
    let body = r#"[ $verb = DEL ] && exit
grep -E '^Sig(Ign|Blk):' /proc/self/status > /run/faults-signals
cat > /run/faults-stdin
echo complaint >&2
echo '{"cniVersion":"1.1.0"}'"#;
    plugin.script("curious", body);
    let outcome = plugin.succeed("ADD", &only("curious"), &pod);
    // A plugin that ignores SIGPIPE would go on after its caller has died.
    for line in plugin.node.read("/run/faults-signals").unwrap().lines() {
        let (_, mask) = line.split_once('\t').unwrap();
        assert_eq!(
            u64::from_str_radix(mask, 16).unwrap() & SIGPIPE,
            0,
            "{line}"
        );
    }
    assert!(
        plugin
            .node
            .read("/run/faults-stdin")
            .unwrap()
            .contains("faultnet")
    );
    assert_eq!(outcome.stderr, "complaint\n");
    plugin.succeed("DEL", &only("curious"), &pod);
}

#[test]
fn a_broken_pipe_does_not_kill_headcni() {
    let plugin = plugin_node();
    let _pod = plugin.pod("p");
    plugin.script("plain", r#"echo '{"cniVersion":"1.1.0"}'"#);
    let conf = with(only("plain"), "log_level", json!("debug"));
    // Nobody reads stderr, where warnings and the log go.
    let how = "exec 3>&1; { KLOG_LOGTOSTDERR=true \"$0\" 2>&1 >&3; echo $? >&3; } | true";
    let outcome = redirected(&plugin, "ADD", &conf, how);
    assert_eq!(outcome.status.signal(), None);
    assert!(outcome.stdout.trim().ends_with("}\n0"), "{outcome:?}");
    succeeded(redirected(&plugin, "DEL", &conf, "exec \"$0\""));
}
