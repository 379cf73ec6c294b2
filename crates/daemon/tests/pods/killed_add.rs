//! An ADD that was killed and that the runtime forgot.

use lab::{Netns, Syscalls, eventually};
use rstest::rstest;
use serde_json::Value;

use crate::agent::{GRACE, Step};
use crate::ended_pods::await_links;
use crate::fixture::{PodsNode, bridge, call, native, observations, with_port};

#[derive(Clone, Copy, Debug, PartialEq)]
enum Namespace {
    Stays,
    Goes,
}

#[rstest]
#[case::native(with_port(8080), 6)]
#[case::bridge(bridge(), 4)]
fn what_a_killed_add_created_is_collected(
    #[case] conf: Value,
    #[case] step: usize,
    #[values(Namespace::Stays, Namespace::Goes)] namespace: Namespace,
) {
    let fixture = PodsNode::used(&conf);
    let _neighbour = fixture.attached("neighbour", &without_port(&conf));
    let pod = fixture.pod("p");
    let add = call("ADD", &conf).pod(&pod);
    let trace = add
        .trace(&fixture.node, "/opt/cni/bin/headcni", Syscalls::All)
        .unwrap();
    trace.outcome.ok().unwrap();
    fixture.call_ok("DEL", &conf, &pod);
    pod.delete().unwrap();
    // From the record on; earlier system calls start the process.
    let begun = trace
        .moments
        .iter()
        .position(|moment| moment.line.contains("p@eth0.json"));
    let moments = trace.moments.iter().skip(begun.unwrap()).step_by(step);

    let before = fixture.snapshot();
    let (mut collected, mut complete) = (0, 0);
    for moment in moments {
        let pod = fixture.pod("p");
        add.kill_at(&fixture.node, "/opt/cni/bin/headcni", moment)
            .unwrap();
        await_unlocked(&fixture);
        let record = fixture.record("p");
        let is_complete = record.is_some_and(|record| record["progress"] == "done");
        if namespace == Namespace::Goes {
            pod.delete().unwrap();
            await_links(&fixture, 1);
        }
        let found = fixture.collected(vec![
            Step::pass(0),
            Step::pass(GRACE + 1),
            Step::pass(2 * GRACE + 2),
        ]);
        if is_complete && namespace == Namespace::Stays {
            // The ADD was complete but for its output: it is like a running pod.
            assert_eq!(found, [], "{}", moment.line);
            fixture.call_ok("DEL", &conf, &pod);
            complete += 1;
        }
        collected += found.len();
        assert!(!fixture.has_record("p"), "{}", moment.line);
        if namespace == Namespace::Stays {
            assert_eq!(pod.links().unwrap(), [""; 0], "{}", moment.line);
            pod.delete().unwrap();
        }
        fixture.node.assert_unchanged(&before);
    }
    assert!(collected > 5, "{collected} collected, {complete} complete");
    assert_eq!(fixture.collected(observations()), []);
}

fn without_port(conf: &Value) -> Value {
    if conf.get("delegate").is_some() {
        conf.clone()
    } else {
        native()
    }
}

/// Child plugins of the killed ADD run on for a while.
fn await_unlocked(fixture: &PodsNode) {
    let free = || {
        let script = "test ! -e $0 || flock --nonblock $0 true";
        let path = "/var/lib/cni/headcni/net/p@eth0.json";
        let tried = fixture.node.attempt(["sh", "-c", script, path]).unwrap();
        tried.status.success().then_some(())
    };
    eventually(lab::DEADLINE, "the record is unlocked", free).unwrap();
}
