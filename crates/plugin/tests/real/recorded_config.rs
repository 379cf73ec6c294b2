//! An attachment is checked and undone with the configuration that it was made with.

use lab::{Netns, Node, Noop, Pod};
use rstest::rstest;
use serde_json::{Value, json};

use crate::calls::*;

const FILE: &str = "/etc/cni/net.d/10-net.conflist";

fn write(node: &Node, plugin: &Value) {
    let list = json!({"cniVersion": "1.1.0", "name": "net", "plugins": [plugin]});
    node.write(FILE, list.to_string()).unwrap();
}

fn tool(verb: &str, pod: &Pod) {
    cnitool(verb, "net", pod).run().unwrap().ok().unwrap();
}

/// What somebody may make of the file while a pod runs.
#[rstest]
#[case::another_bridge_and_store(json!({
    "type": "headcni", "delegate": {"bridge": "cni7"}, "ipam": {"dataDir": "/var/lib/cni/moved"},
}))]
#[case::another_delegate(json!({"type": "headcni", "delegate": {"type": "ptp"}}))]
#[case::a_chain(json!({"type": "headcni", "plugins": [{"type": "tuning"}]}))]
fn an_edited_file_changes_nothing_for_what_is_there(
    #[case] edited: Value,
    #[values("del", "gc")] end: &str,
) {
    let node = node();
    let pod = node.pod("p").unwrap();
    let ipam = json!({"dataDir": "/var/lib/cni/leases"});
    let original = json!({"type": "headcni", "delegate": {"bridge": "cni0"}, "ipam": ipam});
    write(&node, &original);
    let lasting = lasting("net")
        .host_local("/var/lib/cni/leases/net")
        .host_local("/var/lib/cni/moved/net")
        .path(FILE);
    let before = node.snapshot(DIRS).unwrap().ignoring(lasting);
    tool("add", &pod);
    assert!(node.has("/var/lib/cni/leases/net/10.244.1.2"));

    write(&node, &edited);
    tool("check", &pod);
    if end == "gc" {
        // Without its cache cnitool sends no DEL of its own.
        node.run(["rm", "-r", "/var/lib/cni/results"]).unwrap();
    }
    tool(end, &pod);
    assert!(pod.links().unwrap().is_empty());
    node.assert_unchanged(&before);
}

/// The runtime gives the result in the version of now, the delegate is called in that of then.
#[rstest]
#[case::a_newer_version("0.4.0", "1.1.0")]
#[case::an_older_version("1.1.0", "0.4.0")]
fn an_attachment_outlives_a_change_of_version(
    #[case] then: &str,
    #[case] now: &str,
    #[values("check", "del")] verb: &str,
) {
    let node = node();
    let pod = node.pod("p").unwrap();
    let lasting = lasting("net").path(FILE);
    let before = node.snapshot(DIRS).unwrap().ignoring(lasting);
    let members = json!([
        {"type": "headcni", "delegate": {"bridge": "cni0"}},
        {"type": "portmap", "capabilities": {"portMappings": true}},
    ]);
    let write = |version| {
        let plugin = json!({
            "type": "headcni", "plugins": members, "capabilities": {"portMappings": true},
        });
        let list = json!({"cniVersion": version, "name": "net", "plugins": [plugin]});
        node.write(FILE, list.to_string()).unwrap();
    };
    let tool = |verb| {
        let port = json!({"hostPort": 8080, "containerPort": 80, "protocol": "tcp"});
        let tool = cnitool(verb, "net", &pod);
        let outcome = tool.capabilities(&json!({"portMappings": [port]})).run();
        outcome.unwrap().ok().unwrap();
    };
    write(then);
    tool("add");
    write(now);
    tool(verb);
    if verb == "del" {
        assert!(pod.links().unwrap().is_empty());
        node.assert_unchanged(&before);
    }
}

#[test]
fn check_and_del_of_an_edited_chain_reach_the_members_of_then() {
    let node = node();
    let pod = node.pod("p").unwrap();
    let mut old = [Noop::new().unwrap(), Noop::new().unwrap()];
    let new = Noop::new().unwrap();
    let result = json!({"cniVersion": "1.1.0", "ips": [{"address": "10.0.0.2/24"}]});
    for noop in &mut old {
        noop.report_result(&result).unwrap();
    }
    let with_word = |noop: &Noop, word| merged(&noop.conf(), json!({"word": word}));
    let members = old.each_ref().map(|noop| with_word(noop, "then"));
    let conf = chaining("1.1.0", &members, json!({}));
    ask("ADD", &conf, &pod).ok().unwrap();

    let members = [with_word(&old[0], "now"), new.conf()];
    let conf = chaining("1.1.0", &members, json!({"prevResult": result}));
    ask("CHECK", &conf, &pod).ok().unwrap();
    ask("DEL", &conf, &pod).ok().unwrap();
    for noop in &old {
        assert_eq!(noop.verbs().unwrap(), ["ADD", "CHECK", "DEL"]);
        let calls = noop.calls().unwrap();
        assert!(calls.iter().all(|seen| seen.conf["word"] == "then"));
    }
    assert!(
        new.calls().unwrap().is_empty(),
        "it did nothing for this pod"
    );
}

