//! Many calls at once.

use lab::scenario::PluginNode;
use std::collections::BTreeSet;
use std::thread;
use std::time::Duration;

use lab::{Call, DEADLINE, Netns, Outcome, eventually};
use rstest::rstest;
use serde_json::{Value, json};

use crate::kill_points::Traces;
use crate::networks::{RECORD_DIR, call, chain, headcni, plugin_node, used_node, with};

/// Runs all calls at the same time.
fn at_once(plugin: &PluginNode, calls: &[Call]) -> Vec<Outcome> {
    thread::scope(|scope| {
        let start = |call| scope.spawn(move || plugin.run(call));
        let running: Vec<_> = calls.iter().map(start).collect();
        running.into_iter().map(|one| one.join().unwrap()).collect()
    })
}

#[test]
fn forty_pods_come_and_go_at_once() {
    let plugin = used_node();
    let pods: Vec<_> = (0..40).map(|n| plugin.pod(&format!("p{n}"))).collect();
    let before = plugin.snapshot();
    // One host port can't be forty pods'.
    let conf = with(chain(&[]), "runtimeConfig", Value::Null);
    let calls = |verb| -> Vec<Call> { pods.iter().map(|pod| call(verb, &conf).pod(pod)).collect() };

    let results = at_once(&plugin, &calls("ADD"));
    let address = |outcome: &Outcome| {
        let result = outcome.ok_json().unwrap();
        result["ips"][0]["address"].as_str().unwrap().to_owned()
    };
    let addresses: BTreeSet<_> = results.iter().map(address).collect();
    assert_eq!(addresses.len(), pods.len());
    assert_eq!(plugin.files(RECORD_DIR).len(), pods.len());
    assert_eq!(pods[39].links().unwrap(), ["eth0"]);

    for outcome in at_once(&plugin, &calls("DEL")) {
        outcome.ok().unwrap();
    }
    plugin.node.assert_unchanged(&before);
    assert!(
        !plugin.node.has(RECORD_DIR),
        "the network's directory goes with its last pod"
    );
}

#[rstest]
#[case(&["ADD", "DEL"])]
#[case(&["ADD", "ADD"])]
#[case(&["DEL", "DEL", "ADD", "DEL"])]
fn calls_for_one_attachment_at_once_leave_nothing_after_a_last_del(#[case] verbs: &[&str]) {
    let plugin = used_node();
    let pod = plugin.pod("p");
    let conf = chain(&[]);
    let (before, traces) = (plugin.snapshot(), Traces::of(&plugin));
    let calls: Vec<_> = verbs
        .iter()
        .map(|verb| call(verb, &conf).pod(&pod))
        .collect();
    for round in 0..10 {
        if round % 2 == 1 {
            // Not only from nothing.
            plugin.succeed("ADD", &conf, &pod);
        }
        let outcomes = at_once(&plugin, &calls);
        for (verb, outcome) in verbs.iter().zip(&outcomes) {
            assert!(*verb == "ADD" || outcome.status.success(), "{outcomes:?}");
        }
        plugin.succeed("DEL", &conf, &pod);
        assert_eq!(Traces::of(&plugin), traces, "{outcomes:?}");
    }
    plugin.node.assert_unchanged(&before);
}

#[test]
fn an_add_waits_for_a_del_that_knows_nothing_of_it() {
    // Else the DEL could release the address that the ADD has just been given.
    let plugin = plugin_node();
    let pod = plugin.pod("p");
    let body = "
echo $verb begins >> /run/faults-log
tries=0
while [ $verb = DEL ] && [ ! -e /run/faults-go ] && [ $tries -lt 2000 ]; do
    sleep 0.01; tries=$((tries + 1))
done
echo $verb ends >> /run/faults-log
echo '{\"cniVersion\": \"1.1.0\"}'";
    plugin.script("slow", body);
    let conf = with(chain(&[]), "plugins", json!([{ "type": "slow" }]));
    let on_p = |verb| {
        call(verb, &conf)
            .pod(&pod)
            .spawn(&plugin.node, headcni())
            .unwrap()
    };
    let del = on_p("DEL");
    let begun = || plugin.node.has("/run/faults-log").then_some(());
    eventually(DEADLINE, "the plugin begins", begun).unwrap();
    let add = on_p("ADD");
    // To prove that it does not begin.
    thread::sleep(Duration::from_millis(300));
    let log = plugin.node.read("/run/faults-log").unwrap();
    plugin.node.write("/run/faults-go", "").unwrap();
    for call in [del, add] {
        assert!(call.wait(DEADLINE).unwrap().status.success());
    }
    assert_eq!(log, "DEL begins\n");
}

#[test]
fn of_two_adds_at_once_one_wins() {
    let plugin = used_node();
    let pod = plugin.pod("p");
    let conf = chain(&[]);
    for _ in 0..5 {
        let calls = [call("ADD", &conf).pod(&pod), call("ADD", &conf).pod(&pod)];
        let outcomes = at_once(&plugin, &calls);
        let won = outcomes
            .iter()
            .filter(|outcome| outcome.status.success())
            .count();
        assert_eq!(won, 1, "{outcomes:?}");
        assert_eq!(
            pod.links().unwrap(),
            ["eth0"],
            "the loser did not undo the winner's work"
        );
        assert_eq!(plugin.leases().len(), 1);
        plugin.succeed("DEL", &conf, &pod);
    }
}
