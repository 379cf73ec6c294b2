//! Routing of packets to pods, tailnet addresses and other destinations.

use lab::Netns;
use node_config::Config;
use rstest::rstest;

use super::{
    LINK, Meshed, PEER_TAILNET_IPS, REMOTE_PODS, REMOTES, UNASSIGNED, UNUSED_LOCAL, mesh, mesh_to,
    on, route_to, rules_and_routes, wanted, wanted_by,
};
use crate::fixture::{BASE, GATEWAYS, HostnetNode, LOCAL};

/// As with a tailscaled that accepted a route to everything.
const DIVERTING_RULES: &str = "
    ip rule add priority 5270 lookup 52; ip -6 rule add priority 5270 lookup 52
    ip route add 10.0.0.0/8 via 192.168.7.1 table 52
    ip route add 10.9.4.0/24 via 192.168.7.1 table 52
    ip route add fd00:9::/32 via fd00:7::1 table 52
    ip route add fd00:9:0:4::/64 via fd00:7::1 table 52";

#[track_caller]
fn assert_routed(meshed: &Meshed, family: usize) {
    let node = meshed.node();
    let lookup = |to: &str, more: &[&str]| route_to(node, to, more);
    let by = |link: &str, source: &str| Some((link.to_owned(), source.to_owned()));
    let gateway = GATEWAYS[family];
    assert_eq!(
        lookup(REMOTE_PODS[family], &[]),
        by(LINK, gateway),
        "another node's"
    );
    assert_eq!(lookup(UNUSED_LOCAL[family], &[]), None, "this node's");
    assert_eq!(lookup(UNASSIGNED[family], &[]), None, "no node's");
    assert_eq!(lookup(gateway, &[]), by("lo", gateway), "the gateway");
    // tailscaled's own packets.
    let marked = ["mark", "0x80000"];
    for to in [REMOTE_PODS[family], UNASSIGNED[family]] {
        assert_eq!(lookup(to, &marked), None, "{to}");
    }
    assert_eq!(lookup(gateway, &marked), by("lo", gateway), "the gateway");
    // Tailscale marks packets from the mesh with this; they are not its own.
    let other = ["mark", "0x40000"];
    assert_eq!(lookup(REMOTE_PODS[family], &other), by(LINK, gateway));
    let outside = ["198.51.100.1", "2001:db8::1"][family];
    let underlay = ["192.168.7.2", "fd00:7::2"][family];
    for more in [&[][..], &marked] {
        assert_eq!(lookup(outside, more), by("up0", underlay));
    }
}

#[rstest]
#[case::ipv4("10.9.3.0/24", "10.9.0.0/16", &[0])]
#[case::ipv6("fd00:9:0:3::/64", "fd00:9::/48", &[1])]
#[case::both(LOCAL, BASE, &[0, 1])]
fn each_destination_has_exactly_one_route(
    #[case] local: &str,
    #[case] base: &str,
    #[case] families: &[usize],
    #[values(false, true)] is_tun: bool,
) {
    let meshed = if is_tun {
        Meshed::with_tun()
    } else {
        Meshed::new()
    };
    let wanted = wanted_by(&Config::default(), local, base, Some(&mesh()));
    assert!(!meshed.fixture.passed(&wanted).is_empty());
    for family in families {
        assert_routed(&meshed, *family);
    }
    // Rules of others have a lower priority.
    meshed.fixture.run(DIVERTING_RULES);
    for family in families {
        assert_routed(&meshed, *family);
    }
    assert_eq!(meshed.fixture.passed(&wanted), [""; 0]);
}

