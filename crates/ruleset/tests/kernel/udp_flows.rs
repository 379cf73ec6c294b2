//! UDP flows follow changes of their hostPort.

use lab::{Netns as _, Node};
use ruleset::host_ports::{HostPort, Protocol, add, delete_udp_flows, remove};

use crate::harness::{Client, Testbed, host_port, ip, nft, query_tcp, serve, serve_at};

/// The UDP flows with their IDs, one per line.
fn flows(node: &Node) -> Vec<String> {
    let mut flows = Vec::new();
    for family in ["ipv4", "ipv6"] {
        let listing = node
            .run(["conntrack", "-L", "-f", family, "-p", "udp", "-o", "id"])
            .unwrap();
        flows.extend(listing.stdout.lines().map(|line| {
            // Without the timeout, which changes.
            let fields = line.split_whitespace().enumerate();
            let fields = fields.filter(|(index, _)| *index != 2);
            fields.map(|(_, field)| field).collect::<Vec<_>>().join(" ")
        }));
    }
    flows.sort();
    flows
}

fn udp(host: Option<&str>, pod: &str) -> HostPort {
    host_port(host, Protocol::Udp, 5353, pod, 53)
}

#[test]
fn a_busy_client_follows_the_host_port() {
    let testbed = Testbed::new();
    let (a, b) = (testbed.pod("a", 10), testbed.pod("b", 11));
    let (node, neighbour) = (&testbed.node, &testbed.neighbour);
    serve(&a, "a", 53);
    serve(&b, "b", 53);
    serve(neighbour, "neighbour", 5353);
    ip(node, "address add 192.0.2.7/24 dev lan0").unwrap();
    let addresses = ["192.0.2.1:5353", "192.0.2.7:5353", "[2001:db8::1]:5353"];
    serve_at(node, "node", &addresses);
    let local = ["192.0.2.1", "10.244.1.1", "2001:db8::1", "fd00:1::1"]
        .map(|address| address.parse().unwrap());
    let on_a = [udp(None, "10.244.1.10"), udp(None, "fd00:1::a")];
    let on_b = [udp(None, "10.244.1.11"), udp(None, "fd00:1::b")];

    // The same port elsewhere, and another port here.
    let others = [
        (Client::new(&b, "[::]:0"), "192.0.2.2:5353"),
        (Client::new(&b, "[::]:0"), "[2001:db8::2]:5353"),
        (Client::new(neighbour, "[::]:0"), "192.0.2.7:5353"),
        (Client::new(neighbour, "[::]:0"), "10.244.1.10:53"),
    ];
    for (client, to) in &others {
        client.query(to).unwrap();
    }
    query_tcp(neighbour, "192.0.2.1:5353").unwrap();
    let before = flows(node);
    assert_eq!(before.len(), others.len());

    let clients = [
        (Client::new(neighbour, "[::]:0"), "192.0.2.1:5353"),
        (Client::new(neighbour, "[::]:0"), "192.0.2.1:5353"),
        (Client::new(neighbour, "[::]:0"), "[2001:db8::1]:5353"),
        (Client::new(node, "[::]:0"), "192.0.2.1:5353"),
    ];
    let all_reach = |name: &str| {
        for (client, to) in &clients {
            let answer = client.query(to).unwrap();
            assert!(
                answer.starts_with(&format!("{name} saw ")),
                "{to}: {answer}"
            );
        }
    };
    all_reach("node");
    add(&testbed.socket, &on_a).unwrap();
    all_reach("node");
    assert_eq!(delete_udp_flows(&testbed.socket, &on_a, &local).unwrap(), 4);
    all_reach("a");

    remove(&testbed.socket, &on_a).unwrap();
    add(&testbed.socket, &on_b).unwrap();
    all_reach("a");
    assert_eq!(delete_udp_flows(&testbed.socket, &on_b, &local).unwrap(), 4);
    all_reach("b");

    remove(&testbed.socket, &on_b).unwrap();
    assert_eq!(delete_udp_flows(&testbed.socket, &on_b, &local).unwrap(), 4);
    all_reach("node");
    assert_eq!(delete_udp_flows(&testbed.socket, &on_b, &local).unwrap(), 4);
    assert_eq!(delete_udp_flows(&testbed.socket, &on_b, &local).unwrap(), 0);
    assert_eq!(flows(node), before, "other flows stay");
}

#[test]
fn only_flows_to_the_host_ip_are_deleted() {
    let testbed = Testbed::new();
    let (node, neighbour) = (&testbed.node, &testbed.neighbour);
    ip(node, "address add 192.0.2.7/24 dev lan0").unwrap();
    let addresses = [
        "192.0.2.1:5353",
        "192.0.2.7:5353",
        "192.0.2.1:5454",
        "192.0.2.7:5454",
    ];
    serve_at(node, "node", &addresses);
    // Flows of another conntrack zone count, too.
    for line in [
        "add table inet zones",
        "add chain inet zones in { type filter hook prerouting priority raw; }",
        "add chain inet zones out { type filter hook output priority raw; }",
        "add rule inet zones in udp dport 5454 ct zone set 7",
        "add rule inet zones out udp sport 5454 ct zone set 7",
    ] {
        nft(node, line);
    }
    let client = Client::new(neighbour, "[::]:0");
    for to in addresses {
        client.query(to).unwrap();
    }
    let local = ["192.0.2.7".parse().unwrap()];
    let one = [udp(Some("192.0.2.1"), "10.244.1.10")];
    assert_eq!(delete_udp_flows(&testbed.socket, &one, &local).unwrap(), 1);
    let tcp = [HostPort {
        protocol: Protocol::Tcp,
        ..udp(None, "10.244.1.10")
    }];
    assert_eq!(delete_udp_flows(&testbed.socket, &tcp, &local).unwrap(), 0);
    assert_eq!(flows(node).len(), 3);
    // Two ports, one of them without a hostIP.
    let two = [
        udp(None, "10.244.1.10"),
        HostPort {
            port: 5454,
            ..udp(Some("192.0.2.1"), "10.244.1.10")
        },
    ];
    assert_eq!(delete_udp_flows(&testbed.socket, &two, &local).unwrap(), 2);
    let remaining = flows(node);
    assert_eq!(remaining.len(), 1);
    assert!(
        remaining[0].contains("dst=192.0.2.7") && remaining[0].contains("zone=7"),
        "{remaining:?}"
    );
}

#[test]
fn hundreds_of_flows_are_deleted() {
    let testbed = Testbed::new();
    serve(&testbed.node, "node", 5353);
    let clients: Vec<Client> = (0..300)
        .map(|_| Client::new(&testbed.neighbour, "[::]:0"))
        .collect();
    for client in &clients {
        client.query("192.0.2.1:5353").unwrap();
    }
    let ports = [udp(None, "10.244.1.10")];
    let local = ["192.0.2.1".parse().unwrap()];
    assert_eq!(
        delete_udp_flows(&testbed.socket, &ports, &local).unwrap(),
        300
    );
    assert_eq!(flows(&testbed.node), Vec::<String>::new());
}
