//! Links of pods are set down and up.

use lab::Netns;
use node_hostnet::DesiredPodLink;

use crate::controller::with_controller;
use crate::fixture::{HostnetNode, await_answer, reaches, with_pods};

fn flap(fixture: &HostnetNode, pod: &DesiredPodLink) {
    let name = &pod.name;
    fixture.run(&format!("ip link set {name} down; ip link set {name} up"));
}

#[test]
fn a_flapped_pod_is_unreachable_without_a_reconcile() {
    let fixture = HostnetNode::new();
    let (_pod, link) = fixture.pod("a");
    flap(&fixture, &link);
    for address in &link.addresses {
        assert!(!reaches(&fixture.node, address), "{address}");
    }
}

#[test]
fn a_reconcile_restores_routes_and_neighbours_of_a_flapped_pod() {
    let fixture = HostnetNode::new();
    let (a, of_a) = fixture.pod("a");
    let (b, of_b) = fixture.pod("b");
    let wanted = with_pods(&[&of_a, &of_b], &[]);
    fixture.passed(&wanted);
    let dump = "ip route show proto 104; ip -6 route show proto 104; ip neigh show nud permanent";
    let before = fixture.run(dump);
    flap(&fixture, &of_a);
    assert_ne!(fixture.run(dump), before);
    let repairs = fixture.passed(&wanted);
    assert_eq!(repairs.len(), 4, "{repairs:?}");
    let sorted = |text: &str| {
        let mut lines: Vec<String> = text.lines().map(str::to_owned).collect();
        lines.sort();
        lines
    };
    assert_eq!(sorted(&fixture.run(dump)), sorted(&before));
    for family in [0, 1] {
        assert!(reaches(&b, of_a.addresses[family]));
        assert!(reaches(&a, of_b.addresses[family]));
    }
    assert_eq!(fixture.passed(&wanted), [""; 0]);
}

#[test]
fn flapped_pods_are_reachable_again_within_a_second() {
    let fixture = HostnetNode::new();
    let (_a, of_a) = fixture.pod("a");
    let (b, of_b) = fixture.pod("b");
    with_controller(&fixture, with_pods(&[&of_a, &of_b], &[]), |_| {
        for _ in 0..3 {
            flap(&fixture, &of_a);
            for address in &of_a.addresses {
                await_answer(&fixture.node, *address);
                await_answer(&b, *address);
            }
        }
    });
}

#[test]
fn a_link_that_was_down_for_long_is_restored_when_it_is_up() {
    let fixture = HostnetNode::new();
    let (_a, of_a) = fixture.pod("a");
    let name = of_a.name.clone();
    with_controller(&fixture, with_pods(&[&of_a], &[]), |controller| {
        fixture.run(&format!("ip link set {name} down"));
        controller.settle();
        assert!(controller.is_in_place());
        fixture.run(&format!("ip link set {name} up"));
        await_answer(&fixture.node, of_a.addresses[0]);
        await_answer(&fixture.node, of_a.addresses[1]);
    });
}

#[test]
fn a_deleted_pod_is_not_an_error() {
    let fixture = HostnetNode::new();
    let (a, of_a) = fixture.pod("a");
    let wanted = with_pods(&[&of_a], &[]);
    fixture.passed(&wanted);
    a.delete().unwrap();
    let is_gone = || fixture.node.links().unwrap().is_empty().then_some(());
    lab::eventually(lab::DEADLINE, "no link", is_gone).unwrap();
    assert_eq!(fixture.passed(&wanted), [""; 0]);
}
