//! A mesh of hundreds of nodes.

use std::time::{Duration, Instant};

use lab::{Netns, eventually};

use super::{Meshed, mesh_to, route_to, wanted};
use crate::controller::with_controller;
use crate::fixture::SOON;

const NODES: usize = 200;

fn all() -> String {
    let others = 4..NODES + 4;
    let networks = others.map(|n| format!("10.9.{n}.0/24,fd00:9:0:{n:x}::/64"));
    networks.collect::<Vec<_>>().join(",")
}

fn count(meshed: &Meshed) -> usize {
    let lines = meshed.fixture.run(
        "ip route show table 26723 proto 104 scope link
         ip -6 route show table 26723 proto 104 | grep -v unreachable || true",
    );
    lines.lines().count()
}

#[test]
fn routes_to_200_nodes_are_added_and_checked_within_a_second() {
    let meshed = Meshed::with_tun();
    for base in [crate::fixture::BASE, ""] {
        let config = node_config::Config::default();
        let wanted = super::wanted_by(&config, crate::fixture::LOCAL, base, Some(&mesh_to(&all())));
        let repairs = meshed.fixture.passed(&wanted);
        assert!(repairs.len() < 80, "{repairs:?}");
        assert_eq!(count(&meshed), 2 * NODES);
        let began = Instant::now();
        assert_eq!(meshed.fixture.passed(&wanted), [""; 0]);
        // Some 10 ms on an idle machine.
        assert!(
            began.elapsed() < Duration::from_secs(1),
            "{:?}",
            began.elapsed()
        );
        meshed.fixture.passed(&super::wanted_by(
            &config,
            crate::fixture::LOCAL,
            base,
            None,
        ));
        assert_eq!(count(&meshed), 0);
    }
}

#[test]
fn routes_to_200_nodes_are_restored_within_a_second() {
    let meshed = Meshed::with_tun();
    with_controller(&meshed.fixture, wanted(Some(&mesh_to(&all()))), |_| {
        for wipe in [
            "ip link set headcni01 down; ip link set headcni01 up",
            "ip route flush table 26723; ip -6 route flush table 26723",
        ] {
            meshed.fixture.run(wipe);
            let is_back = || (count(&meshed) == 2 * NODES).then_some(());
            eventually(SOON, "all routes", is_back).unwrap();
            assert!(route_to(meshed.node(), "10.9.203.7", &[]).is_some());
        }
    });
    let left = meshed
        .node()
        .run(["ip", "rule", "show", "priority", "5200"])
        .unwrap();
    assert_eq!(left.stdout.lines().count(), 1);
}