#[test]
fn rules_and_routes_are_as_documented() {
    let meshed = Meshed::new();
    meshed.fixture.passed(&wanted(Some(&mesh())));
    let listing = rules_and_routes(&meshed.fixture);
    let listing = listing.split_whitespace().collect::<Vec<_>>().join(" ");
    for part in [
        "5190: from all to 10.9.3.0/24 lookup main proto 104",
        "5195: from all to 10.9.0.0/16 fwmark 0x80000/0xff0000 unreachable proto 104",
        "5200: from all to 10.9.0.0/16 lookup 26723 proto 104",
        "5195: from all to fd00:9::/48 fwmark 0x80000/0xff0000 unreachable proto 104",
        "5200: from all to fd00:9::/48 lookup 26723 proto 104",
        "unreachable default proto 104 metric 4000000",
        "unreachable default dev lo proto 104 metric 4000000",
        "10.9.4.0/24 dev headcni01 proto 104 scope link src 10.9.3.1 metric 1024",
        "fd00:9:0:4::/64 dev headcni01 proto 104 src fd00:9:0:3::1 metric 1024",
    ] {
        assert!(listing.contains(part), "{part} in {listing}");
    }
}

#[test]
fn without_a_cluster_cidr_only_pod_cidrs_of_nodes_are_routed() {
    let meshed = Meshed::new();
    let wanted = wanted_by(&Config::default(), LOCAL, "", Some(&mesh()));
    meshed.fixture.passed(&wanted);
    for family in [0, 1] {
        let node = meshed.node();
        let found = route_to(node, REMOTE_PODS[family], &[]).unwrap();
        assert_eq!(found, (LINK.to_owned(), GATEWAYS[family].to_owned()));
        assert_eq!(route_to(node, UNUSED_LOCAL[family], &[]), None);
        assert_eq!(route_to(node, UNASSIGNED[family], &[]).unwrap().0, "up0");
    }
    assert_eq!(meshed.fixture.passed(&wanted), [""; 0]);
}

#[test]
fn routes_to_a_mesh_netns_have_a_gateway() {
    let meshed = Meshed::new();
    let mut mesh = mesh();
    mesh.via_ipv4 = Some(PEER_TAILNET_IPS[0].parse().unwrap());
    mesh.via_ipv6 = Some(PEER_TAILNET_IPS[1].parse().unwrap());
    // Back and forth: tailscaled may move between netns.
    for mesh in [&mesh, &super::mesh(), &mesh] {
        meshed.fixture.passed(&wanted(Some(mesh)));
        assert_eq!(meshed.fixture.passed(&wanted(Some(mesh))), [""; 0]);
        assert_routed(&meshed, 0);
        assert_routed(&meshed, 1);
        let listing = rules_and_routes(&meshed.fixture);
        let has_gateway = mesh.via_ipv4.is_some();
        for member in PEER_TAILNET_IPS {
            let part = format!("via {member} dev {LINK}");
            assert_eq!(listing.contains(&part), has_gateway, "{part} in {listing}");
        }
        for there in REMOTE_PODS {
            meshed.node().ping(there).unwrap();
        }
    }
}

#[test]
fn a_peer_route_that_overlaps_our_pod_cidr_is_rejected() {
    let meshed = Meshed::new();
    let claimed = format!("{REMOTES},10.9.3.0/24,10.9.3.128/25,fd00:9::/32");
    let wanted = wanted(Some(&mesh_to(&claimed)));
    let outcome = meshed.fixture.pass(&wanted).unwrap();
    for part in [
        "peer route 10.9.3.0/24 rejected: it overlaps 10.9.3.0/24",
        "peer route 10.9.3.128/25 rejected: it overlaps 10.9.3.0/24",
        "peer route fd00:9::/32 rejected: it overlaps fd00:9:0:3::/64",
        "2 peer routes via headcni01",
    ] {
        assert!(outcome.message.contains(part), "{}", outcome.message);
    }
    assert_routed(&meshed, 0);
    assert_routed(&meshed, 1);
}

