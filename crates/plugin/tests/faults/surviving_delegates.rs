//! Plugins that outlive a killed headcni: whoever comes next waits for them.

use lab::scenario::PluginNode;
use std::time::Duration;

use lab::{Call, DEADLINE, Netns, Running, eventually};
use rstest::rstest;
use serde_json::{Value, json};

use crate::networks::{NETWORK, RECORD_DIR, call, headcni, plugin_node, succeeded, with};

/// On ADD makes a link, but only when told to go on; on DEL deletes it.
const SLOW: &str = "
echo $verb begins >> /run/faults-log
if [ $verb = ADD ]; then
    tries=0
    while [ ! -e /run/faults-go ] && [ $tries -lt 2000 ]; do sleep 0.01; tries=$((tries + 1)); done
    ip link add late type bridge || exit 1
else
    ip link delete late 2>/dev/null
fi
echo $verb ends >> /run/faults-log
echo '{\"cniVersion\": \"1.1.0\"}'";

fn conf(kind: &str) -> Value {
    json!({ "cniVersion": "1.1.0", "name": NETWORK, "type": "headcni",
            "delegate_timeout_seconds": 15, "plugins": [{ "type": kind }] })
}

fn on_p(verb: &str, conf: &Value) -> Call {
    let conf = with(conf.clone(), "cni.dev/valid-attachments", json!([]));
    let call = call(verb, &conf).container_id("p").ifname("eth0");
    call.netns("/run/netns/p")
}

/// Starts an ADD and returns when its plugin is at work. Nothing but the ADD holds its output.
fn started(plugin: &PluginNode, conf: &Value) -> Running {
    let quiet = ["sh", "-c", "exec \"$0\" >/dev/null 2>&1"];
    let add = on_p("ADD", conf)
        .under(quiet)
        .spawn(&plugin.node, headcni())
        .unwrap();
    let begun = || plugin.node.has("/run/faults-log").then_some(());
    eventually(DEADLINE, "the plugin begins", begun).unwrap();
    add
}

#[rstest]
#[case("DEL", &["ADD begins", "ADD ends", "DEL begins", "DEL ends"])]
#[case("GC", &["ADD begins", "ADD ends", "DEL begins", "DEL ends", "GC begins", "GC ends"])]
#[case("ADD", &["ADD begins", "ADD ends", "DEL begins", "DEL ends", "ADD begins", "ADD ends"])]
fn the_next_call_waits_for_the_plugins_of_a_killed_add(#[case] verb: &str, #[case] log: &[&str]) {
    let plugin = plugin_node();
    let _pod = plugin.pod("p");
    plugin.script("slow", SLOW);
    let conf = conf("slow");
    let add = started(&plugin, &conf);
    add.kill();
    assert!(!add.wait(DEADLINE).unwrap().status.success());

    let next = on_p(verb, &conf).spawn(&plugin.node, headcni()).unwrap();
    // To prove that it does not begin.
    std::thread::sleep(Duration::from_millis(300));
    assert_eq!(plugin.node.read("/run/faults-log").unwrap(), "ADD begins\n");
    plugin.node.write("/run/faults-go", "").unwrap();
    let output = next.wait(DEADLINE).unwrap();
    assert!(output.status.success(), "{output:?}");
    let seen = plugin.node.read("/run/faults-log").unwrap();
    assert_eq!(seen.lines().collect::<Vec<_>>(), log);
    if verb == "ADD" {
        assert_eq!(plugin.node.links().unwrap(), ["late"], "of the second ADD");
        succeeded(plugin.run(&on_p("DEL", &conf)));
    }
    assert_eq!(plugin.node.links().unwrap(), [""; 0]);
    assert!(!plugin.node.has(RECORD_DIR));
}

#[test]
fn a_call_that_finds_another_at_work_gives_up_at_the_deadline() {
    let plugin = plugin_node();
    let _pod = plugin.pod("p");
    plugin.script("slow", SLOW);
    let conf = conf("slow");
    let add = started(&plugin, &conf);
    let hasty = with(conf.clone(), "delegate_timeout_seconds", json!(0.3));
    for verb in ["DEL", "ADD", "GC"] {
        let outcome = plugin.run(&on_p(verb, &hasty));
        assert_eq!(outcome.err_code(), Some(11), "{verb}: {outcome:?}");
        assert!(
            outcome.err_msg().contains("container p interface eth0"),
            "{outcome:?}"
        );
    }
    let other = on_p("DEL", &hasty).container_id("q");
    succeeded(plugin.run(&other));

    plugin.node.write("/run/faults-go", "").unwrap();
    assert!(
        add.wait(DEADLINE).unwrap().status.success(),
        "the ADD was not harmed"
    );
    assert_eq!(plugin.node.links().unwrap(), ["late"]);
    succeeded(plugin.run(&on_p("DEL", &conf)));
    assert_eq!(plugin.node.links().unwrap(), [""; 0]);
    assert!(!plugin.node.has(RECORD_DIR));
}

#[test]
fn a_process_that_a_plugin_leaves_for_good_does_not_hold_up_del() {
    let plugin = plugin_node();
    let _pod = plugin.pod("p");
    // Like a DHCP client or a proxy: it lives until DEL, and longer than DEL would wait.
    let body = "
if [ $verb = ADD ]; then
    setsid sleep 20 </dev/null >/dev/null 2>&1 &
    echo $! > /run/faults-daemon
    echo '{\"cniVersion\": \"1.1.0\"}'
elif [ -e /run/faults-daemon ]; then
    kill $(cat /run/faults-daemon); rm /run/faults-daemon
fi";
    plugin.script("daemonizes", body);
    let conf = with(conf("daemonizes"), "delegate_timeout_seconds", json!(2));
    succeeded(plugin.run(&on_p("ADD", &conf)));
    succeeded(plugin.run(&on_p("DEL", &conf)));
    assert!(!plugin.node.has("/run/faults-daemon"));
    assert!(!plugin.node.has(RECORD_DIR));
}
