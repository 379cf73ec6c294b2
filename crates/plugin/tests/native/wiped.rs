//! GC where files are lost: links say themselves whose they are, leases and ports by their address.

use lab::{Netns, Pod};
use rstest::rstest;
use serde_json::Value;

use crate::garbage::{collect, collect_at_once, with_port};
use crate::scene::{LEASE_DIR, STATE_DIR, Scene, dual_stack, host_link, ip, ipv4};

#[rstest]
#[case::with_records("true", true)]
#[case::without_records("rm -r /var/lib/cni/headcni", true)]
#[case::without_leases("rm -r /var/lib/cni/networks/headcni", false)]
#[case::without_anything("rm -r /var/lib/cni", false)]
fn what_is_left_of_an_attachment_is_found(#[case] accident: &str, #[case] has_leases: bool) {
    let scene = Scene::used(&dual_stack());
    let conf = dual_stack();
    let (keep, kept) = scene.attached("keep", &conf);
    let (lost, result) = scene.attached("lost", &conf);
    let (gone, _) = scene.attached("gone", &conf);
    gone.delete().unwrap();
    scene.node.run(["sh", "-c", accident]).unwrap();
    collect(&scene, &conf, &[("keep", "eth0")]);
    assert_eq!(scene.node.links().unwrap(), [host_link(&kept)]);
    assert_eq!(keep.links().unwrap(), ["eth0"]);
    assert!(lost.links().unwrap().is_empty());
    let lease = |result: &Value, family| format!("{LEASE_DIR}/{}", ip(result, family));
    for family in [0, 1] {
        scene.node.ping(&ip(&kept, family)).unwrap();
        assert!(!scene.node.has(lease(&result, family)));
        assert_eq!(scene.node.has(lease(&kept, family)), has_leases);
        let routes = scene.node.routes().unwrap().join("\n");
        assert!(
            !routes.contains(&format!("{} ", ip(&result, family))),
            "{routes}"
        );
    }
    assert!(!scene.node.has(format!("{STATE_DIR}/lost@eth0.json")));
}

#[test]
fn links_without_a_record_go_in_one_batch() {
    let scene = Scene::used(&ipv4());
    let pods: Vec<Pod> = (0..50)
        .map(|n| scene.attached(&format!("p{n}"), &ipv4()).0)
        .collect();
    scene.node.run(["rm", "-r", STATE_DIR]).unwrap();
    collect_at_once(&scene, &ipv4());
    assert!(scene.node.links().unwrap().is_empty());
    assert!(pods.iter().all(|pod| pod.links().unwrap().is_empty()));
}

#[test]
fn a_port_whose_pod_is_collected_can_be_had_again() {
    let scene = Scene::used(&dual_stack());
    let conf = with_port(&dual_stack(), 8080);
    let (_lost, _) = scene.attached("lost", &conf);
    scene.node.run(["rm", "-r", STATE_DIR]).unwrap();
    collect(&scene, &dual_stack(), &[]);
    let (next, result) = scene.attached("next", &conf);
    let rules = scene.ruleset();
    assert!(
        rules.contains(&format!("{} . 80", ip(&result, 0))),
        "{rules}"
    );
    scene.done("DEL", &conf, &next);
    assert!(!scene.ruleset().contains("8080"));
}
