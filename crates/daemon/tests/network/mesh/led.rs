//! Where packets are led.

use lab::Netns;
use node_config::Config;
use rstest::rstest;

use super::{
    LINK, MEMBER, Meshed, NOBODY, NOWHERE, REMOTES, THERE, mesh, mesh_to, on, wanted, wanted_by,
    way, ways,
};
use crate::scene::{BASE, GATEWAYS, LOCAL, Scene};

/// As `ip rule` and `ip route` have it where tailscaled has accepted a route to everything.
const STEALING: &str = "
    ip rule add priority 5270 lookup 52; ip -6 rule add priority 5270 lookup 52
    ip route add 10.0.0.0/8 via 192.168.7.1 table 52
    ip route add 10.9.4.0/24 via 192.168.7.1 table 52
    ip route add fd00:9::/32 via fd00:7::1 table 52
    ip route add fd00:9:0:4::/64 via fd00:7::1 table 52";

#[track_caller]
fn assert_led(meshed: &Meshed, family: usize) {
    let node = meshed.node();
    let led = |to: &str, more: &[&str]| way(node, to, more);
    let by = |link: &str, source: &str| Some((link.to_owned(), source.to_owned()));
    let gateway = GATEWAYS[family];
    assert_eq!(led(THERE[family], &[]), by(LINK, gateway), "another node's");
    assert_eq!(led(NOBODY[family], &[]), None, "this node's");
    assert_eq!(led(NOWHERE[family], &[]), None, "no node's");
    assert_eq!(led(gateway, &[]), by("lo", gateway), "the gateway");
    // tailscaled's own.
    let marked = ["mark", "0x80000"];
    for to in [THERE[family], NOWHERE[family]] {
        assert_eq!(led(to, &marked), None, "{to}");
    }
    assert_eq!(led(gateway, &marked), by("lo", gateway), "the gateway");
    // What Tailscale's firewall marks came out of the mesh, and is no packet of its own.
    let other = ["mark", "0x40000"];
    assert_eq!(led(THERE[family], &other), by(LINK, gateway));
    let outside = ["198.51.100.1", "2001:db8::1"][family];
    let underlay = ["192.168.7.2", "fd00:7::2"][family];
    for more in [&[][..], &marked] {
        assert_eq!(led(outside, more), by("up0", underlay));
    }
}

#[rstest]
#[case::ipv4("10.9.3.0/24", "10.9.0.0/16", &[0])]
#[case::ipv6("fd00:9:0:3::/64", "fd00:9::/48", &[1])]
#[case::both(LOCAL, BASE, &[0, 1])]
fn each_destination_has_its_way_and_no_other(
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
    assert!(!meshed.scene.passed(&wanted).is_empty());
    for family in families {
        assert_led(&meshed, *family);
    }
    // Others' rules come after ours.
    meshed.scene.run(STEALING);
    for family in families {
        assert_led(&meshed, *family);
    }
    assert_eq!(meshed.scene.passed(&wanted), [""; 0]);
}

#[test]
fn rules_and_routes_look_as_people_are_told() {
    let meshed = Meshed::new();
    meshed.scene.passed(&wanted(Some(&mesh())));
    let ways = ways(&meshed.scene);
    let ways = ways.split_whitespace().collect::<Vec<_>>().join(" ");
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
        assert!(ways.contains(part), "{part} in {ways}");
    }
}

#[test]
fn where_the_cluster_s_networks_are_not_known_only_those_of_nodes_are_led() {
    let meshed = Meshed::new();
    let wanted = wanted_by(&Config::default(), LOCAL, "", Some(&mesh()));
    meshed.scene.passed(&wanted);
    for family in [0, 1] {
        let node = meshed.node();
        let found = way(node, THERE[family], &[]).unwrap();
        assert_eq!(found, (LINK.to_owned(), GATEWAYS[family].to_owned()));
        assert_eq!(way(node, NOBODY[family], &[]), None);
        assert_eq!(way(node, NOWHERE[family], &[]).unwrap().0, "up0");
    }
    assert_eq!(meshed.scene.passed(&wanted), [""; 0]);
}

