//! Many calls at once.

use std::collections::BTreeSet;
use std::thread;
use std::time::Duration;

use lab::{Call, DEADLINE, Netns, Outcome, eventually};
use rstest::rstest;
use serde_json::{Value, json};

use crate::killing::Traces;
use crate::scene::{STATE_DIR, Scene, call, chain, headcni, with};

/// Runs all calls at the same time.
fn at_once(scene: &Scene, calls: &[Call]) -> Vec<Outcome> {
    thread::scope(|scope| {
        let start = |call| scope.spawn(move || scene.run(call));
        let running: Vec<_> = calls.iter().map(start).collect();
        running.into_iter().map(|one| one.join().unwrap()).collect()
    })
}

#[test]
fn forty_pods_come_and_go_at_once() {
    let scene = Scene::used();
    let pods: Vec<_> = (0..40).map(|n| scene.pod(&format!("p{n}"))).collect();
    let before = scene.snapshot();
    // One host port can't be forty pods'.
    let conf = with(chain(&[]), "runtimeConfig", Value::Null);
    let calls = |verb| -> Vec<Call> { pods.iter().map(|pod| call(verb, &conf).pod(pod)).collect() };

    let results = at_once(&scene, &calls("ADD"));
    let address = |outcome: &Outcome| {
        let result = outcome.ok_json().unwrap();
        result["ips"][0]["address"].as_str().unwrap().to_owned()
    };
    let addresses: BTreeSet<_> = results.iter().map(address).collect();
    assert_eq!(addresses.len(), pods.len());
    assert_eq!(scene.files(STATE_DIR).len(), pods.len());
    assert_eq!(pods[39].links().unwrap(), ["eth0"]);

    for outcome in at_once(&scene, &calls("DEL")) {
        outcome.ok().unwrap();
    }
    scene.node.assert_unchanged(&before);
    assert!(
        !scene.node.has(STATE_DIR),
        "the network's directory goes with its last pod"
    );
}

#[rstest]
#[case(&["ADD", "DEL"])]
#[case(&["ADD", "ADD"])]
#[case(&["DEL", "DEL", "ADD", "DEL"])]
fn calls_for_one_attachment_at_once_leave_nothing_after_a_last_del(#[case] verbs: &[&str]) {
    let scene = Scene::used();
    let pod = scene.pod("p");
    let conf = chain(&[]);
    let (before, traces) = (scene.snapshot(), Traces::of(&scene));
    let calls: Vec<_> = verbs
        .iter()
        .map(|verb| call(verb, &conf).pod(&pod))
        .collect();
    for round in 0..10 {
        if round % 2 == 1 {
            // Not only from nothing.
            scene.done("ADD", &conf, &pod);
        }
        let outcomes = at_once(&scene, &calls);
        for (verb, outcome) in verbs.iter().zip(&outcomes) {
            assert!(*verb == "ADD" || outcome.status.success(), "{outcomes:?}");
        }
        scene.done("DEL", &conf, &pod);
        assert_eq!(Traces::of(&scene), traces, "{outcomes:?}");
    }
    scene.node.assert_unchanged(&before);
}

#[test]
fn an_add_waits_for_a_del_that_knows_nothing_of_it() {
    // Else the DEL could release the address that the ADD has just been given.
    let scene = Scene::new();
    let pod = scene.pod("p");
    let body = "
echo $verb begins >> /run/faults-log
tries=0
while [ $verb = DEL ] && [ ! -e /run/faults-go ] && [ $tries -lt 2000 ]; do
    sleep 0.01; tries=$((tries + 1))
done
echo $verb ends >> /run/faults-log
echo '{\"cniVersion\": \"1.1.0\"}'";
    scene.script("slow", body);
    let conf = with(chain(&[]), "plugins", json!([{ "type": "slow" }]));
    let on_p = |verb| {
        call(verb, &conf)
            .pod(&pod)
            .spawn(&scene.node, headcni())
            .unwrap()
    };
    let del = on_p("DEL");
    let begun = || scene.node.has("/run/faults-log").then_some(());
    eventually(DEADLINE, "the plugin begins", begun).unwrap();
    let add = on_p("ADD");
    // To prove that it does not begin.
    thread::sleep(Duration::from_millis(300));
    let log = scene.node.read("/run/faults-log").unwrap();
    scene.node.write("/run/faults-go", "").unwrap();
    for call in [del, add] {
        assert!(call.wait(DEADLINE).unwrap().status.success());
    }
    assert_eq!(log, "DEL begins\n");
}

#[test]
fn of_two_adds_at_once_one_wins() {
    let scene = Scene::used();
    let pod = scene.pod("p");
    let conf = chain(&[]);
    for _ in 0..5 {
        let calls = [call("ADD", &conf).pod(&pod), call("ADD", &conf).pod(&pod)];
        let outcomes = at_once(&scene, &calls);
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
        assert_eq!(scene.leases().len(), 1);
        scene.done("DEL", &conf, &pod);
    }
}
