//! An ADD that must not be is refused, and whoever is there already is unharmed.

use lab::{Netns, Pod, eventually};
use rstest::rstest;
use serde_json::Value;

use crate::killing::with_all;
use crate::scene::{STATE_DIR, Scene, call, dual_stack, host_link, ip};
use crate::traces::snapshot;

/// The pod is reached from the node by both of its addresses.
#[track_caller]
fn assert_alive(scene: &Scene, result: &Value) {
    for family in [0, 1] {
        scene.node.ping(&ip(result, family)).unwrap();
    }
}

#[test]
fn a_second_add_is_refused_and_the_first_one_unharmed() {
    let conf = with_all(dual_stack());
    let scene = Scene::used(&conf);
    let (pod, result) = scene.attached("p", &conf);
    let before = snapshot(&scene);
    scene.refused("ADD", &conf, &pod, 102);
    scene.node.assert_unchanged(&before);
    assert_alive(&scene, &result);
}

#[rstest]
#[case::wiped(&format!("rm -r {STATE_DIR}"))]
#[case::torn(&format!("truncate -s 40 {STATE_DIR}/p@eth0.json"))]
fn an_add_with_the_record_of_a_living_pod_lost_is_refused(#[case] harm: &str) {
    let conf = with_all(dual_stack());
    let scene = Scene::used(&conf);
    let (pod, result) = scene.attached("p", &conf);
    scene.node.run(["sh", "-ec", harm]).unwrap();
    let before = snapshot(&scene);
    scene.refused("ADD", &conf, &pod, 102);
    scene.node.assert_unchanged(&before);
    assert_alive(&scene, &result);
}

#[rstest]
#[case::up(
    "ip link add eth0 type bridge && ip link set eth0 up && ip address add 10.1.1.1/24 dev eth0"
)]
#[case::down("ip link add eth0 type veth peer name x")]
fn an_interface_that_somebody_else_made_is_unharmed(#[case] make: &str) {
    let conf = with_all(dual_stack());
    let scene = Scene::used(&conf);
    let pod = scene.pod("p");
    pod.run(["sh", "-ec", make]).unwrap();
    let (links, addresses) = (pod.ip(["link"]).unwrap(), pod.addresses().unwrap());
    let before = snapshot(&scene);
    let outcome = scene.refused("ADD", &conf, &pod, 102);
    assert!(outcome.err_msg().contains("eth0"), "{outcome:?}");
    let unharmed = |pod: &Pod| {
        assert_eq!(pod.ip(["link"]).unwrap(), links);
        assert_eq!(pod.addresses().unwrap(), addresses);
        scene.node.assert_unchanged(&before);
    };
    unharmed(&pod);
    // The runtime cleans up after the ADD that failed.
    scene.done("DEL", &conf, &pod);
    unharmed(&pod);
}

#[rstest]
#[case::by_proc("/proc/self/ns/net")]
#[case::by_name("/run/netns/host")]
fn the_node_s_own_namespace_is_refused(#[case] path: &str) {
    let conf = with_all(dual_stack());
    let scene = Scene::used(&conf);
    let bind = "touch /run/netns/host && mount --bind /proc/self/ns/net /run/netns/host";
    scene.node.run(["sh", "-ec", bind]).unwrap();
    let before = snapshot(&scene);
    let add = call("ADD", &conf).container_id("p").ifname("eth0");
    let outcome = scene.run(&add.netns(path));
    assert_eq!(outcome.err_code(), Some(4), "{outcome:?}");
    assert!(outcome.err_msg().contains(path), "{outcome:?}");
    scene.node.assert_unchanged(&before);
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
    let scene = Scene::used(&conf);
    scene
        .node
        .run(["sh", "-ec", "touch /run/file; mkfifo /run/pipe"])
        .unwrap();
    let before = snapshot(&scene);
    let call = |verb| {
        call(verb, &conf)
            .container_id("p")
            .ifname("eth0")
            .netns(path)
    };
    let outcome = scene.run(&call("ADD"));
    assert!(outcome.err_code().is_some(), "{outcome:?}");
    assert!(outcome.err_msg().contains(path), "{outcome:?}");
    scene.node.assert_unchanged(&before);
    scene.run(&call("DEL")).ok().unwrap();
    scene.node.assert_unchanged(&before);
}

#[rstest]
#[case::on_the_node(true, false)]
#[case::in_the_pod(false, true)]
#[case::on_both(true, true)]
fn an_interface_number_that_is_taken_is_no_obstacle(#[case] on_node: bool, #[case] in_pod: bool) {
    let conf = dual_stack();
    let scene = Scene::used(&conf);
    let (pod, result) = scene.attached("p", &conf);
    let index = |link: Option<Value>| link.unwrap()["ifindex"].to_string();
    let of_host = index(scene.node.link(&host_link(&result)).unwrap());
    let of_pod = index(pod.link("eth0").unwrap());
    scene.done("DEL", &conf, &pod);

    let line = |index| {
        [
            "ip", "link", "add", "name", "taken", "index", index, "type", "bridge",
        ]
    };
    if on_node {
        scene.node.run(line(&of_host)).unwrap();
    }
    if in_pod {
        pod.run(line(&of_pod)).unwrap();
    }
    let before = snapshot(&scene);
    let result = scene.done("ADD", &conf, &pod).ok_json().unwrap();
    assert_alive(&scene, &result);
    scene.done("DEL", &conf, &pod);
    scene.node.assert_unchanged(&before);
    let left: &[&str] = if in_pod { &["taken"] } else { &[] };
    assert_eq!(pod.links().unwrap(), left);
}

#[test]
fn a_pod_whose_namespace_was_replaced_gets_a_new_network() {
    // As podman does: same container, same path, no DEL in between.
    let conf = with_all(dual_stack());
    let scene = Scene::used(&conf);
    let before = snapshot(&scene);
    let (pod, first) = scene.attached("p", &conf);
    pod.delete().unwrap();
    let pod = scene.pod("p");
    let second = scene.done("ADD", &conf, &pod).ok_json().unwrap();
    assert_eq!(host_link(&first), host_link(&second));
    eventually(lab::DEADLINE, "an answer", || {
        scene.node.ping(&ip(&second, 0)).ok()
    })
    .unwrap();
    assert_alive(&scene, &second);
    scene.done("DEL", &conf, &pod);
    scene.node.assert_unchanged(&before);
}
