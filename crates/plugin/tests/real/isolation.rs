//! Networks and interfaces of one container don't get in each other's way.

use lab::{Call, Netns, Pod};
use serde_json::{Value, json};

use crate::calls::*;

fn attached(verb: &str, conf: &Value, pod: &Pod, ifname: &str) -> Call {
    call(verb, conf).pod(pod).ifname(ifname)
}

#[test]
fn two_networks_of_one_container_live_apart() {
    let node = node();
    let other_env = SUBNET_ENV.replace("10.244.1.0", "10.244.2.0");
    node.write("/etc/other.env", other_env).unwrap();
    let pod = node.pod("p").unwrap();
    let red = delegating("1.1.0", json!({}));
    let more = json!({
        "name": "blue", "subnetFile": "/etc/other.env",
        // Its own bridge, and no second default route.
        "delegate": {"bridge": "cni1"}, "ipam": {"routes": [{"dst": "10.245.0.0/16"}]},
    });
    let blue = delegating("1.1.0", more);
    let lasting = lasting("net")
        .link("cni1")
        .host_local("/var/lib/cni/networks/blue");
    let before = node.snapshot(DIRS).unwrap().ignoring(lasting);

    let first = run(&node, &attached("ADD", &red, &pod, "eth0"));
    let second = run(&node, &attached("ADD", &blue, &pod, "net1"));
    let (first, second) = (first.ok_json().unwrap(), second.ok_json().unwrap());
    assert_eq!(address(&first), "10.244.1.2");
    assert_eq!(address(&second), "10.244.2.2");
    assert_eq!(pod.links().unwrap(), ["eth0", "net1"]);
    assert_eq!(records(&node, "net").len(), 1);
    assert_eq!(records(&node, "blue").len(), 1);
    pod.ping("10.244.1.1").unwrap();
    pod.ping("10.244.2.1").unwrap();

    run(&node, &attached("DEL", &red, &pod, "eth0"))
        .ok()
        .unwrap();
    assert_eq!(pod.links().unwrap(), ["net1"]);
    assert!(!is_leased(&node, "net", "10.244.1.2"));
    assert!(is_leased(&node, "blue", "10.244.2.2"));
    pod.ping("10.244.2.1").unwrap();
    let known = merged(&blue, json!({"prevResult": second}));
    run(&node, &attached("CHECK", &known, &pod, "net1"))
        .ok()
        .unwrap();
    run(&node, &attached("DEL", &blue, &pod, "net1"))
        .ok()
        .unwrap();
    node.assert_unchanged(&before);
}

#[test]
fn two_interfaces_of_one_network_live_apart() {
    let node = node();
    let pod = node.pod("p").unwrap();
    // Two default routes would exclude each other.
    let conf = delegating("1.1.0", json!({"ipam": {"routes": []}}));
    let before = node.snapshot(DIRS).unwrap().ignoring(lasting("net"));
    let add = |ifname| run(&node, &attached("ADD", &conf, &pod, ifname));
    let first = add("eth0").ok_json().unwrap();
    let second = add("net1").ok_json().unwrap();
    assert_eq!(address(&first), "10.244.1.2");
    assert_eq!(address(&second), "10.244.1.3");
    assert_eq!(records(&node, "net"), ["p@eth0.json", "p@net1.json"]);
    assert_eq!(node.links().unwrap().len(), 3, "the bridge and two veths");

    run(&node, &attached("DEL", &conf, &pod, "eth0"))
        .ok()
        .unwrap();
    assert_eq!(pod.links().unwrap(), ["net1"]);
    assert!(!is_leased(&node, "net", "10.244.1.2"));
    assert!(is_leased(&node, "net", "10.244.1.3"));
    assert_eq!(records(&node, "net"), ["p@net1.json"]);
    let known = merged(&conf, json!({"prevResult": second}));
    run(&node, &attached("CHECK", &known, &pod, "net1"))
        .ok()
        .unwrap();
    run(&node, &attached("DEL", &conf, &pod, "net1"))
        .ok()
        .unwrap();
    node.assert_unchanged(&before);
}

#[test]
fn similar_names_are_not_the_same() {
    let node = node();
    let pods = ["a", "a-b", "a.b", "a_b", "A"].map(|name| node.pod(name).unwrap());
    let conf = delegating("1.1.0", json!({}));
    let before = node.snapshot(DIRS).unwrap().ignoring(lasting("net"));
    let mut addresses: Vec<_> = pods
        .iter()
        .map(|pod| address(&ask("ADD", &conf, pod).ok_json().unwrap()))
        .collect();
    addresses.dedup();
    assert_eq!(addresses.len(), pods.len(), "{addresses:?}");
    ask("DEL", &conf, &pods[0]).ok().unwrap();
    assert_eq!(records(&node, "net").len(), pods.len() - 1);
    for pod in &pods[1..] {
        pod.ping("10.244.1.1").unwrap();
        ask("DEL", &conf, pod).ok().unwrap();
    }
    node.assert_unchanged(&before);
}

#[test]
fn pods_started_at_once_get_addresses_of_their_own() {
    let node = node();
    let pods: Vec<_> = (0..8)
        .map(|number| node.pod(&format!("p{number}")).unwrap())
        .collect();
    let conf = delegating("1.1.0", json!({}));
    let before = node.snapshot(DIRS).unwrap().ignoring(lasting("net"));
    let each = |work: &(dyn Fn(&Pod) -> String + Sync)| -> Vec<String> {
        std::thread::scope(|scope| {
            let threads = pods.iter().map(|pod| scope.spawn(move || work(pod)));
            let threads: Vec<_> = threads.collect();
            let answers = threads.into_iter().map(|thread| thread.join().unwrap());
            answers.collect()
        })
    };
    let mut addresses = each(&|pod| address(&ask("ADD", &conf, pod).ok_json().unwrap()));
    addresses.sort();
    addresses.dedup();
    assert_eq!(addresses.len(), pods.len(), "{addresses:?}");
    assert_eq!(records(&node, "net").len(), pods.len());
    each(&|pod| {
        ask("DEL", &conf, pod).ok().unwrap();
        String::new()
    });
    node.assert_unchanged(&before);
}
