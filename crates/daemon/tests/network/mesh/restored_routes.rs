//! Deleted rules and routes to peers are restored within a second, also after a restart of tailscaled.

use lab::{Netns, eventually};
use rstest::rstest;

use super::{LINK, MAKE_TUN, Meshed, REMOTE_PODS, mesh, route_to, rules_and_routes, wanted};
use crate::controller::{RunningController, with_controller};
use crate::fixture::{HostnetNode, SOON, await_answer};

/// Waits until rules and routes are as before, in any order.
#[track_caller]
fn await_routes(fixture: &HostnetNode, before: &str) {
    let sorted = |text: &str| {
        let mut lines: Vec<String> = text.lines().map(str::to_owned).collect();
        lines.sort();
        lines
    };
    let is_back = || (sorted(&rules_and_routes(fixture)) == sorted(before)).then_some(());
    let back = eventually(SOON, "rules and routes", is_back);
    assert!(
        back.is_ok(),
        "{before}\nis now\n{}",
        rules_and_routes(fixture)
    );
}

#[track_caller]
fn assert_settled(controller: &RunningController) {
    controller.settle();
    let reconciles = controller.reconciles();
    controller.settle();
    assert_eq!(
        controller.reconciles(),
        reconciles,
        "reconciles do not settle"
    );
}

#[rstest]
#[case::all_rules(
    "ip rule flush; ip -6 rule flush; ip rule add lookup main priority 32766; \
     ip -6 rule add lookup main priority 32766; ip rule add lookup default priority 32767"
)]
#[case::one_rule("ip rule delete priority 5200")]
#[case::the_other_rule("ip -6 rule delete priority 5195")]
#[case::the_table("ip route flush table 26723; ip -6 route flush table 26723")]
#[case::all_of_ours("ip route flush table all proto 104; ip -6 route flush table all proto 104")]
#[case::one_route("ip route delete 10.9.4.0/24 table 26723")]
#[case::the_end_of_the_table("ip -6 route delete unreachable default table 26723")]
#[case::gateways(
    "ip address delete 10.9.3.1/32 dev lo; ip address delete fd00:9:0:3::1/128 dev lo"
)]
#[case::link_off_and_on("ip link set headcni01 down; ip link set headcni01 up")]
#[case::the_loopback("ip link set lo down; ip link set lo up")]
fn deleted_rules_and_routes_are_restored(#[case] wipe: &str) {
    let meshed = Meshed::new();
    with_controller(&meshed.fixture, wanted(Some(&mesh())), |controller| {
        let before = rules_and_routes(&meshed.fixture);
        meshed.fixture.run(wipe);
        // An interface that is set down loses its IPv6 addresses.
        let address = format!("ip address replace fd7a:115c:a1e0::1/128 dev {LINK} nodad");
        meshed.fixture.run(&address);
        await_routes(&meshed.fixture, &before);
        for there in REMOTE_PODS {
            await_answer(meshed.node(), there.parse().unwrap());
        }
        assert_settled(controller);
    });
}

#[test]
fn a_recreated_mesh_interface_is_used_at_once() {
    let meshed = Meshed::with_tun();
    with_controller(&meshed.fixture, wanted(Some(&mesh())), |controller| {
        let before = rules_and_routes(&meshed.fixture);
        for _ in 0..3 {
            meshed.fixture.run("ip link delete headcni01");
            for there in REMOTE_PODS {
                assert_eq!(route_to(meshed.node(), there, &[]), None);
            }
            controller.settle();
            meshed.fixture.run(MAKE_TUN);
            await_routes(&meshed.fixture, &before);
        }
        assert_settled(controller);
    });
}

#[test]
fn a_mesh_interface_is_used_as_soon_as_it_is_up() {
    let meshed = Meshed::without_link();
    let wanted = wanted(Some(&mesh()));
    with_controller(&meshed.fixture, wanted.clone(), |controller| {
        assert!(controller.is_in_place() && !controller.is_ready());
        assert_eq!(route_to(meshed.node(), REMOTE_PODS[0], &[]), None);
        meshed.fixture.run("ip tuntap add headcni01 mode tun");
        controller.settle();
        assert_eq!(route_to(meshed.node(), REMOTE_PODS[0], &[]), None);
        meshed.fixture.run("ip link set headcni01 up");
        for there in REMOTE_PODS {
            let is_routed = || route_to(meshed.node(), there, &[]);
            let (link, _) = eventually(SOON, "a route", is_routed).unwrap();
            assert_eq!(link, LINK);
        }
        assert_settled(controller);
        assert!(controller.is_ready());
    });
    assert_eq!(meshed.fixture.passed(&wanted), [""; 0]);
}

#[test]
fn mesh_routes_are_added_and_removed_with_the_desired_state() {
    let meshed = Meshed::new();
    with_controller(&meshed.fixture, wanted(None), |controller| {
        let without = rules_and_routes(&meshed.fixture);
        controller.want(wanted(Some(&mesh())));
        let is_routed =
            || route_to(meshed.node(), REMOTE_PODS[0], &[]).filter(|(link, _)| link == LINK);
        eventually(SOON, "a route", is_routed).unwrap();
        controller.settle();
        controller.want(wanted(None));
        await_routes(&meshed.fixture, &without);
        // From now on the interface is not watched.
        assert_settled(controller);
        let reconciles = controller.reconciles();
        meshed
            .node()
            .run(["ip", "link", "set", LINK, "down"])
            .unwrap();
        controller.settle();
        assert_eq!(controller.reconciles(), reconciles);
    });
}
