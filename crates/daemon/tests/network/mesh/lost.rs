//! Others wipe what leads to other nodes, or tailscaled restarts: it is back within a second.

use lab::{Netns, eventually};
use rstest::rstest;

use super::{LINK, MAKE_TUN, Meshed, THERE, mesh, wanted, way, ways};
use crate::kept::{Kept, while_kept};
use crate::scene::{SOON, Scene, await_answer};

/// Waits until it looks as before, but for the numbers of links.
#[track_caller]
fn await_ways(scene: &Scene, before: &str) {
    let sorted = |text: &str| {
        let mut lines: Vec<String> = text.lines().map(str::to_owned).collect();
        lines.sort();
        lines
    };
    let is_back = || (sorted(&ways(scene)) == sorted(before)).then_some(());
    let back = eventually(SOON, "the ways", is_back);
    assert!(back.is_ok(), "{before}\nis now\n{}", ways(scene));
}

#[track_caller]
fn assert_calm(kept: &Kept) {
    kept.settle();
    let passes = kept.passes();
    kept.settle();
    assert_eq!(kept.passes(), passes, "passes go on for ever");
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
fn what_is_wiped_comes_back(#[case] wipe: &str) {
    let meshed = Meshed::new();
    while_kept(&meshed.scene, wanted(Some(&mesh())), |kept| {
        let before = ways(&meshed.scene);
        meshed.scene.run(wipe);
        // A link that is switched off has lost its addresses of the other family.
        let address = format!("ip address replace fd7a:115c:a1e0::1/128 dev {LINK} nodad");
        meshed.scene.run(&address);
        await_ways(&meshed.scene, &before);
        for there in THERE {
            await_answer(meshed.node(), there.parse().unwrap());
        }
        assert_calm(kept);
    });
}

#[test]
fn a_link_that_is_made_again_is_used_at_once() {
    let meshed = Meshed::with_tun();
    while_kept(&meshed.scene, wanted(Some(&mesh())), |kept| {
        let before = ways(&meshed.scene);
        for _ in 0..3 {
            meshed.scene.run("ip link delete headcni01");
            for there in THERE {
                assert_eq!(way(meshed.node(), there, &[]), None);
            }
            kept.settle();
            meshed.scene.run(MAKE_TUN);
            await_ways(&meshed.scene, &before);
        }
        assert_calm(kept);
    });
}

#[test]
fn a_link_that_comes_later_is_used_as_soon_as_it_is_on() {
    let meshed = Meshed::without_link();
    let wanted = wanted(Some(&mesh()));
    while_kept(&meshed.scene, wanted.clone(), |kept| {
        assert!(kept.is_in_place() && !kept.is_ready());
        assert_eq!(way(meshed.node(), THERE[0], &[]), None);
        meshed.scene.run("ip tuntap add headcni01 mode tun");
        kept.settle();
        assert_eq!(way(meshed.node(), THERE[0], &[]), None);
        meshed.scene.run("ip link set headcni01 up");
        for there in THERE {
            let is_led = || way(meshed.node(), there, &[]);
            let (link, _) = eventually(SOON, "a way", is_led).unwrap();
            assert_eq!(link, LINK);
        }
        assert_calm(kept);
        assert!(kept.is_ready());
    });
    assert_eq!(meshed.scene.passed(&wanted), [""; 0]);
}

#[test]
fn the_mesh_comes_and_goes_as_it_is_wanted() {
    let meshed = Meshed::new();
    while_kept(&meshed.scene, wanted(None), |kept| {
        let without = ways(&meshed.scene);
        kept.want(wanted(Some(&mesh())));
        let is_led = || way(meshed.node(), THERE[0], &[]).filter(|(link, _)| link == LINK);
        eventually(SOON, "a way", is_led).unwrap();
        kept.settle();
        kept.want(wanted(None));
        await_ways(&meshed.scene, &without);
        // From now on the link is nobody's business.
        assert_calm(kept);
        let passes = kept.passes();
        meshed
            .node()
            .run(["ip", "link", "set", LINK, "down"])
            .unwrap();
        kept.settle();
        assert_eq!(kept.passes(), passes);
    });
}
