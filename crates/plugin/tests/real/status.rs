//! STATUS tells whether an ADD could work, and otherwise why not.

use lab::{Netns, Node, Noop, Outcome};
use rstest::rstest;
use serde_json::{Value, json};

use crate::calls::*;

fn status(node: &Node, conf: &Value) -> Outcome {
    run(node, &call("STATUS", conf))
}

#[test]
fn a_node_with_all_that_is_needed_is_ready() {
    let node = node();
    let conf = delegating("1.1.0", json!({}));
    let before = node.snapshot(DIRS).unwrap();
    let outcome = status(&node, &conf);
    outcome.ok().unwrap();
    assert_eq!(outcome.stdout, "");
    node.assert_unchanged(&before);
}

#[rstest]
#[case::of_a_delegate(None)]
#[case::of_the_first_member(Some(0))]
#[case::of_the_last_member(Some(1))]
fn the_delegates_own_error_is_passed_on(#[case] member: Option<usize>) {
    let node = node();
    let (mut ill, well) = (Noop::new().unwrap(), Noop::new().unwrap());
    ill.report_error(51, "the uplink is down").unwrap();
    let conf = match member {
        None => merged(
            &delegating("1.1.0", json!({})),
            json!({"delegate": ill.conf()}),
        ),
        Some(0) => chaining("1.1.0", &[ill.conf(), well.conf()], json!({})),
        Some(_) => chaining("1.1.0", &[well.conf(), ill.conf()], json!({})),
    };
    let outcome = status(&node, &conf);
    let message = refused(&outcome, 51);
    assert!(message.contains("the uplink is down"), "{message}");
    ill.reset().unwrap();
    status(&node, &conf).ok().unwrap();
    let expected: &[&str] = if member.is_some() { &["STATUS"] } else { &[] };
    let seen = well.verbs().unwrap();
    assert!(seen.starts_with(&expected.iter().map(ToString::to_string).collect::<Vec<_>>()));
    assert_eq!(ill.verbs().unwrap(), ["STATUS", "STATUS"]);
}

#[rstest]
#[case::of_a_delegate(delegating("1.1.0", json!({})))]
#[case::of_a_member(chaining("1.1.0", &[json!({"type": "headcni", "delegate": {}})], json!({})))]
fn without_a_subnet_file_nothing_is_available(#[case] conf: Value) {
    let node = Node::new("n1").unwrap();
    let outcome = status(&node, &conf);
    let message = refused(&outcome, 50);
    assert!(message.contains("/run/headcni/subnet.env"), "{message}");
    assert!(message.contains("HEADCNI_SUBNET"), "{message}");
    node.write(api::paths::SUBNET_FILE, SUBNET_ENV).unwrap();
    status(&node, &conf).ok().unwrap();
}

#[rstest]
#[case::read_only("mount -t tmpfs -o ro tmpfs /run/data")]
#[case::a_file("rm -r /run/data && touch /run/data")]
fn without_a_place_for_records_nothing_is_available(#[case] damage: &str) {
    let node = node();
    let conf = delegating("1.1.0", json!({"dataDir": "/run/data"}));
    status(&node, &conf).ok().unwrap();
    node.run(["sh", "-c", damage]).unwrap();
    let outcome = status(&node, &conf);
    let message = refused(&outcome, 50);
    assert!(message.contains("/run/data"), "{message}");
}

#[test]
fn a_missing_delegate_is_no_readiness() {
    let node = node();
    let conf = delegating("1.1.0", json!({"delegate": {"type": "nonesuch"}}));
    let outcome = status(&node, &conf);
    assert!(!outcome.status.success());
    assert!(outcome.err_msg().contains("nonesuch"), "{outcome:?}");
}

#[test]
fn other_verbs_work_though_status_fails() {
    let node = node();
    let pod = node.pod("p").unwrap();
    let mut noop = Noop::new().unwrap();
    let conf = merged(
        &delegating("1.1.0", json!({})),
        json!({"delegate": noop.conf()}),
    );
    noop.report_error(50, "not now").unwrap();
    refused(&status(&node, &conf), 50);
    noop.reset().unwrap();
    noop.report_result(&json!({"cniVersion": "1.1.0"})).unwrap();
    ask("ADD", &conf, &pod).ok().unwrap();
    noop.reset().unwrap();
    ask("DEL", &conf, &pod).ok().unwrap();
}
