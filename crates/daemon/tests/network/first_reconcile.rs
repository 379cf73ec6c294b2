//! What the first reconcile sets up, and that the next one finds nothing to do.

use std::net::IpAddr;

use lab::{Netns, Node};
use node_config::{Config, Mode};
use node_hostnet::{Desired, ReconcileInput};

use crate::fixture::{GATEWAYS, HostnetNode, LOCAL, networks, reaches, seen, wanted, wanted_by};

/// A machine outside with routes to the pods.
fn world(fixture: &HostnetNode) -> Node {
    let world = Node::new("world").unwrap();
    let node = &fixture.node;
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
fn the_first_reconcile_sets_up_everything_and_the_second_changes_nothing() {
    let fixture = HostnetNode::new();
    let repairs = fixture.passed(&wanted());
    assert!(!repairs.is_empty());
    for name in ["net.ipv4.ip_forward", "net.ipv6.conf.all.forwarding"] {
        assert_eq!(fixture.sysctl(name), "1", "{name}");
    }
    let addresses = fixture.node.addresses().unwrap();
    for gateway in ["10.9.3.1/32", "fd00:9:0:3::1/128"] {
        let is_there = addresses.iter().any(|a| a.dev == "lo" && a.cidr == gateway);
        assert!(is_there, "{gateway} in {addresses:?}");
    }
    for (network, family) in networks(LOCAL).iter().zip(["-4", "-6"]) {
        let routes = fixture.run(&format!("ip {family} route show table main proto 104"));
        let start = format!("unreachable {network} ");
        assert!(
            routes.starts_with(&start) && routes.contains("metric 4000000"),
            "{routes}"
        );
        let rules = fixture.run(&format!("ip {family} rule show priority 5190"));
        assert!(
            rules.contains(&format!("to {network} lookup main proto 104")),
            "{rules}"
        );
    }
    let ruleset = fixture.run("nft list ruleset");
    for part in ["elements = { 10.9.0.0/16 }", "elements = { fd00:9::/48 }"] {
        // cluster, mesh_only and excluded; excluded4 has link-local addresses as well.
        assert!(ruleset.matches(part).count() >= 2, "{part} in {ruleset}");
    }
    for gateway in GATEWAYS {
        assert!(reaches(&fixture.node, gateway), "{gateway}");
    }

    assert_eq!(fixture.passed(&wanted()), [""; 0]);
    assert_eq!(fixture.passed(&wanted()), [""; 0]);
}

#[test]
fn pods_reach_each_other_and_unused_pod_addresses_are_unreachable() {
    let fixture = HostnetNode::new();
    let world = world(&fixture);
    fixture.passed(&wanted());
    let (a, of_a) = fixture.pod("a");
    let (_b, of_b) = fixture.pod("b");
    for family in [0, 1] {
        assert!(reaches(&a, of_b.addresses[family]));
        assert!(reaches(&fixture.node, of_a.addresses[family]));
        assert!(reaches(&world, of_a.addresses[family]));
    }
    // An unused local address, and a pod of another node: never by the default route.
    for unused in ["10.9.3.200", "fd00:9:0:3::200"] {
        let asked = a
            .attempt(["ping", "-n", "-c", "1", "-W", "1", unused])
            .unwrap();
        assert!(asked.stdout.contains("nreachable"), "{}", asked.stdout);
        let asked = fixture
            .node
            .attempt(["ping", "-n", "-c", "1", "-W", "1", unused])
            .unwrap();
        assert!(!asked.status.success());
    }
    for away in ["10.9.77.7", "fd00:9:0:77::7"] {
        assert!(
            !reaches(&a, away) && !reaches(&fixture.node, away),
            "{away}"
        );
    }
    // The plugin changed nothing.
    assert_eq!(fixture.passed(&wanted()), [""; 0]);
}

#[test]
fn rules_of_others_do_not_divert_packets_to_pods() {
    let fixture = HostnetNode::new();
    let _world = world(&fixture);
    fixture.passed(&wanted());
    let (a, of_a) = fixture.pod("a");
    let (_b, of_b) = fixture.pod("b");
    fixture.run("ip rule add priority 5270 lookup 52; ip -6 rule add priority 5270 lookup 52");
    fixture.run("ip route add 10.9.0.0/16 via 192.168.7.1 table 52");
    fixture.run("ip route add fd00:9::/48 via fd00:7::1 table 52");
    for family in [0, 1] {
        assert!(reaches(&a, of_b.addresses[family]));
        assert!(reaches(&fixture.node, of_a.addresses[family]));
    }
}

#[test]
fn masquerade_can_be_disabled_and_enabled() {
    let fixture = HostnetNode::new();
    let world = world(&fixture);
    let mut config = Config::default();
    fixture.passed(&wanted_by(&config));
    let (pod, link) = fixture.pod("a");
    let ends = [("192.168.7.1", "192.168.7.2"), ("fd00:7::1", "fd00:7::2")];
    for masquerade in [true, false, true] {
        config.network.masquerade = masquerade;
        fixture.passed(&wanted_by(&config));
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
fn a_changed_pod_cidr_leaves_nothing_of_the_old_one() {
    let fixture = HostnetNode::new();
    fixture.passed(&wanted());
    fixture.passed(&wanted());
    let config = Config::default();
    let moved = |local: &str, base: &str| ReconcileInput {
        desired: Desired::new(&config, &networks(local), &networks(base), None).unwrap(),
        pods: None,
    };
    fixture.passed(&moved("10.77.5.0/24", "10.77.0.0/16"));
    let state = [
        fixture.run("ip route show table all; ip -6 route show table all"),
        fixture.run("ip rule; ip -6 rule; ip address show lo; nft list ruleset"),
    ];
    let state = state.join("\n");
    for old in ["10.9.", "fd00:9:"] {
        let left: Vec<&str> = state.lines().filter(|line| line.contains(old)).collect();
        // The kernel's local route of an IPv6 gateway expires within a minute.
        let left: Vec<&&str> = left.iter().filter(|l| !l.contains("expires")).collect();
        assert!(left.is_empty(), "{left:?}");
    }
    assert!(state.contains("10.77.5.1/32") && state.contains("10.77.0.0/16"));
    assert_eq!(
        fixture.passed(&moved("10.77.5.0/24", "10.77.0.0/16")),
        [""; 0]
    );
}

#[test]
fn bridged_pods_are_masqueraded_and_never_in_clear() {
    let fixture = HostnetNode::new();
    let world = world(&fixture);
    let mut config = Config::default();
    config.cni.mode = Mode::Bridge;
    fixture.passed(&wanted_by(&config));
    let addresses = fixture.node.addresses().unwrap();
    assert!(!addresses.iter().any(|a| a.cidr.starts_with("10.9.3.1/")));
    // As the bridge plugin does.
    let pod = fixture.node.pod("a").unwrap();
    for line in [
        "ip link add headcni0 type bridge",
        "ip link set headcni0 up",
        "ip address add 10.9.3.1/24 dev headcni0",
        "ip link add v0 type veth peer name eth0 netns a",
        "ip link set v0 master headcni0 up",
    ] {
        fixture.run(line);
    }
    for line in [
        "ip link set eth0 up",
        "ip address add 10.9.3.5/24 dev eth0",
        "ip route add default via 10.9.3.1",
    ] {
        pod.run(line.split_whitespace()).unwrap();
    }
    assert!(reaches(&fixture.node, "10.9.3.5"));
    let seen = seen(&pod, &world, "192.168.7.1");
    assert_eq!(seen, "192.168.7.2".parse::<IpAddr>().unwrap());
    assert!(!reaches(&pod, "10.9.77.7"), "in clear");
    assert_eq!(fixture.passed(&wanted_by(&config)), [""; 0]);
}

#[test]
fn a_node_with_accept_ra_keeps_accepting_router_advertisements() {
    let fixture = HostnetNode::new();
    let _world = world(&fixture);
    for (name, value) in [
        ("net.ipv6.conf.up0.accept_ra", "1"),
        ("net.ipv6.conf.all.forwarding", "0"),
    ] {
        fixture.node.sysctl(name, value).unwrap();
    }
    fixture.passed(&wanted());
    assert_eq!(fixture.sysctl("net.ipv6.conf.up0.accept_ra"), "2");
    // With forwarding already on, only a default route from a router advertisement shows it.
    fixture
        .node
        .sysctl("net.ipv6.conf.up0.accept_ra", "1")
        .unwrap();
    assert_eq!(fixture.passed(&wanted()), [""; 0]);
    fixture.run("ip -6 route add default via fd00:7::1 proto ra metric 2000");
    assert_eq!(fixture.passed(&wanted()).len(), 1);
    assert_eq!(fixture.sysctl("net.ipv6.conf.up0.accept_ra"), "2");
}

#[test]
fn an_older_table_version_is_replaced_with_pods_running() {
    let fixture = HostnetNode::new();
    let world = world(&fixture);
    fixture.passed(&wanted());
    let (pod, _) = fixture.pod("a");
    // As an earlier version installed it.
    fixture.run(
        "nft 'delete table inet headcni
              add table inet headcni { comment \"headcni, rules for pods, version 1\"; }
              add set inet headcni cluster4 { type ipv4_addr; flags interval; }
              add set inet headcni cluster6 { type ipv6_addr; flags interval; }
              add element inet headcni cluster4 { 10.9.3.0/24, 192.168.55.0/24 }'",
    );
    let repairs = fixture.passed(&wanted());
    assert_eq!(
        repairs,
        ["replace nftables table inet headcni (had another version)"]
    );
    let cluster = fixture.run("nft list set inet headcni cluster4");
    assert!(
        cluster.contains("10.9.0.0/16, 192.168.55.0/24"),
        "{cluster}"
    );
    let seen = seen(&pod, &world, "192.168.7.1");
    assert_eq!(seen, "192.168.7.2".parse::<IpAddr>().unwrap());
    assert_eq!(fixture.passed(&wanted()), [""; 0]);
}
