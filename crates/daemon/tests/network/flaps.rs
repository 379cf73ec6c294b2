//! DesiredPods' links that are switched off and on again.

use lab::Netns;
use node_hostnet::DesiredPodLink;

use crate::kept::while_kept;
use crate::scene::{Scene, await_answer, reaches, with_pods};

fn flap(scene: &Scene, pod: &DesiredPodLink) {
    let name = &pod.name;
    scene.run(&format!("ip link set {name} down; ip link set {name} up"));
}

#[test]
fn a_flapped_pod_is_lost_without_us() {
    let scene = Scene::new();
    let (_pod, link) = scene.pod("a");
    flap(&scene, &link);
    for address in &link.addresses {
        assert!(!reaches(&scene.node, address), "{address}");
    }
}

#[test]
fn a_pass_gives_a_flapped_pod_back_what_it_had() {
    let scene = Scene::new();
    let (a, of_a) = scene.pod("a");
    let (b, of_b) = scene.pod("b");
    let wanted = with_pods(&[&of_a, &of_b], &[]);
    scene.passed(&wanted);
    let dump = "ip route show proto 104; ip -6 route show proto 104; ip neigh show nud permanent";
    let before = scene.run(dump);
    flap(&scene, &of_a);
    assert_ne!(scene.run(dump), before);
    let repairs = scene.passed(&wanted);
    assert_eq!(repairs.len(), 4, "{repairs:?}");
    let sorted = |text: &str| {
        let mut lines: Vec<String> = text.lines().map(str::to_owned).collect();
        lines.sort();
        lines
    };
    assert_eq!(sorted(&scene.run(dump)), sorted(&before));
    for family in [0, 1] {
        assert!(reaches(&b, of_a.addresses[family]));
        assert!(reaches(&a, of_b.addresses[family]));
    }
    assert_eq!(scene.passed(&wanted), [""; 0]);
}

#[test]
fn flapped_pods_are_reached_again_within_a_second() {
    let scene = Scene::new();
    let (_a, of_a) = scene.pod("a");
    let (b, of_b) = scene.pod("b");
    while_kept(&scene, with_pods(&[&of_a, &of_b], &[]), |_| {
        for _ in 0..3 {
            flap(&scene, &of_a);
            for address in &of_a.addresses {
                await_answer(&scene.node, *address);
                await_answer(&b, *address);
            }
        }
    });
}

#[test]
fn a_link_that_stays_off_is_restored_when_it_is_switched_on() {
    let scene = Scene::new();
    let (_a, of_a) = scene.pod("a");
    let name = of_a.name.clone();
    while_kept(&scene, with_pods(&[&of_a], &[]), |kept| {
        scene.run(&format!("ip link set {name} down"));
        kept.settle();
        assert!(kept.is_in_place());
        scene.run(&format!("ip link set {name} up"));
        await_answer(&scene.node, of_a.addresses[0]);
        await_answer(&scene.node, of_a.addresses[1]);
    });
}

#[test]
fn a_pod_that_is_gone_is_no_trouble() {
    let scene = Scene::new();
    let (a, of_a) = scene.pod("a");
    let wanted = with_pods(&[&of_a], &[]);
    scene.passed(&wanted);
    a.delete().unwrap();
    let is_gone = || scene.node.links().unwrap().is_empty().then_some(());
    lab::eventually(lab::DEADLINE, "no link", is_gone).unwrap();
    assert_eq!(scene.passed(&wanted), [""; 0]);
}
