//! Whose ports come back with the rules, and whose don't.

use lab::{EchoServer, Family, Netns};
use rstest::rstest;
use serde_json::{Value, json};

use super::network;
use crate::host_ports::{NODE, Site, at, elements, mapping, publishing};
use crate::scene::{STATE_DIR, Scene, ipv4};

fn publisher() -> Value {
    publishing(ipv4(), &[mapping("tcp", 8080, 80)])
}

fn wipe(scene: &Scene) {
    scene.node.run(["nft", "flush", "ruleset"]).unwrap();
}

#[test]
fn a_new_pod_does_not_get_the_port_that_a_running_one_has_lost_by_a_wipe() {
    let site = Site::new();
    let (pod, _) = site.scene.attached("pod", &publisher());
    let published = elements(&site.scene);
    wipe(&site.scene);
    let other = site.scene.pod("other");
    site.scene.refused("ADD", &publisher(), &other, 11);
    assert_eq!(elements(&site.scene), published);
    let _server = EchoServer::start(&pod, Family::V4, 80).unwrap();
    site.neighbour.call_echo(at(NODE[0], 8080), "x").unwrap();
}

/// How a pod can have ended without a DEL.
#[derive(Clone, Copy)]
enum End {
    /// With all of its machine.
    Reboot,
    /// With a machine that is a container itself: the kernel goes on.
    Restart,
}

#[rstest]
#[case::reboot(End::Reboot)]
#[case::restart(End::Restart)]
fn ports_of_pods_that_ended_with_the_machine_do_not_come_back(#[case] end: End) {
    let site = Site::new();
    let scene = &site.scene;
    let (dead, _) = scene.attached("dead", &publisher());
    dead.run(["ip", "link", "delete", "eth0"]).unwrap();
    dead.delete().unwrap();
    if matches!(end, End::Reboot) {
        let path = format!("{STATE_DIR}/dead@eth0.json");
        let record = scene.node.read(&path).unwrap();
        let mut record: Value = serde_json::from_str(record.lines().last().unwrap()).unwrap();
        record["boot"] = json!("00000000-0000-0000-0000-000000000000");
        scene.node.write(&path, format!("{record}\n")).unwrap();
    }
    wipe(scene);

    let other = network("other", "10.8.0.0/24");
    scene.done("ADD", &other, &scene.pod("first"));
    assert_eq!(elements(scene), Vec::<String>::new());
    let (pod, _) = scene.attached("pod", &publisher());
    let published = elements(scene);
    let _server = EchoServer::start(&pod, Family::V4, 80).unwrap();
    site.neighbour.call_echo(at(NODE[0], 8080), "x").unwrap();
    // The runtime remembers the dead one at last.
    scene.done("DEL", &publisher(), &dead);
    assert_eq!(elements(scene), published);
}

#[test]
fn the_port_of_a_pod_that_has_gone_since_does_not_come_back() {
    let scene = Scene::new();
    let (gone, _) = scene.attached("gone", &publisher());
    let other = network("other", "10.8.0.0/24");
    scene.done("ADD", &other, &scene.pod("first"));
    wipe(&scene);
    scene.done("DEL", &publisher(), &gone);
    scene.done("ADD", &other, &scene.pod("next"));
    assert_eq!(elements(&scene), Vec::<String>::new());
}
