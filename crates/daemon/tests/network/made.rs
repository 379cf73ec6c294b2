//! What the first pass makes, and that the next one finds nothing to do.

use std::net::IpAddr;

use lab::{Netns, Node};
use node_config::{Config, Mode};
use node_hostnet::{Desired, ReconcileInput};

use crate::scene::{GATEWAYS, LOCAL, Scene, networks, reaches, seen, wanted, wanted_by};

/// A machine beyond the node, which knows the way to its pods.
fn world(scene: &Scene) -> Node {
    let world = Node::new("world").unwrap();
    let node = &scene.node;
    node.wire("up0", "192.168.7.2/24", &world, "192.168.7.1/24")
        .unwrap();
    for (place, line) in [
        (node, "ip address add fd00:7::2/64 dev up0 nodad"),
        (&world, "ip address add fd00:7::1/64 dev up0 nodad"),
        (node, "ip route add default via 192.168.7.1"),
        (node, "ip route add default via fd00:7::1"),
        (&world, "ip route add 10.9.0.0/16 via 192.168.7.2"),
        (&world, "ip route add fd00:9::/48 via fd00:7::2"),
        (&world, "ip address add 10.9.77.7 dev lo"),
        (&world, "ip address add fd00:9:0:77::7 dev lo nodad"),
    ] {
        place.run(line.split_whitespace()).unwrap();
    }
    world
}

#[test]
fn the_first_pass_makes_everything_and_the_second_one_nothing() {
    let scene = Scene::new();
    let repairs = scene.passed(&wanted());
    assert!(!repairs.is_empty());
    for name in ["net.ipv4.ip_forward", "net.ipv6.conf.all.forwarding"] {
        assert_eq!(scene.sysctl(name), "1", "{name}");
    }
    let addresses = scene.node.addresses().unwrap();
    for gateway in ["10.9.3.1/32", "fd00:9:0:3::1/128"] {
        let is_there = addresses.iter().any(|a| a.dev == "lo" && a.cidr == gateway);
        assert!(is_there, "{gateway} in {addresses:?}");
    }
    for (network, family) in networks(LOCAL).iter().zip(["-4", "-6"]) {
        let routes = scene.run(&format!("ip {family} route show table main proto 104"));
        let start = format!("unreachable {network} ");
        assert!(
            routes.starts_with(&start) && routes.contains("metric 4000000"),
            "{routes}"
        );
        let rules = scene.run(&format!("ip {family} rule show priority 5190"));
        assert!(
            rules.contains(&format!("to {network} lookup main proto 104")),
            "{rules}"
        );
    }
    let ruleset = scene.run("nft list ruleset");
    for part in ["elements = { 10.9.0.0/16 }", "elements = { fd00:9::/48 }"] {
        // cluster, guarded and excluded each, but that excluded4 has the link-local ones as well.
        assert!(ruleset.matches(part).count() >= 2, "{part} in {ruleset}");
    }
    for gateway in GATEWAYS {
        assert!(reaches(&scene.node, gateway), "{gateway}");
    }

    assert_eq!(scene.passed(&wanted()), [""; 0]);
    assert_eq!(scene.passed(&wanted()), [""; 0]);
}

#[test]
fn pods_talk_and_what_is_nobodys_goes_nowhere() {
    let scene = Scene::new();
    let world = world(&scene);
    scene.passed(&wanted());
    let (a, of_a) = scene.pod("a");
    let (_b, of_b) = scene.pod("b");
    for family in [0, 1] {
        assert!(reaches(&a, of_b.addresses[family]));
        assert!(reaches(&scene.node, of_a.addresses[family]));
        assert!(reaches(&world, of_a.addresses[family]));
    }
    // A local address that no pod has, and a pod of another node: never by the default route.
    for nobody in ["10.9.3.200", "fd00:9:0:3::200"] {
        let asked = a
            .attempt(["ping", "-n", "-c", "1", "-W", "1", nobody])
            .unwrap();
        assert!(asked.stdout.contains("nreachable"), "{}", asked.stdout);
        let asked = scene
            .node
            .attempt(["ping", "-n", "-c", "1", "-W", "1", nobody])
            .unwrap();
        assert!(!asked.status.success());
    }
    for away in ["10.9.77.7", "fd00:9:0:77::7"] {
        assert!(!reaches(&a, away) && !reaches(&scene.node, away), "{away}");
    }
    // The plugin found all in place.
    assert_eq!(scene.passed(&wanted()), [""; 0]);
}

#[test]
fn a_rule_of_others_does_not_steal_packets_to_pods() {
    let scene = Scene::new();
    let _world = world(&scene);
    scene.passed(&wanted());
    let (a, of_a) = scene.pod("a");
    let (_b, of_b) = scene.pod("b");
    scene.run("ip rule add priority 5270 lookup 52; ip -6 rule add priority 5270 lookup 52");
    scene.run("ip route add 10.9.0.0/16 via 192.168.7.1 table 52");
    scene.run("ip route add fd00:9::/48 via fd00:7::1 table 52");
    for family in [0, 1] {
        assert!(reaches(&a, of_b.addresses[family]));
        assert!(reaches(&scene.node, of_a.addresses[family]));
    }
}

