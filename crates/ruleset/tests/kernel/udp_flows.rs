//! UDP flows that outlive what their hostPort led to.

use lab::{Netns as _, Node};
use ruleset::host_ports::{HostPort, Protocol, add, delete_udp_flows, remove};

use crate::harness::{Client, Place, ask_tcp, host_port, ip, nft, serve, serve_at};

/// The kernel's UDP flows, one line each, with its number.
fn flows(node: &Node) -> Vec<String> {
    let mut flows = Vec::new();
    for family in ["ipv4", "ipv6"] {
        let listing = node
            .run(["conntrack", "-L", "-f", family, "-p", "udp", "-o", "id"])
            .unwrap();
        flows.extend(listing.stdout.lines().map(|line| {
            // Without what changes by itself: the time that is left.
            let words = line.split_whitespace().enumerate();
            let kept = words.filter(|(place, _)| *place != 2);
            kept.map(|(_, word)| word).collect::<Vec<_>>().join(" ")
        }));
    }
    flows.sort();
    flows
}

fn udp(host: Option<&str>, pod: &str) -> HostPort {
    host_port(host, Protocol::Udp, 5353, pod, 53)
}

#[test]
fn a_client_that_never_falls_silent_follows_the_host_port() {
    let place = Place::new();
    let (a, b) = (place.pod("a", 10), place.pod("b", 11));
    let (node, neighbour) = (&place.node, &place.neighbour);
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
    let bystanders = [
        (Client::new(&b, "[::]:0"), "192.0.2.2:5353"),
        (Client::new(&b, "[::]:0"), "[2001:db8::2]:5353"),
        (Client::new(neighbour, "[::]:0"), "192.0.2.7:5353"),
        (Client::new(neighbour, "[::]:0"), "10.244.1.10:53"),
    ];
    for (client, to) in &bystanders {
        client.ask(to).unwrap();
    }
    ask_tcp(neighbour, "192.0.2.1:5353").unwrap();
    let before = flows(node);
    assert_eq!(before.len(), bystanders.len());

    let clients = [
        (Client::new(neighbour, "[::]:0"), "192.0.2.1:5353"),
        (Client::new(neighbour, "[::]:0"), "192.0.2.1:5353"),
        (Client::new(neighbour, "[::]:0"), "[2001:db8::1]:5353"),
        (Client::new(node, "[::]:0"), "192.0.2.1:5353"),
    ];
    let all_reach = |name: &str| {
        for (client, to) in &clients {
            let answer = client.ask(to).unwrap();
            assert!(
                answer.starts_with(&format!("{name} saw ")),
                "{to}: {answer}"
            );
        }
    };
    all_reach("node");
    add(&place.socket, &on_a).unwrap();
    all_reach("node");
    assert_eq!(delete_udp_flows(&place.socket, &on_a, &local).unwrap(), 4);
    all_reach("a");

    remove(&place.socket, &on_a).unwrap();
    add(&place.socket, &on_b).unwrap();
    all_reach("a");
    assert_eq!(delete_udp_flows(&place.socket, &on_b, &local).unwrap(), 4);
    all_reach("b");

    remove(&place.socket, &on_b).unwrap();
    assert_eq!(delete_udp_flows(&place.socket, &on_b, &local).unwrap(), 4);
    all_reach("node");
    assert_eq!(delete_udp_flows(&place.socket, &on_b, &local).unwrap(), 4);
    assert_eq!(delete_udp_flows(&place.socket, &on_b, &local).unwrap(), 0);
    assert_eq!(flows(node), before, "bystanders keep their flows");
}

#[test]
fn flows_to_one_address_are_forgotten_and_those_to_another_are_not() {
    let place = Place::new();
    let (node, neighbour) = (&place.node, &place.neighbour);
    ip(node, "address add 192.0.2.7/24 dev lan0").unwrap();
    let addresses = [
        "192.0.2.1:5353",
        "192.0.2.7:5353",
        "192.0.2.1:5454",
        "192.0.2.7:5454",
    ];
    serve_at(node, "node", &addresses);
    // Flows of another zone have to be found, too.
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
        client.ask(to).unwrap();
    }
    let local = ["192.0.2.7".parse().unwrap()];
    let one = [udp(Some("192.0.2.1"), "10.244.1.10")];
    assert_eq!(delete_udp_flows(&place.socket, &one, &local).unwrap(), 1);
    let tcp = [HostPort {
        protocol: Protocol::Tcp,
        ..udp(None, "10.244.1.10")
    }];
    assert_eq!(delete_udp_flows(&place.socket, &tcp, &local).unwrap(), 0);
    assert_eq!(flows(node).len(), 3);
    // Two ports, one of them on every address.
    let two = [
        udp(None, "10.244.1.10"),
        HostPort {
            port: 5454,
            ..udp(Some("192.0.2.1"), "10.244.1.10")
        },
    ];
    assert_eq!(delete_udp_flows(&place.socket, &two, &local).unwrap(), 2);
    let left = flows(node);
    assert_eq!(left.len(), 1);
    assert!(
        left[0].contains("dst=192.0.2.7") && left[0].contains("zone=7"),
        "{left:?}"
    );
}

#[test]
fn hundreds_of_flows_are_forgotten_at_once() {
    let place = Place::new();
    serve(&place.node, "node", 5353);
    let clients: Vec<Client> = (0..300)
        .map(|_| Client::new(&place.neighbour, "[::]:0"))
        .collect();
    for client in &clients {
        client.ask("192.0.2.1:5353").unwrap();
    }
    let ports = [udp(None, "10.244.1.10")];
    let local = ["192.0.2.1".parse().unwrap()];
    assert_eq!(
        delete_udp_flows(&place.socket, &ports, &local).unwrap(),
        300
    );
    assert_eq!(flows(&place.node), Vec::<String>::new());
}