#[test]
fn by_a_namespace_of_its_own_the_way_has_a_gateway() {
    let meshed = Meshed::new();
    let mut mesh = mesh();
    mesh.via_ipv4 = Some(MEMBER[0].parse().unwrap());
    mesh.via_ipv6 = Some(MEMBER[1].parse().unwrap());
    // From one form to the other, there and back: a tailscaled may move.
    for mesh in [&mesh, &super::mesh(), &mesh] {
        meshed.scene.passed(&wanted(Some(mesh)));
        assert_eq!(meshed.scene.passed(&wanted(Some(mesh))), [""; 0]);
        assert_led(&meshed, 0);
        assert_led(&meshed, 1);
        let ways = ways(&meshed.scene);
        let has_gateway = mesh.via_ipv4.is_some();
        for member in MEMBER {
            let part = format!("via {member} dev {LINK}");
            assert_eq!(ways.contains(&part), has_gateway, "{part} in {ways}");
        }
        for there in THERE {
            meshed.node().ping(there).unwrap();
        }
    }
}

#[test]
fn a_network_of_ours_that_another_node_claims_gets_no_route() {
    let meshed = Meshed::new();
    let claimed = format!("{REMOTES},10.9.3.0/24,10.9.3.128/25,fd00:9::/32");
    let wanted = wanted(Some(&mesh_to(&claimed)));
    let outcome = meshed.scene.pass(&wanted).unwrap();
    for part in [
        "peer route 10.9.3.0/24 rejected: it overlaps 10.9.3.0/24",
        "peer route 10.9.3.128/25 rejected: it overlaps 10.9.3.0/24",
        "peer route fd00:9::/32 rejected: it overlaps fd00:9:0:3::/64",
        "2 peer routes via headcni01",
    ] {
        assert!(outcome.message.contains(part), "{}", outcome.message);
    }
    assert_led(&meshed, 0);
    assert_led(&meshed, 1);
}

#[test]
fn nothing_of_the_mesh_is_left_without_it() {
    let meshed = Meshed::new();
    let scene = &meshed.scene;
    let all = |scene: &Scene| {
        let state = [ways(scene), scene.node.nft_ruleset().unwrap()];
        let mut routes = scene.node.routes().unwrap();
        // The kernel's own, which come and go by themselves.
        routes.retain(|route| !route.contains("table local"));
        (state, routes)
    };
    for base in [BASE, ""] {
        let without = wanted_by(&Config::default(), LOCAL, base, None);
        scene.passed(&without);
        let before = all(scene);
        let mesh = mesh_to(&format!("{REMOTES},10.9.5.0/24"));
        scene.passed(&wanted_by(&Config::default(), LOCAL, base, Some(&mesh)));
        assert_ne!(all(scene), before);
        scene.passed(&without);
        assert_eq!(all(scene), before, "{base:?}");
        assert_eq!(scene.passed(&without), [""; 0]);
    }
}

#[test]
fn a_node_that_gets_other_networks_sends_from_those() {
    let meshed = Meshed::new();
    let local = "10.9.6.0/24,fd00:9:0:6::/64";
    for local in [LOCAL, local, LOCAL] {
        let wanted = wanted_by(&Config::default(), local, BASE, Some(&mesh()));
        meshed.scene.passed(&wanted);
        assert_eq!(meshed.scene.passed(&wanted), [""; 0]);
        for there in THERE {
            let (link, source) = way(meshed.node(), there, &[]).unwrap();
            assert_eq!(link, LINK);
            let local = crate::scene::networks(local);
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
fn another_node_s_network_comes_and_goes_by_itself() {
    let meshed = Meshed::new();
    let scene = &meshed.scene;
    scene.passed(&wanted(Some(&mesh())));
    let more = wanted(Some(&mesh_to(&format!("{REMOTES},10.9.5.0/24"))));
    let repairs = scene.passed(&more);
    assert_eq!(repairs, ["replace mesh routes to 10.9.5.0/24"]);
    let repairs = scene.passed(&wanted(Some(&mesh())));
    assert_eq!(
        repairs,
        ["routes of the mesh were too much: to 10.9.5.0/24"]
    );
    assert_eq!(way(meshed.node(), "10.9.5.5", &[]), None);
}

#[test]
fn what_the_kernel_learns_about_a_way_is_no_route() {
    let meshed = Meshed::new();
    // Behind the other node is a way that takes smaller packets only.
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
    mesh.via_ipv4 = Some(MEMBER[0].parse().unwrap());
    mesh.via_ipv6 = Some(MEMBER[1].parse().unwrap());
    let wanted = wanted(Some(&mesh));
    meshed.scene.passed(&wanted);
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
    assert_eq!(meshed.scene.passed(&wanted), [""; 0]);
}
