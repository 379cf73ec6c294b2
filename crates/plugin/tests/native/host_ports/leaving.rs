//! Who takes back which port.

use lab::{EchoServer, Family, Netns, Pod};
use rstest::rstest;
use serde_json::{Value, json};

use super::{NODE, Site, at, elements, mapping, mapping_on, publishing};
use crate::scene::{Scene, call, dual_stack, ipv4, with};

fn everything() -> Value {
    let mappings = [
        mapping("tcp", 53, 53),
        mapping("udp", 53, 53),
        mapping_on(NODE[0], 8080, 80),
        mapping_on(NODE[1], 8080, 80),
    ];
    let conf = with(dual_stack(), "hostport_localhost", json!(true));
    publishing(conf, &mappings)
}

/// How a pod can leave.
#[derive(Clone, Copy)]
enum Way {
    /// DEL with all that the runtime knows.
    Complete,
    /// DEL with neither the ports nor the result of the ADD.
    Forgetful,
    /// DEL when its namespace is gone.
    Late,
    /// GC, because the runtime knows nothing of it.
    Collected,
}

#[rstest]
#[case::complete(Way::Complete)]
#[case::forgetful(Way::Forgetful)]
#[case::late(Way::Late)]
#[case::collected(Way::Collected)]
fn a_pod_that_leaves_takes_all_its_ports_with_it(#[case] way: Way) {
    let scene = Scene::used(&everything());
    let before = scene.snapshot();
    let (pod, result) = scene.attached("pod", &everything());
    assert_eq!(elements(&scene).len(), 6, "{:?}", elements(&scene));
    let complete = with(everything(), "prevResult", result);
    match way {
        Way::Complete => drop(scene.done("DEL", &complete, &pod)),
        Way::Forgetful => drop(scene.done("DEL", &dual_stack(), &pod)),
        Way::Late => {
            pod.delete().unwrap();
            scene.done("DEL", &complete, &pod);
        }
        Way::Collected => {
            let conf = with(dual_stack(), "cni.dev/valid-attachments", json!([]));
            scene.run(&call("GC", &conf)).ok().unwrap();
        }
    }
    assert_eq!(elements(&scene), Vec::<String>::new());
    scene.node.assert_unchanged(&before);
}

/// A port, asked for by pods that get one address after the other, or all the same one.
fn one_port(of_how_many: u8) -> Value {
    let range = json!({ "type": "headcni-ipam", "subnet": "10.9.0.0/24",
        "rangeStart": "10.9.0.10", "rangeEnd": format!("10.9.0.{}", 9 + of_how_many) });
    publishing(
        with(ipv4(), "ipam", range),
        &[mapping("tcp", 8080, 80), mapping("udp", 8080, 80)],
    )
}

#[rstest]
#[case::with_another_address(one_port(9))]
#[case::with_the_same_address(one_port(1))]
fn a_late_del_leaves_the_port_to_the_pod_that_has_it_now(#[case] conf: Value) {
    let site = Site::new();
    let (earlier, result) = site.scene.attached("earlier", &conf);
    site.scene.done("DEL", &conf, &earlier);
    let (pod, _) = site.scene.attached("pod", &conf);
    let published = elements(&site.scene);

    // With and without what the runtime remembers, with and without a namespace.
    let remembering = with(conf.clone(), "prevResult", result);
    site.scene.done("DEL", &conf, &earlier);
    site.scene.done("DEL", &remembering, &earlier);
    earlier.delete().unwrap();
    site.scene.done("DEL", &remembering, &earlier);
    assert_eq!(elements(&site.scene), published);
    let _server = EchoServer::start(&pod, Family::V4, 80).unwrap();
    site.neighbour.call_echo(at(NODE[0], 8080), "x").unwrap();
}

#[test]
fn a_failed_del_of_a_pod_whose_port_was_refused_leaves_it_to_its_holder() {
    let scene = Scene::new();
    let conf = one_port(9);
    let (_holder, _) = scene.attached("holder", &conf);
    let published = elements(&scene);
    let pod = scene.pod("pod");
    scene.attempt("ADD", &conf, &pod).ok().unwrap_err();
    scene.done("DEL", &conf, &pod);
    assert_eq!(elements(&scene), published);
}

#[rstest]
#[case::of_every_address("by_port4", "{ tcp . 53 }", "53")]
#[case::of_udp("by_port6", "{ udp . 53 }", "53")]
#[case::of_one_address("by_address4", "{ 192.0.2.1 . tcp . 8080 }", "8080")]
#[case::of_the_loopback("by_address4", "{ 127.0.0.1 . tcp . 53 }", "127.0.0.1")]
fn check_notices_a_port_that_is_missing(
    #[case] map: &str,
    #[case] element: &str,
    #[case] part: &str,
) {
    let scene = Scene::new();
    let (pod, result) = scene.attached("pod", &everything());
    let conf = with(everything(), "prevResult", result);
    scene.done("CHECK", &conf, &pod);
    remove(&scene, map, element);
    let outcome = scene.attempt("CHECK", &conf, &pod);
    assert!(outcome.err_msg().contains(part), "{outcome:?}");
    assert!(
        outcome.err_code().is_some_and(|code| code >= 100),
        "{outcome:?}"
    );
    // What is gone already can't stop the rest from going.
    scene.done("DEL", &conf, &pod);
    assert_eq!(elements(&scene), Vec::<String>::new());
}

#[test]
fn check_notices_a_port_that_leads_elsewhere() {
    let scene = Scene::new();
    let conf = one_port(9);
    let (pod, result) = scene.attached("pod", &conf);
    remove(&scene, "by_port4", "{ tcp . 8080 }");
    let element = "{ tcp . 8080 : 10.9.0.99 . 80 }";
    let add = ["nft", "add", "element", "inet", "headcni-ports", "by_port4"];
    scene.node.run(add.iter().chain(&[element])).unwrap();
    let conf = with(conf, "prevResult", result);
    scene.attempt("CHECK", &conf, &pod).ok().unwrap_err();
    // It isn't this pod's, so it stays.
    scene.done("DEL", &conf, &pod);
    let left = elements(&scene);
    assert!(left.len() == 1 && left[0].contains("10.9.0.99"), "{left:?}");
}

fn remove(scene: &Scene, map: &str, element: &str) {
    let delete = ["nft", "delete", "element", "inet", "headcni-ports", map];
    scene.node.run(delete.iter().chain(&[element])).unwrap();
}

#[test]
fn two_interfaces_of_one_pod_keep_their_ports_apart() {
    let scene = Scene::new();
    let [one, two] = [8081, 8082].map(|port| publishing(ipv4(), &[mapping("tcp", port, 80)]));
    let pod: Pod = scene.pod("pod");
    scene.done("ADD", &one, &pod);
    let first = elements(&scene);
    let second = |verb, conf| call(verb, conf).pod(&pod).ifname("eth1");
    scene.run(&second("ADD", &two)).ok().unwrap();
    assert_ne!(elements(&scene), first);
    scene.run(&second("DEL", &two)).ok().unwrap();
    assert_eq!(elements(&scene), first);
}
