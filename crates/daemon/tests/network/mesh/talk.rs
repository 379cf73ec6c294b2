//! Who is seen as whom, and what must never be seen on the underlay.

use std::net::IpAddr;

use lab::frames::Frame;
use lab::{Capture, Netns};
use node_hostnet::MeshRoutes;

use super::{MEMBER, Meshed, NOWHERE, THERE, mesh, on, wanted};
use crate::scene::{GATEWAYS, await_answer, reaches, seen};

/// The routes that tailscaled itself makes to the members of its mesh.
const TO_MEMBERS: &str = "
    ip rule add priority 5270 lookup 52; ip -6 rule add priority 5270 lookup 52
    ip route add 100.64.0.0/10 dev headcni01 table 52
    ip route add fd7a:115c:a1e0::/48 dev headcni01 table 52";

/// Where MagicDNS answers.
const RESOLVERS: [&str; 2] = ["100.100.100.100", "fd7a:115c:a1e0::53"];

#[test]
fn pods_keep_their_address_in_cluster_and_tailnet() {
    let meshed = Meshed::new();
    meshed.scene.passed(&wanted(Some(&mesh())));
    meshed.scene.run(TO_MEMBERS);
    let (pod, link) = meshed.scene.pod("a");
    for (family, own) in link.addresses.iter().enumerate() {
        let there = THERE[family];
        assert_eq!(seen(&pod, &meshed.peer, there), *own, "another node's pod");
        let gateway: IpAddr = GATEWAYS[family].parse().unwrap();
        assert_eq!(seen(meshed.node(), &meshed.peer, there), gateway);
        assert_eq!(seen(&pod, &meshed.peer, MEMBER[family]), *own, "a member");
        // And the other way round.
        assert_eq!(
            seen(&meshed.peer, &pod, &own.to_string()).is_ipv4(),
            family == 0
        );
        let (outside, node) = [("192.168.7.1", "192.168.7.2"), ("fd00:7::1", "fd00:7::2")][family];
        let node: IpAddr = node.parse().unwrap();
        assert_eq!(seen(&pod, &meshed.world, outside), node, "anybody else");
    }
    for name_server in RESOLVERS {
        on(
            &meshed.peer,
            &format!("ip address add {name_server} dev headcni01 nodad"),
        );
        assert!(reaches(&pod, name_server), "{name_server}");
    }
    // Without a mesh, a member is anybody else.
    meshed.scene.passed(&wanted(None));
    let node: IpAddr = "100.64.0.1".parse().unwrap();
    assert_eq!(seen(&pod, &meshed.peer, MEMBER[0]), node);
}

#[test]
fn a_provider_s_own_addresses_are_not_taken_for_the_tailnet_s() {
    let meshed = Meshed::new();
    meshed.scene.passed(&wanted(Some(&mesh())));
    on(&meshed.world, "ip address add 100.70.0.1/32 dev lo");
    let (pod, _) = meshed.scene.pod("a");
    let node: IpAddr = "192.168.7.2".parse().unwrap();
    assert_eq!(seen(&pod, &meshed.world, "100.70.0.1"), node);
}

#[test]
fn nothing_leaves_in_clear_though_rules_and_table_are_wiped() {
    let meshed = Meshed::new();
    let mesh = MeshRoutes {
        peer_ips: vec![MEMBER[0].parse().unwrap()],
        ..mesh()
    };
    meshed.scene.passed(&wanted(Some(&mesh)));
    let (pod, _) = meshed.scene.pod("a");
    let mut underlay = Capture::start(&meshed.world, "up0").unwrap();
    let others = [THERE, NOWHERE, MEMBER, RESOLVERS].concat();
    let others = others.as_slice();
    // One thing after the other, until nothing but the guard is left.
    for wipe in [
        "ip link set headcni01 down",
        "ip route flush table 26723; ip -6 route flush table 26723",
        "ip rule delete priority 5200; ip -6 rule delete priority 5200",
        "ip rule delete priority 5195; ip -6 rule delete priority 5195",
        "ip rule delete priority 5190; ip -6 rule delete priority 5190",
        "ip route delete unreachable 10.9.0.0/16 metric 4000000
         ip -6 route delete unreachable fd00:9::/48 metric 4000000",
    ] {
        meshed.scene.run(wipe);
        for to in others {
            assert!(!is_answered(&pod, to), "{to} by a pod");
            assert!(!is_answered(meshed.node(), to), "{to} by the node");
        }
    }
    // Something that does come ends the wait.
    meshed.node().ping("192.168.7.1").unwrap();
    let goes_to = |frame: &Frame, to: &str| frame.ip_destination() == to.parse().ok();
    let is_mark = |frame: &Frame| goes_to(frame, "192.168.7.1");
    for frame in underlay.until(lab::DEADLINE, is_mark).unwrap() {
        let is_leak = others.iter().any(|to| goes_to(&frame, to));
        assert!(!is_leak, "{frame:?}");
    }
    // It was the guard: without it they would have been seen.
    meshed.scene.run("nft delete table inet headcni");
    for there in [THERE, MEMBER, RESOLVERS].concat() {
        assert!(!is_answered(&pod, there));
        underlay
            .first(lab::DEADLINE, |frame| goes_to(frame, there))
            .unwrap();
    }
}

/// Whether a packet that nobody can be expected to answer is answered nevertheless.
fn is_answered(from: &impl Netns, to: &str) -> bool {
    let line = ["ping", "-n", "-c", "1", "-W", "0.1", to];
    from.attempt(line).unwrap().status.success()
}

#[test]
fn a_mesh_that_is_off_gives_a_clear_error_at_once() {
    let meshed = Meshed::new();
    meshed.scene.run("ip link set headcni01 down");
    let outcome = meshed.scene.pass(&wanted(Some(&mesh()))).unwrap();
    let words = "other nodes can't be reached: headcni01 is off: run \"ip link set headcni01 up\"";
    let failure = outcome.failure.unwrap();
    assert!(failure.starts_with(words), "{failure}");
    let (pod, _) = meshed.scene.pod("a");
    for there in THERE {
        let line = ["ping", "-n", "-c", "1", "-W", "5", there];
        let asked = pod.attempt(line).unwrap();
        assert!(asked.stdout.contains("nreachable"), "{}", asked.stdout);
    }
}

#[test]
fn a_link_of_ours_that_is_off_is_switched_on_with_all_that_leads_by_it() {
    let meshed = Meshed::new();
    let ours = MeshRoutes {
        is_managed: true,
        ..mesh()
    };
    meshed.scene.passed(&wanted(Some(&ours)));
    let (pod, _) = meshed.scene.pod("a");
    meshed.scene.run("ip link set headcni01 down");
    let outcome = meshed.scene.pass(&wanted(Some(&ours))).unwrap();
    assert_eq!(outcome.failure, None);
    assert_eq!(outcome.repairs[0], "the mesh's link headcni01 was off");
    // A link that is switched off has lost its addresses of the other family.
    let address = "ip address replace fd7a:115c:a1e0::1/128 dev headcni01 nodad";
    meshed.scene.run(address);
    for there in THERE {
        await_answer(&pod, there.parse().unwrap());
    }
    // Nobody but tailscaled makes one.
    meshed.scene.run("ip link delete headcni01");
    let outcome = meshed.scene.pass(&wanted(Some(&ours))).unwrap();
    let words = "other nodes can't be reached: headcni01 is missing";
    let failure = outcome.failure.unwrap();
    assert!(failure.starts_with(words), "{failure}");
}
