//! Source addresses of packets, and what must never appear on the underlay.

use std::net::IpAddr;

use lab::frames::Frame;
use lab::{Capture, Netns};
use node_hostnet::MeshRoutes;

use super::{Meshed, PEER_TAILNET_IPS, REMOTE_PODS, UNASSIGNED, mesh, on, wanted};
use crate::fixture::{GATEWAYS, await_answer, reaches, seen};

/// The routes that tailscaled adds to its peers.
const TO_MEMBERS: &str = "
    ip rule add priority 5270 lookup 52; ip -6 rule add priority 5270 lookup 52
    ip route add 100.64.0.0/10 dev headcni01 table 52
    ip route add fd7a:115c:a1e0::/48 dev headcni01 table 52";

/// MagicDNS.
const RESOLVERS: [&str; 2] = ["100.100.100.100", "fd7a:115c:a1e0::53"];

#[test]
fn pods_are_not_masqueraded_in_cluster_and_tailnet() {
    let meshed = Meshed::new();
    meshed.fixture.passed(&wanted(Some(&mesh())));
    meshed.fixture.run(TO_MEMBERS);
    let (pod, link) = meshed.fixture.pod("a");
    for (family, own) in link.addresses.iter().enumerate() {
        let there = REMOTE_PODS[family];
        assert_eq!(seen(&pod, &meshed.peer, there), *own, "another node's pod");
        let gateway: IpAddr = GATEWAYS[family].parse().unwrap();
        assert_eq!(seen(meshed.node(), &meshed.peer, there), gateway);
        assert_eq!(
            seen(&pod, &meshed.peer, PEER_TAILNET_IPS[family]),
            *own,
            "a member"
        );
        // And in the other direction.
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
    // Without a mesh, a tailnet address is an ordinary destination.
    meshed.fixture.passed(&wanted(None));
    let node: IpAddr = "100.64.0.1".parse().unwrap();
    assert_eq!(seen(&pod, &meshed.peer, PEER_TAILNET_IPS[0]), node);
}

#[test]
fn cgnat_addresses_of_a_provider_are_masqueraded() {
    let meshed = Meshed::new();
    meshed.fixture.passed(&wanted(Some(&mesh())));
    on(&meshed.world, "ip address add 100.70.0.1/32 dev lo");
    let (pod, _) = meshed.fixture.pod("a");
    let node: IpAddr = "192.168.7.2".parse().unwrap();
    assert_eq!(seen(&pod, &meshed.world, "100.70.0.1"), node);
}

#[test]
fn no_packet_leaves_in_clear_with_rules_and_table_deleted() {
    let meshed = Meshed::new();
    let mesh = MeshRoutes {
        peer_ips: vec![PEER_TAILNET_IPS[0].parse().unwrap()],
        ..mesh()
    };
    meshed.fixture.passed(&wanted(Some(&mesh)));
    let (pod, _) = meshed.fixture.pod("a");
    let mut underlay = Capture::start(&meshed.world, "up0").unwrap();
    let others = [REMOTE_PODS, UNASSIGNED, PEER_TAILNET_IPS, RESOLVERS].concat();
    let others = others.as_slice();
    // One after the other, until only the nft guard is left.
    for wipe in [
        "ip link set headcni01 down",
        "ip route flush table 26723; ip -6 route flush table 26723",
        "ip rule delete priority 5200; ip -6 rule delete priority 5200",
        "ip rule delete priority 5195; ip -6 rule delete priority 5195",
        "ip rule delete priority 5190; ip -6 rule delete priority 5190",
        "ip route delete unreachable 10.9.0.0/16 metric 4000000
         ip -6 route delete unreachable fd00:9::/48 metric 4000000",
    ] {
        meshed.fixture.run(wipe);
        for to in others {
            assert!(!is_answered(&pod, to), "{to} by a pod");
            assert!(!is_answered(meshed.node(), to), "{to} by the node");
        }
    }
    // This packet marks the end of the capture.
    meshed.node().ping("192.168.7.1").unwrap();
    let goes_to = |frame: &Frame, to: &str| frame.ip_destination() == to.parse().ok();
    let is_mark = |frame: &Frame| goes_to(frame, "192.168.7.1");
    for frame in underlay.until(lab::DEADLINE, is_mark).unwrap() {
        let is_leak = others.iter().any(|to| goes_to(&frame, to));
        assert!(!is_leak, "{frame:?}");
    }
    // Without the guard they would have been seen.
    meshed.fixture.run("nft delete table inet headcni");
    for there in [REMOTE_PODS, PEER_TAILNET_IPS, RESOLVERS].concat() {
        assert!(!is_answered(&pod, there));
        underlay
            .first(lab::DEADLINE, |frame| goes_to(frame, there))
            .unwrap();
    }
}

fn is_answered(from: &impl Netns, to: &str) -> bool {
    let line = ["ping", "-n", "-c", "1", "-W", "0.1", to];
    from.attempt(line).unwrap().status.success()
}

#[test]
fn with_the_mesh_interface_down_pods_get_an_icmp_error_at_once() {
    let meshed = Meshed::new();
    meshed.fixture.run("ip link set headcni01 down");
    let outcome = meshed.fixture.pass(&wanted(Some(&mesh()))).unwrap();
    let message =
        "other nodes are unreachable: headcni01 is down: run \"ip link set headcni01 up\"";
    let failure = outcome.failure.unwrap();
    assert!(failure.starts_with(message), "{failure}");
    let (pod, _) = meshed.fixture.pod("a");
    for there in REMOTE_PODS {
        let line = ["ping", "-n", "-c", "1", "-W", "5", there];
        let asked = pod.attempt(line).unwrap();
        assert!(asked.stdout.contains("nreachable"), "{}", asked.stdout);
    }
}

#[test]
fn a_managed_mesh_interface_that_is_down_is_set_up_with_its_routes() {
    let meshed = Meshed::new();
    let ours = MeshRoutes {
        is_managed: true,
        ..mesh()
    };
    meshed.fixture.passed(&wanted(Some(&ours)));
    let (pod, _) = meshed.fixture.pod("a");
    meshed.fixture.run("ip link set headcni01 down");
    let outcome = meshed.fixture.pass(&wanted(Some(&ours))).unwrap();
    assert_eq!(outcome.failure, None);
    assert_eq!(outcome.repairs[0], "set mesh link headcni01 up");
    // An interface that is set down loses its IPv6 addresses.
    let address = "ip address replace fd7a:115c:a1e0::1/128 dev headcni01 nodad";
    meshed.fixture.run(address);
    for there in REMOTE_PODS {
        await_answer(&pod, there.parse().unwrap());
    }
    // Only tailscaled creates the interface.
    meshed.fixture.run("ip link delete headcni01");
    let outcome = meshed.fixture.pass(&wanted(Some(&ours))).unwrap();
    let message = "other nodes are unreachable: headcni01 is missing";
    let failure = outcome.failure.unwrap();
    assert!(failure.starts_with(message), "{failure}");
}
