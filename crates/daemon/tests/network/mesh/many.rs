//! A mesh of hundreds of nodes.

use std::time::{Duration, Instant};

use lab::{Netns, eventually};

use super::{Meshed, mesh_to, wanted, way};
use crate::kept::while_kept;
use crate::scene::SOON;

const NODES: usize = 200;

fn all() -> String {
    let others = 4..NODES + 4;
    let networks = others.map(|n| format!("10.9.{n}.0/24,fd00:9:0:{n:x}::/64"));
    networks.collect::<Vec<_>>().join(",")
}

fn count(meshed: &Meshed) -> usize {
    let lines = meshed.scene.run(
        "ip route show table 26723 proto 104 scope link
         ip -6 route show table 26723 proto 104 | grep -v unreachable || true",
    );
    lines.lines().count()
}

#[test]
fn hundreds_of_nodes_are_led_to_in_no_time() {
    let meshed = Meshed::with_tun();
    for base in [crate::scene::BASE, ""] {
        let config = node_config::Config::default();
        let wanted = super::wanted_by(&config, crate::scene::LOCAL, base, Some(&mesh_to(&all())));
        let repairs = meshed.scene.passed(&wanted);
        assert!(repairs.len() < 80, "{repairs:?}");
        assert_eq!(count(&meshed), 2 * NODES);
        let began = Instant::now();
        assert_eq!(meshed.scene.passed(&wanted), [""; 0]);
        // It is some ten milliseconds; a machine may be busy.
        assert!(
            began.elapsed() < Duration::from_secs(1),
            "{:?}",
            began.elapsed()
        );
        meshed
            .scene
            .passed(&super::wanted_by(&config, crate::scene::LOCAL, base, None));
        assert_eq!(count(&meshed), 0);
    }
}

#[test]
fn hundreds_of_routes_are_back_within_a_second() {
    let meshed = Meshed::with_tun();
    while_kept(&meshed.scene, wanted(Some(&mesh_to(&all()))), |_| {
        for wipe in [
            "ip link set headcni01 down; ip link set headcni01 up",
            "ip route flush table 26723; ip -6 route flush table 26723",
        ] {
            meshed.scene.run(wipe);
            let is_back = || (count(&meshed) == 2 * NODES).then_some(());
            eventually(SOON, "all routes", is_back).unwrap();
            assert!(way(meshed.node(), "10.9.203.7", &[]).is_some());
        }
    });
    let left = meshed
        .node()
        .run(["ip", "rule", "show", "priority", "5200"])
        .unwrap();
    assert_eq!(left.stdout.lines().count(), 1);
}