#[test]
fn removing_the_mesh_removes_all_its_state() {
    let meshed = Meshed::new();
    let fixture = &meshed.fixture;
    let all = |fixture: &HostnetNode| {
        let state = [
            rules_and_routes(fixture),
            fixture.node.nft_ruleset().unwrap(),
        ];
        let mut routes = fixture.node.routes().unwrap();
        // Routes of the kernel, which change.
        routes.retain(|route| !route.contains("table local"));
        (state, routes)
    };
    for base in [BASE, ""] {
        let without = wanted_by(&Config::default(), LOCAL, base, None);
        fixture.passed(&without);
        let before = all(fixture);
        let mesh = mesh_to(&format!("{REMOTES},10.9.5.0/24"));
        fixture.passed(&wanted_by(&Config::default(), LOCAL, base, Some(&mesh)));
        assert_ne!(all(fixture), before);
        fixture.passed(&without);
        assert_eq!(all(fixture), before, "{base:?}");
        assert_eq!(fixture.passed(&without), [""; 0]);
    }
}

#[test]
fn the_source_address_follows_a_changed_pod_cidr() {
    let meshed = Meshed::new();
    let local = "10.9.6.0/24,fd00:9:0:6::/64";
    for local in [LOCAL, local, LOCAL] {
        let wanted = wanted_by(&Config::default(), local, BASE, Some(&mesh()));
        meshed.fixture.passed(&wanted);
        assert_eq!(meshed.fixture.passed(&wanted), [""; 0]);
        for there in REMOTE_PODS {
            let (link, source) = route_to(meshed.node(), there, &[]).unwrap();
            assert_eq!(link, LINK);
            let local = crate::fixture::networks(local);
            let source = source.parse().unwrap();
            assert!(
                local
                    .iter()
                    .any(|net| net.contains::<&std::net::IpAddr>(&source))
            );
        }
    }
}

#[test]
fn a_single_peer_route_is_added_and_removed() {
    let meshed = Meshed::new();
    let fixture = &meshed.fixture;
    fixture.passed(&wanted(Some(&mesh())));
    let more = wanted(Some(&mesh_to(&format!("{REMOTES},10.9.5.0/24"))));
    let repairs = fixture.passed(&more);
    assert_eq!(repairs, ["replace mesh routes to 10.9.5.0/24"]);
    let repairs = fixture.passed(&wanted(Some(&mesh())));
    assert_eq!(repairs, ["remove mesh routes to 10.9.5.0/24"]);
    assert_eq!(route_to(meshed.node(), "10.9.5.5", &[]), None);
}

#[test]
fn path_mtu_exceptions_are_not_taken_for_routes() {
    let meshed = Meshed::new();
    // The other node forwards over a link with a smaller MTU.
    let far = lab::Node::new("far").unwrap();
    meshed
        .peer
        .wire("far0", "192.168.9.1/24", &far, "192.168.9.2/24")
        .unwrap();
    on(
        &meshed.peer,
        "ip address add fd00:77::1/64 dev far0 nodad
         ip link set far0 mtu 1300
         sysctl -qw net.ipv4.ip_forward=1 net.ipv6.conf.all.forwarding=1
         ip route add 10.9.4.128/25 via 192.168.9.2
         ip route add fd00:9:0:4:1::/80 via fd00:77::2",
    );
    on(&far, "ip address add fd00:77::2/64 dev far0 nodad");
    let mut mesh = mesh();
    mesh.via_ipv4 = Some(PEER_TAILNET_IPS[0].parse().unwrap());
    mesh.via_ipv6 = Some(PEER_TAILNET_IPS[1].parse().unwrap());
    let wanted = wanted(Some(&mesh));
    meshed.fixture.passed(&wanted);
    for to in ["10.9.4.129", "fd00:9:0:4:1::5"] {
        let line = [
            "ping", "-n", "-c", "1", "-W", "1", "-M", "do", "-s", "1400", to,
        ];
        meshed.node().attempt(line).unwrap();
        let get = meshed
            .node()
            .run(["ip", "route", "get", to])
            .unwrap()
            .stdout;
        assert!(get.contains("mtu 1300"), "{get}");
    }
    assert_eq!(meshed.fixture.passed(&wanted), [""; 0]);
}
