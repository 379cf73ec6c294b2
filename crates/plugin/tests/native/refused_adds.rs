//! An ADD that must not be is refused, and whoever is there already is unharmed.

use lab::scenario::PluginNode;
use lab::{Netns, Pod, eventually};
use rstest::rstest;
use serde_json::Value;

use crate::kill_sweep::with_all;
use crate::networks::{RECORD_DIR, call, dual_stack, host_link, ip, used_node};
use crate::node_state::snapshot;

/// The pod is reached from the node by both of its addresses.
#[track_caller]
fn assert_alive(plugin: &PluginNode, result: &Value) {
    for family in [0, 1] {
        plugin.node.ping(&ip(result, family)).unwrap();
    }
}

#[test]
fn a_second_add_is_refused_and_the_first_one_unharmed() {
    let conf = with_all(dual_stack());
    let plugin = used_node(&conf);
    let (pod, result) = plugin.attached("p", &conf);
    let before = snapshot(&plugin);
    plugin.fail("ADD", &conf, &pod, 102);
    plugin.node.assert_unchanged(&before);
    assert_alive(&plugin, &result);
}

#[rstest]
#[case::wiped(&format!("rm -r {RECORD_DIR}"))]
#[case::torn(&format!("truncate -s 40 {RECORD_DIR}/p@eth0.json"))]
fn an_add_with_the_record_of_a_living_pod_lost_is_refused(#[case] harm: &str) {
    let conf = with_all(dual_stack());
    let plugin = used_node(&conf);
    let (pod, result) = plugin.attached("p", &conf);
    plugin.node.run(["sh", "-ec", harm]).unwrap();
    let before = snapshot(&plugin);
    plugin.fail("ADD", &conf, &pod, 102);
    plugin.node.assert_unchanged(&before);
    assert_alive(&plugin, &result);
}

#[rstest]
#[case::up(
    "ip link add eth0 type bridge && ip link set eth0 up && ip address add 10.1.1.1/24 dev eth0"
)]
#[case::down("ip link add eth0 type veth peer name x")]
fn an_interface_that_somebody_else_made_is_unharmed(#[case] make: &str) {
    let conf = with_all(dual_stack());
    let plugin = used_node(&conf);
    let pod = plugin.pod("p");
    pod.run(["sh", "-ec", make]).unwrap();
    let (links, addresses) = (pod.ip(["link"]).unwrap(), pod.addresses().unwrap());
    let before = snapshot(&plugin);
    let outcome = plugin.fail("ADD", &conf, &pod, 102);
    assert!(outcome.err_msg().contains("eth0"), "{outcome:?}");
    let unharmed = |pod: &Pod| {
        assert_eq!(pod.ip(["link"]).unwrap(), links);
        assert_eq!(pod.addresses().unwrap(), addresses);
        plugin.node.assert_unchanged(&before);
    };
    unharmed(&pod);
    // The runtime cleans up after the ADD that failed.
    plugin.succeed("DEL", &conf, &pod);
    unharmed(&pod);
}

#[rstest]
#[case::by_proc("/proc/self/ns/net")]
#[case::by_name("/run/netns/host")]
fn the_node_s_own_namespace_is_refused(#[case] path: &str) {
    let conf = with_all(dual_stack());
    let plugin = used_node(&conf);
    let bind = "touch /run/netns/host && mount --bind /proc/self/ns/net /run/netns/host";
    plugin.node.run(["sh", "-ec", bind]).unwrap();
    let before = snapshot(&plugin);
    let add = call("ADD", &conf).container_id("p").ifname("eth0");
    let outcome = plugin.run(&add.netns(path));
    assert_eq!(outcome.err_code(), Some(4), "{outcome:?}");
    assert!(outcome.err_msg().contains(path), "{outcome:?}");
    plugin.node.assert_unchanged(&before);
}

#[rstest]
#[case::nothing("/run/netns/never")]
#[case::a_file("/run/file")]
#[case::a_directory("/run/netns")]
#[case::a_pipe("/run/pipe")]
#[case::a_device("/dev/null")]
#[case::a_namespace_of_another_kind("/proc/self/ns/uts")]
fn a_path_that_is_no_namespace_is_refused(#[case] path: &str) {
    let conf = with_all(dual_stack());
    let plugin = used_node(&conf);
    plugin
        .node
        .run(["sh", "-ec", "touch /run/file; mkfifo /run/pipe"])
        .unwrap();
    let before = snapshot(&plugin);
    let call = |verb| {
        call(verb, &conf)
            .container_id("p")
            .ifname("eth0")
            .netns(path)
    };
    let outcome = plugin.run(&call("ADD"));
    assert!(outcome.err_code().is_some(), "{outcome:?}");
    assert!(outcome.err_msg().contains(path), "{outcome:?}");
    plugin.node.assert_unchanged(&before);
    plugin.run(&call("DEL")).ok().unwrap();
    plugin.node.assert_unchanged(&before);
}

#[rstest]
#[case::on_the_node(true, false)]
#[case::in_the_pod(false, true)]
#[case::on_both(true, true)]
fn an_interface_number_that_is_taken_is_no_obstacle(#[case] on_node: bool, #[case] in_pod: bool) {
    let conf = dual_stack();
    let plugin = used_node(&conf);
    let (pod, result) = plugin.attached("p", &conf);
    let index = |link: Option<Value>| link.unwrap()["ifindex"].to_string();
    let of_host = index(plugin.node.link(&host_link(&result)).unwrap());
    let of_pod = index(pod.link("eth0").unwrap());
    plugin.succeed("DEL", &conf, &pod);

    let line = |index| {
        [
            "ip", "link", "add", "name", "taken", "index", index, "type", "bridge",
        ]
    };
    if on_node {
        plugin.node.run(line(&of_host)).unwrap();
    }
    if in_pod {
        pod.run(line(&of_pod)).unwrap();
    }
    let before = snapshot(&plugin);
    let result = plugin.succeed("ADD", &conf, &pod).ok_json().unwrap();
    assert_alive(&plugin, &result);
    plugin.succeed("DEL", &conf, &pod);
    plugin.node.assert_unchanged(&before);
    let left: &[&str] = if in_pod { &["taken"] } else { &[] };
    assert_eq!(pod.links().unwrap(), left);
}

#[test]
fn a_pod_whose_namespace_was_replaced_gets_a_new_network() {
    // As podman does: same container, same path, no DEL in between.
    let conf = with_all(dual_stack());
    let plugin = used_node(&conf);
    let before = snapshot(&plugin);
    let (pod, first) = plugin.attached("p", &conf);
    pod.delete().unwrap();
    let pod = plugin.pod("p");
    let second = plugin.succeed("ADD", &conf, &pod).ok_json().unwrap();
    assert_eq!(host_link(&first), host_link(&second));
    eventually(lab::DEADLINE, "an answer", || {
        plugin.node.ping(&ip(&second, 0)).ok()
    })
    .unwrap();
    assert_alive(&plugin, &second);
    plugin.succeed("DEL", &conf, &pod);
    plugin.node.assert_unchanged(&before);
}
