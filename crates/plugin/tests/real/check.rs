//! CHECK notices what is missing.

use lab::{Ignore, Netns, Outcome, Pod};
use rstest::rstest;
use serde_json::{Value, json};

use crate::calls::*;

fn checked(conf: &Value, result: &Value, pod: &Pod) -> Outcome {
    ask("CHECK", &merged(conf, json!({"prevResult": result})), pod)
}

/// Undoes a part of what ADD did in the pod `p`, whose lease is 10.244.1.2.
#[rstest]
#[case::the_link(&["ip", "-n", "p", "link", "del", "eth0"])]
#[case::an_address(&["ip", "-n", "p", "address", "del", "10.244.1.2/24", "dev", "eth0"])]
#[case::a_route(&["ip", "-n", "p", "route", "del", "10.244.0.0/16"])]
#[case::the_default_route(&["ip", "-n", "p", "route", "del", "default"])]
#[case::the_lease(&["rm", "/var/lib/cni/networks/net/10.244.1.2"])]
#[case::the_bridge(&["ip", "link", "del", "cni0"])]
fn check_fails_without(#[case] damage: &[&str]) {
    let node = node();
    let pod = node.pod("p").unwrap();
    let conf = delegating("1.1.0", json!({}));
    let result = ask("ADD", &conf, &pod).ok_json().unwrap();
    let outcome = checked(&conf, &result, &pod);
    outcome.ok().unwrap();
    assert_eq!(outcome.stdout, "", "CHECK has nothing to say");

    node.run(damage).unwrap();
    let outcome = checked(&conf, &result, &pod);
    let code = outcome.err_code().unwrap();
    let message = refused(&outcome, code);
    assert!(message.starts_with("bridge: "), "{message}");
    // It is not CHECK that mends or cleans up.
    assert_eq!(records(&node, "net").len(), 1);
    ask("DEL", &conf, &pod).ok().unwrap();
}

#[test]
fn a_leftover_address_fails_check_only_if_the_result_lists_it() {
    let node = node();
    let pod = node.pod("p").unwrap();
    let conf = delegating("1.0.0", json!({}));
    let mut result = ask("ADD", &conf, &pod).ok_json().unwrap();
    let more = [
        "ip",
        "-n",
        "p",
        "address",
        "add",
        "10.99.0.1/32",
        "dev",
        "eth0",
    ];
    node.run(more).unwrap();
    checked(&conf, &result, &pod).ok().unwrap();
    let listed = json!({"address": "10.99.0.2/32", "interface": 2});
    result["ips"].as_array_mut().unwrap().push(listed);
    assert!(!checked(&conf, &result, &pod).status.success());
}

#[test]
fn check_without_a_result_is_an_error() {
    let node = node();
    let pod = node.pod("p").unwrap();
    let conf = delegating("1.0.0", json!({}));
    ask("ADD", &conf, &pod).ok().unwrap();
    let message = refused(&ask("CHECK", &conf, &pod), 7).to_owned();
    assert!(message.contains("prevResult"), "{message}");
}

#[test]
fn check_of_an_unknown_container_fails() {
    let node = node();
    let (known, unknown) = (node.pod("known").unwrap(), node.pod("unknown").unwrap());
    let conf = delegating("1.0.0", json!({}));
    let result = ask("ADD", &conf, &known).ok_json().unwrap();
    let spares = Ignore::new().spare_records("/var/lib/cni/headcni/net");
    let before = node.snapshot(DIRS).unwrap().ignoring(spares);
    assert!(!checked(&conf, &result, &unknown).status.success());
    node.assert_unchanged(&before);
}
