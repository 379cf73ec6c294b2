//! An ADD for an interface that is there already harms nothing.

use lab::{Address, Ignore, Netns, Pod};
use rstest::rstest;
use serde_json::{Value, json};

use crate::calls::*;

/// Which interface it is, and what addresses it has but for the one that comes by itself.
fn identity(pod: &Pod) -> (Value, Value, Vec<Address>) {
    let link = pod.link("eth0").unwrap().unwrap();
    let mut addresses = pod.addresses().unwrap();
    addresses.retain(|address| !address.cidr.starts_with("fe80:"));
    (link["ifindex"].clone(), link["address"].clone(), addresses)
}

/// Makes `eth0` in the pod as somebody else would.
fn occupy(pod: &Pod) {
    for line in [
        "ip link add eth0 type bridge",
        "ip address add 10.1.2.3/24 dev eth0",
        "ip link set eth0 up",
    ] {
        pod.run(line.split(' ')).unwrap();
    }
}

#[rstest]
#[case::of_a_delegate(delegating("1.1.0", json!({})))]
#[case::of_a_chain(chaining("1.1.0", &[json!({"type": "headcni", "delegate": {}})], json!({})))]
#[case::of_a_chain_of_others(chaining("1.1.0", &[json!({
    "type": "bridge", "ipam": {"type": "host-local", "subnet": "10.244.1.0/24"},
})], json!({})))]
fn somebody_elses_interface_survives(#[case] conf: Value) {
    let node = node();
    let pod = node.pod("p").unwrap();
    occupy(&pod);
    let inside = identity(&pod);
    let spares = Ignore::new().spare_records("/var/lib/cni/headcni/net");
    let before = node.snapshot(DIRS).unwrap().ignoring(spares);
    let outcome = ask("ADD", &conf, &pod);
    let message = refused(&outcome, 102);
    assert!(message.contains("eth0"), "{message}");
    assert_eq!(identity(&pod), inside);
    node.assert_unchanged(&before);
}

#[test]
fn a_second_add_is_refused_and_the_first_lives_on() {
    let node = node();
    let pod = node.pod("p").unwrap();
    let conf = delegating("1.1.0", json!({}));
    let empty = node.snapshot(DIRS).unwrap().ignoring(lasting("net"));
    let result = ask("ADD", &conf, &pod).ok_json().unwrap();
    let spares = Ignore::new().spare_records("/var/lib/cni/headcni/net");
    let before = node.snapshot(DIRS).unwrap().ignoring(spares);
    let inside = (identity(&pod), main_routes(&pod));

    let outcome = ask("ADD", &conf, &pod);
    let message = refused(&outcome, 102);
    assert!(
        message.contains("eth0") && message.contains(" p "),
        "{message}"
    );
    node.assert_unchanged(&before);
    assert_eq!((identity(&pod), main_routes(&pod)), inside);
    pod.ping("10.244.1.1").unwrap();
    let known = merged(&conf, json!({"prevResult": result}));
    ask("CHECK", &known, &pod).ok().unwrap();
    ask("DEL", &known, &pod).ok().unwrap();
    node.assert_unchanged(&empty);
}

#[test]
fn after_del_the_same_interface_can_be_made_again() {
    let node = node();
    let pod = node.pod("p").unwrap();
    let conf = delegating("1.1.0", json!({}));
    for expected in ["10.244.1.2", "10.244.1.3"] {
        let result = ask("ADD", &conf, &pod).ok_json().unwrap();
        assert_eq!(address(&result), expected, "host-local goes on, not back");
        ask("DEL", &conf, &pod).ok().unwrap();
    }
    assert!(pod.links().unwrap().is_empty());
}

#[test]
fn of_two_adds_at_once_one_wins() {
    let node = node();
    let pod = node.pod("p").unwrap();
    let conf = delegating("1.1.0", json!({}));
    let before = node.snapshot(DIRS).unwrap().ignoring(lasting("net"));
    let outcomes: Vec<_> = std::thread::scope(|scope| {
        let add = || ask("ADD", &conf, &pod);
        let threads = [scope.spawn(add), scope.spawn(add)];
        threads
            .into_iter()
            .map(|thread| thread.join().unwrap())
            .collect()
    });
    let (winners, losers): (Vec<_>, Vec<_>) = outcomes
        .iter()
        .partition(|outcome| outcome.status.success());
    assert_eq!(winners.len(), 1, "{outcomes:?}");
    refused(losers[0], 102);
    pod.ping("10.244.1.1").unwrap();
    assert_eq!(node.links().unwrap().len(), 2, "the bridge and one veth");
    ask("DEL", &conf, &pod).ok().unwrap();
    node.assert_unchanged(&before);
}
