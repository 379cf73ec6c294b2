//! An ADD that was killed at one moment or another, and a runtime that forgot it.

use lab::{Netns, Syscalls, eventually};
use rstest::rstest;
use serde_json::Value;

use crate::agent::{GRACE, Step};
use crate::dead::wait_for_link;
use crate::scene::{Scene, bridge, call, looks, native, with_port};

/// What becomes of the pod's namespace.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Namespace {
    Stays,
    Goes,
}

#[rstest]
#[case::native(with_port(8080), 6)]
#[case::bridge(bridge(), 4)]
fn whatever_a_killed_add_made_is_collected(
    #[case] conf: Value,
    #[case] step: usize,
    #[values(Namespace::Stays, Namespace::Goes)] namespace: Namespace,
) {
    let scene = Scene::used(&conf);
    let _neighbour = scene.attached("neighbour", &without_port(&conf));
    let pod = scene.pod("p");
    let add = call("ADD", &conf).pod(&pod);
    let trace = add
        .trace(&scene.node, "/opt/cni/bin/headcni", Syscalls::All)
        .unwrap();
    trace.outcome.ok().unwrap();
    scene.done("DEL", &conf, &pod);
    pod.delete().unwrap();
    // From the first sign of work on: what comes before is the start of a process.
    let begun = trace
        .moments
        .iter()
        .position(|moment| moment.line.contains("p@eth0.json"));
    let moments = trace.moments.iter().skip(begun.unwrap()).step_by(step);

    let before = scene.snapshot();
    let (mut collected, mut complete) = (0, 0);
    for moment in moments {
        let pod = scene.pod("p");
        add.kill_at(&scene.node, "/opt/cni/bin/headcni", moment)
            .unwrap();
        wait_for_lock(&scene);
        let record = scene.record("p");
        let is_complete = record.is_some_and(|record| record["progress"] == "done");
        if namespace == Namespace::Goes {
            pod.delete().unwrap();
            wait_for_link(&scene, 1);
        }
        let found = scene.collected(vec![
            Step::pass(0),
            Step::pass(GRACE + 1),
            Step::pass(2 * GRACE + 2),
        ]);
        if is_complete && namespace == Namespace::Stays {
            // It only could not say so any more: nobody can tell it from a pod that lives.
            assert_eq!(found, [], "{}", moment.line);
            scene.done("DEL", &conf, &pod);
            complete += 1;
        }
        collected += found.len();
        assert!(!scene.has_record("p"), "{}", moment.line);
        if namespace == Namespace::Stays {
            assert_eq!(pod.links().unwrap(), [""; 0], "{}", moment.line);
            pod.delete().unwrap();
        }
        scene.node.assert_unchanged(&before);
    }
    assert!(collected > 5, "{collected} collected, {complete} complete");
    assert_eq!(scene.collected(looks()), []);
}

fn without_port(conf: &Value) -> Value {
    if conf.get("delegate").is_some() {
        conf.clone()
    } else {
        native()
    }
}

/// What the killed ADD has executed runs on for a while.
fn wait_for_lock(scene: &Scene) {
    let free = || {
        let script = "test ! -e $0 || flock --nonblock $0 true";
        let path = "/var/lib/cni/headcni/net/p@eth0.json";
        let tried = scene.node.attempt(["sh", "-c", script, path]).unwrap();
        tried.status.success().then_some(())
    };
    eventually(lab::DEADLINE, "the lock is free", free).unwrap();
}