#[test]
fn masquerade_can_be_switched_off_and_on() {
    let scene = Scene::new();
    let world = world(&scene);
    let mut config = Config::default();
    scene.passed(&wanted_by(&config));
    let (pod, link) = scene.pod("a");
    let ends = [("192.168.7.1", "192.168.7.2"), ("fd00:7::1", "fd00:7::2")];
    for masquerade in [true, false, true] {
        config.network.masquerade = masquerade;
        scene.passed(&wanted_by(&config));
        for (family, (to, node)) in ends.iter().enumerate() {
            let expected: IpAddr = if masquerade {
                node.parse().unwrap()
            } else {
                link.addresses[family]
            };
            assert_eq!(seen(&pod, &world, to), expected, "{to} {masquerade}");
        }
    }
}

#[test]
fn a_network_that_changes_leaves_nothing_of_the_old_one() {
    let scene = Scene::new();
    scene.passed(&wanted());
    scene.passed(&wanted());
    let config = Config::default();
    let moved = |local: &str, base: &str| ReconcileInput {
        desired: Desired::new(&config, &networks(local), &networks(base), None).unwrap(),
        pods: None,
    };
    scene.passed(&moved("10.77.5.0/24", "10.77.0.0/16"));
    let state = [
        scene.run("ip route show table all; ip -6 route show table all"),
        scene.run("ip rule; ip -6 rule; ip address show lo; nft list ruleset"),
    ];
    let state = state.join("\n");
    for old in ["10.9.", "fd00:9:"] {
        let left: Vec<&str> = state.lines().filter(|line| line.contains(old)).collect();
        // The kernel's own idea of an IPv6 gateway being local goes away within a minute.
        let left: Vec<&&str> = left.iter().filter(|l| !l.contains("expires")).collect();
        assert!(left.is_empty(), "{left:?}");
    }
    assert!(state.contains("10.77.5.1/32") && state.contains("10.77.0.0/16"));
    assert_eq!(
        scene.passed(&moved("10.77.5.0/24", "10.77.0.0/16")),
        [""; 0]
    );
}

#[test]
fn pods_on_a_bridge_are_masqueraded_and_guarded_as_well() {
    let scene = Scene::new();
    let world = world(&scene);
    let mut config = Config::default();
    config.cni.mode = Mode::Bridge;
    scene.passed(&wanted_by(&config));
    let addresses = scene.node.addresses().unwrap();
    assert!(!addresses.iter().any(|a| a.cidr.starts_with("10.9.3.1/")));
    // What the plugin bridge makes.
    let pod = scene.node.pod("a").unwrap();
    for line in [
        "ip link add headcni0 type bridge",
        "ip link set headcni0 up",
        "ip address add 10.9.3.1/24 dev headcni0",
        "ip link add v0 type veth peer name eth0 netns a",
        "ip link set v0 master headcni0 up",
    ] {
        scene.run(line);
    }
    for line in [
        "ip link set eth0 up",
        "ip address add 10.9.3.5/24 dev eth0",
        "ip route add default via 10.9.3.1",
    ] {
        pod.run(line.split_whitespace()).unwrap();
    }
    assert!(reaches(&scene.node, "10.9.3.5"));
    let seen = seen(&pod, &world, "192.168.7.1");
    assert_eq!(seen, "192.168.7.2".parse::<IpAddr>().unwrap());
    assert!(!reaches(&pod, "10.9.77.7"), "in clear");
    assert_eq!(scene.passed(&wanted_by(&config)), [""; 0]);
}

#[test]
fn a_node_that_listens_to_a_router_goes_on_listening() {
    let scene = Scene::new();
    let _world = world(&scene);
    for (name, value) in [
        ("net.ipv6.conf.up0.accept_ra", "1"),
        ("net.ipv6.conf.all.forwarding", "0"),
    ] {
        scene.node.sysctl(name, value).unwrap();
    }
    scene.passed(&wanted());
    assert_eq!(scene.sysctl("net.ipv6.conf.up0.accept_ra"), "2");
    // Without forwarding of its own to blame, only a router's default route tells.
    scene
        .node
        .sysctl("net.ipv6.conf.up0.accept_ra", "1")
        .unwrap();
    assert_eq!(scene.passed(&wanted()), [""; 0]);
    scene.run("ip -6 route add default via fd00:7::1 proto ra metric 2000");
    assert_eq!(scene.passed(&wanted()).len(), 1);
    assert_eq!(scene.sysctl("net.ipv6.conf.up0.accept_ra"), "2");
}

#[test]
fn an_older_table_is_replaced_under_living_pods() {
    let scene = Scene::new();
    let world = world(&scene);
    scene.passed(&wanted());
    let (pod, _) = scene.pod("a");
    // What the version before this one has installed.
    scene.run(
        "nft 'delete table inet headcni
              add table inet headcni { comment \"headcni, rules for pods, version 1\"; }
              add set inet headcni cluster4 { type ipv4_addr; flags interval; }
              add set inet headcni cluster6 { type ipv6_addr; flags interval; }
              add element inet headcni cluster4 { 10.9.3.0/24, 192.168.55.0/24 }'",
    );
    let repairs = scene.passed(&wanted());
    assert_eq!(
        repairs,
        ["nftables table inet headcni was of another version"]
    );
    let cluster = scene.run("nft list set inet headcni cluster4");
    assert!(
        cluster.contains("10.9.0.0/16, 192.168.55.0/24"),
        "{cluster}"
    );
    let seen = seen(&pod, &world, "192.168.7.1");
    assert_eq!(seen, "192.168.7.2".parse::<IpAddr>().unwrap());
    assert_eq!(scene.passed(&wanted()), [""; 0]);
}