#[test]
fn gc_reaches_members_of_then_as_long_as_their_pods_are_valid() {
    let node = node();
    let pod = node.pod("p").unwrap();
    let (mut old, new) = (Noop::new().unwrap(), Noop::new().unwrap());
    old.report_result(&json!({"cniVersion": "1.1.0"})).unwrap();
    let conf = chaining("1.1.0", &[old.conf()], json!({}));
    ask("ADD", &conf, &pod).ok().unwrap();
    let list = json!([{"containerID": "p", "ifname": "eth0"}]);
    let edited = chaining(
        "1.1.0",
        &[new.conf()],
        json!({"cni.dev/valid-attachments": list}),
    );
    run(&node, &call("GC", &edited)).ok().unwrap();
    assert_eq!(new.verbs().unwrap(), ["GC"]);
    assert_eq!(old.verbs().unwrap(), ["ADD", "GC"]);
    assert_eq!(
        old.calls().unwrap()[1].conf["cni.dev/valid-attachments"],
        list
    );
}

#[test]
fn without_state_the_configuration_at_hand_is_used() {
    let node = node();
    let pod = node.pod("p").unwrap();
    write(
        &node,
        &json!({"type": "headcni", "delegate": {"bridge": "cni0"}}),
    );
    let before = node.snapshot(DIRS).unwrap().ignoring(lasting("net"));
    tool("add", &pod);
    node.run(["rm", "-r", "/var/lib/cni/headcni"]).unwrap();
    tool("check", &pod);
    tool("del", &pod);
    assert!(pod.links().unwrap().is_empty());
    node.assert_unchanged(&before);
}

#[test]
fn without_state_and_subnet_file_the_runtimes_result_is_enough() {
    let node = node();
    let pod = node.pod("p").unwrap();
    write(
        &node,
        &json!({"type": "headcni", "delegate": {"bridge": "cni0"}}),
    );
    let lasting = lasting("net").path(api::paths::SUBNET_FILE);
    let before = node.snapshot(DIRS).unwrap().ignoring(lasting);
    tool("add", &pod);
    node.run(["rm", "-r", "/var/lib/cni/headcni", "/run/headcni"])
        .unwrap();
    tool("del", &pod);
    assert!(pod.links().unwrap().is_empty());
    node.assert_unchanged(&before);
}

#[test]
fn the_subnet_file_may_change_while_a_pod_runs() {
    let node = node();
    let pod = node.pod("p").unwrap();
    write(
        &node,
        &json!({"type": "headcni", "delegate": {"bridge": "cni0"}}),
    );
    let lasting = lasting("net").path(api::paths::SUBNET_FILE);
    let before = node.snapshot(DIRS).unwrap().ignoring(lasting);
    tool("add", &pod);
    let moved = SUBNET_ENV.replace("10.244.1.0", "10.244.2.0");
    node.write(api::paths::SUBNET_FILE, moved).unwrap();
    tool("check", &pod);
    node.write(api::paths::SUBNET_FILE, "HEADCNI_NETW").unwrap();
    tool("check", &pod);
    tool("del", &pod);
    node.assert_unchanged(&before);
}

/// The delegate refuses every verb with such a configuration, so that it did nothing; the record
/// must not keep the pod from going once somebody has mended the file.
#[test]
fn a_pod_goes_when_the_configuration_that_its_delegate_refused_is_mended() {
    let node = node();
    let pod = node.pod("p").unwrap();
    let before = node.snapshot(DIRS).unwrap().ignoring(lasting("net"));
    let broken = json!({"bridge": "cni0", "vlan": "not a number"});
    let broken = delegating("1.1.0", json!({"delegate": broken}));
    assert!(!ask("ADD", &broken, &pod).status.success());
    let mended = delegating("1.1.0", json!({}));
    ask("DEL", &mended, &pod).ok().unwrap();
    node.assert_unchanged(&before);
    ask("ADD", &mended, &pod).ok().unwrap();
    pod.ping("10.244.1.1").unwrap();
}

#[test]
fn records_are_for_their_owner_alone() {
    let node = node();
    let pod = node.pod("p").unwrap();
    ask("ADD", &delegating("1.1.0", json!({})), &pod)
        .ok()
        .unwrap();
    let modes = node.run(["find", "/var/lib/cni/headcni", "-printf", "%y %m\n"]);
    for line in modes.unwrap().stdout.lines() {
        assert!(["d 700", "f 600"].contains(&line), "{line}");
    }
}
