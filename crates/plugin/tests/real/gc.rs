//! Garbage collection: what is not valid goes, what is valid stays, and every child is told.

use lab::{Netns, Noop};
use serde_json::{Value, json};

use crate::calls::*;
use crate::witness_plugin::Witness;

fn valid(pairs: &[(&str, &str)]) -> Value {
    let pair =
        |(container, ifname): &(&str, &str)| json!({"containerID": container, "ifname": ifname});
    pairs.iter().map(pair).collect()
}

fn gc(conf: &Value, attachments: &Value) -> Value {
    // As libcni has it: the name of the specification, and the one that it had at first.
    let lists =
        json!({"cni.dev/valid-attachments": attachments, "cni.dev/attachments": attachments});
    merged(conf, lists)
}

#[test]
fn valid_attachments_are_untouched_and_the_others_go() {
    let node = node();
    let pods = ["keep", "drop", "part"].map(|name| node.pod(name).unwrap());
    let [keep, drop, part] = &pods;
    let conf = delegating("1.1.0", json!({"ipam": {"routes": []}}));
    let before = node.snapshot(DIRS).unwrap().ignoring(lasting("net"));
    for pod in &pods {
        ask("ADD", &conf, pod).ok().unwrap();
    }
    let second = call("ADD", &conf).pod(part).ifname("net1");
    run(&node, &second).ok().unwrap();
    let records_before = node
        .read("/var/lib/cni/headcni/net/keep@eth0.json")
        .unwrap();

    let list = valid(&[("keep", "eth0"), ("part", "net1"), ("unknown", "eth0")]);
    let outcome = run(&node, &call("GC", &gc(&conf, &list)));
    outcome.ok().unwrap();
    assert_eq!(outcome.stdout, "");
    assert_eq!(keep.links().unwrap(), ["eth0"]);
    assert!(drop.links().unwrap().is_empty());
    assert_eq!(part.links().unwrap(), ["net1"]);
    assert_eq!(records(&node, "net"), ["keep@eth0.json", "part@net1.json"]);
    assert_eq!(
        node.read("/var/lib/cni/headcni/net/keep@eth0.json")
            .unwrap(),
        records_before
    );
    for (address, is_kept) in [
        ("10.244.1.2", true),
        ("10.244.1.3", false),
        ("10.244.1.4", false),
        ("10.244.1.5", true),
    ] {
        assert_eq!(is_leased(&node, "net", address), is_kept, "{address}");
    }
    keep.ping("10.244.1.1").unwrap();

    run(&node, &call("GC", &gc(&conf, &valid(&[]))))
        .ok()
        .unwrap();
    node.assert_unchanged(&before);
}

#[test]
fn an_attachment_is_collected_though_its_namespace_is_gone() {
    let node = node();
    let pod = node.pod("p").unwrap();
    let conf = delegating("1.1.0", json!({}));
    let before = node.snapshot(DIRS).unwrap().ignoring(lasting("net"));
    ask("ADD", &conf, &pod).ok().unwrap();
    pod.delete().unwrap();
    assert!(is_leased(&node, "net", "10.244.1.2"));
    run(&node, &call("GC", &gc(&conf, &valid(&[]))))
        .ok()
        .unwrap();
    node.assert_unchanged(&before);
}

#[test]
fn another_network_is_none_of_its_business() {
    let node = node();
    let pod = node.pod("p").unwrap();
    let conf = delegating("1.1.0", json!({}));
    ask("ADD", &conf, &pod).ok().unwrap();
    let before = node.snapshot(DIRS).unwrap();
    let other = merged(&conf, json!({"name": "other"}));
    run(&node, &call("GC", &gc(&other, &valid(&[]))))
        .ok()
        .unwrap();
    node.assert_unchanged(&before);
    pod.ping("10.244.1.1").unwrap();
}

#[test]
fn every_member_is_told_what_is_valid() {
    let node = node();
    let noops = [Noop::new().unwrap(), Noop::new().unwrap()];
    let members = noops.each_ref().map(Noop::conf);
    let conf = chaining("1.1.0", &members, json!({}));
    let list = valid(&[("a", "eth0"), ("b", "net1")]);
    let conf = gc(&conf, &list);
    run(&node, &call("GC", &conf)).ok().unwrap();
    for (noop, member) in noops.iter().zip(members) {
        let calls = noop.calls().unwrap();
        assert_eq!(calls.len(), 1);
        assert_eq!(calls[0].verb, "GC");
        let expected = merged(
            &member,
            json!({
                "cniVersion": "1.1.0", "name": "net",
                "cni.dev/valid-attachments": list, "cni.dev/attachments": list,
            }),
        );
        assert_eq!(calls[0].conf, expected);
    }
}

#[test]
fn the_collected_are_undone_backwards_before_the_members_are_told() {
    let node = node();
    let pod = node.pod("p").unwrap();
    let witness = Witness::new(&["first", "second"], &json!({"cniVersion": "1.1.0"}));
    let members = ["first", "second"].map(|kind| json!({"type": kind}));
    let conf = chaining("1.1.0", &members, json!({}));
    let path = format!("{}:{}", witness.path(), cni_path());
    let args = "IgnoreUnknown=1;K8S_POD_NAME=web-0";
    let add = call("ADD", &conf).pod(&pod).path(&path).args(args);
    run(&node, &add).ok().unwrap();
    let conf = gc(&conf, &valid(&[]));
    run(&node, &call("GC", &conf).path(&path)).ok().unwrap();
    let expected = ["second DEL", "first DEL", "first GC", "second GC"];
    assert_eq!(witness.order()[2..], expected);
    let calls = witness.calls();
    let variable = |index: usize, name: &str| {
        let found = calls[index].env.iter().find(|(key, _)| key == name);
        found.map(|(_, value)| value.to_str().unwrap().to_owned())
    };
    for index in [2, 3] {
        assert_eq!(variable(index, "CNI_CONTAINERID").unwrap(), "p");
        assert_eq!(variable(index, "CNI_IFNAME").unwrap(), "eth0");
        assert_eq!(variable(index, "CNI_ARGS").unwrap(), args);
        assert_eq!(variable(index, "CNI_NETNS").unwrap(), pod.netns_path());
        assert_eq!(calls[index].conf().get("cni.dev/valid-attachments"), None);
    }
}

#[test]
fn gc_goes_on_after_an_error_and_tells_it() {
    let node = node();
    let mut noops = [
        Noop::new().unwrap(),
        Noop::new().unwrap(),
        Noop::new().unwrap(),
    ];
    noops[0].report_error(999, "first trouble").unwrap();
    noops[1].report_error(998, "second trouble").unwrap();
    let conf = chaining("1.1.0", &noops.each_ref().map(Noop::conf), json!({}));
    let outcome = run(&node, &call("GC", &gc(&conf, &valid(&[]))));
    assert!(!outcome.status.success());
    for trouble in ["first trouble", "second trouble"] {
        assert!(outcome.stdout.contains(trouble), "{}", outcome.stdout);
    }
    assert_eq!(noops[2].verbs().unwrap(), ["GC"]);
}
