//! What packets meet: hostPorts, masquerading, and what must be left alone.

use std::io::ErrorKind;
use std::net::Ipv4Addr;

use lab::frames::{Ethernet, Ipv4};
use lab::{DEADLINE, Netns, RawLink, eventually};
use ruleset::host_ports::{Protocol, add, remove};
use ruleset::{Sets, ensure_covered};

use crate::harness::{
    Client, GATEWAY, GATEWAY6, Place, ask_tcp, ask_udp, host_port, ip, serve, serve_at,
};

/// By TCP and by UDP.
#[track_caller]
fn assert_answer(from: &impl Netns, to: &str, answer: &str) {
    assert_eq!(ask_tcp(from, to).unwrap(), answer, "{to} by TCP");
    assert_eq!(ask_udp(from, to).unwrap(), answer, "{to} by UDP");
}

#[test]
fn a_host_port_leads_to_its_pod_from_everywhere() {
    let place = Place::new();
    let (a, b) = (place.pod("a", 10), place.pod("b", 11));
    serve(&a, "a", 80);
    serve(&place.node, "node", 9090);
    for protocol in [Protocol::Tcp, Protocol::Udp] {
        let ports = [
            host_port(None, protocol, 8080, "10.244.1.10", 80),
            host_port(None, protocol, 8080, "fd00:1::a", 80),
            host_port(Some("192.0.2.1"), protocol, 9090, "10.244.1.10", 80),
            host_port(Some("2001:db8::1"), protocol, 9090, "fd00:1::a", 80),
        ];
        add(&place.socket, &ports).unwrap();
    }
    for port in [8080, 9090] {
        let (v4, v6) = (format!("192.0.2.1:{port}"), format!("[2001:db8::1]:{port}"));
        // Nobody's address is changed,
        assert_answer(&place.neighbour, &v4, "a saw 192.0.2.2");
        assert_answer(&place.neighbour, &v6, "a saw 2001:db8::2");
        assert_answer(&b, &v4, "a saw 10.244.1.11");
        assert_answer(&b, &v6, "a saw fd00:1::b");
        assert_answer(&place.node, &v4, "a saw 192.0.2.1");
        assert_answer(&place.node, &v6, "a saw 2001:db8::1");
        // but the pod's own, which would else answer to itself past the node.
        assert_answer(&a, &v4, &format!("a saw {GATEWAY}"));
        assert_answer(&a, &v6, &format!("a saw {GATEWAY6}"));
    }
    // Every address has the one, a single address the other.
    assert_answer(&b, &format!("{GATEWAY}:8080"), "a saw 10.244.1.11");
    assert_answer(&b, &format!("{GATEWAY}:9090"), "node saw 10.244.1.11");
    assert_answer(&b, &format!("[{GATEWAY6}]:9090"), "node saw fd00:1::b");

    for protocol in [Protocol::Tcp, Protocol::Udp] {
        let gone = [host_port(None, protocol, 8080, "10.244.1.10", 80)];
        remove(&place.socket, &gone).unwrap();
    }
    let error = ask_tcp(&place.neighbour, "192.0.2.1:8080").unwrap_err();
    assert_eq!(error.kind(), ErrorKind::ConnectionRefused);
    assert_answer(&place.neighbour, "[2001:db8::1]:8080", "a saw 2001:db8::2");
}

#[test]
fn bystanders_and_excluded_addresses_are_left_alone() {
    let place = Place::new();
    let (a, b) = (place.pod("a", 10), place.pod("b", 11));
    serve(&a, "a", 80);
    serve(&place.node, "node", 8080);
    serve(&place.neighbour, "neighbour", 8080);
    serve(&b, "b", 8080);
    // As node-local-dns and kube-proxy's IPVS mode have them.
    for address in ["169.254.20.10/32", "10.96.0.1/32", "fd00:96::1/128"] {
        ip(&place.node, &format!("address add {address} dev lo")).unwrap();
    }
    let excluded = ["10.96.0.0/12", "fd00:96::/108"].map(|text| text.parse().unwrap());
    ensure_covered(&place.socket, Sets::Excluded, &excluded).unwrap();
    for protocol in [Protocol::Tcp, Protocol::Udp] {
        let ports = [
            host_port(None, protocol, 8080, "10.244.1.10", 80),
            host_port(None, protocol, 8080, "fd00:1::a", 80),
        ];
        add(&place.socket, &ports).unwrap();
    }
    assert_answer(&b, "192.0.2.1:8080", "a saw 10.244.1.11");
    // The same port elsewhere: on the LAN, of another pod, of the same pod.
    assert_answer(&b, "192.0.2.2:8080", "neighbour saw 192.0.2.1");
    assert_answer(&b, "[2001:db8::2]:8080", "neighbour saw 2001:db8::1");
    assert_answer(&a, "10.244.1.11:8080", "b saw 10.244.1.10");
    assert_answer(&place.node, "192.0.2.2:8080", "neighbour saw 192.0.2.1");
    assert_answer(&place.neighbour, "10.244.1.11:8080", "b saw 192.0.2.2");
    // Local addresses where hostPorts don't apply.
    for to in ["169.254.20.10:8080", "10.96.0.1:8080"] {
        assert_answer(&b, to, "node saw 10.244.1.11");
        let own = to.split(':').next().unwrap();
        assert_answer(&place.node, to, &format!("node saw {own}"));
    }
    assert_answer(&b, "[fd00:96::1]:8080", "node saw fd00:1::b");
    // The node's loopback is its own.
    assert_answer(&place.node, "127.0.0.1:8080", "node saw 127.0.0.1");
    assert_answer(&place.node, "[::1]:8080", "node saw ::1");
}

#[test]
fn what_is_published_on_the_loopback_is_for_the_node_alone() {
    let place = Place::new();
    let a = place.pod("a", 10);
    serve(&a, "a", 80);
    serve(&place.node, "node", 7070);
    for protocol in [Protocol::Tcp, Protocol::Udp] {
        let ports = [host_port(
            Some("127.0.0.1"),
            protocol,
            7070,
            "10.244.1.10",
            80,
        )];
        add(&place.socket, &ports).unwrap();
    }
    // What a localhost hostPort needs, and the worst that others may have set.
    for link in ["hca", "lan0"] {
        let sysctl = format!("net.ipv4.conf.{link}.route_localnet");
        place.node.sysctl(&sysctl, "1").unwrap();
    }
    assert_answer(&place.node, "127.0.0.1:7070", &format!("a saw {GATEWAY}"));
    assert_answer(&place.node, "192.0.2.1:7070", "node saw 192.0.2.1");

    // A frame of a neighbour's to that address ends at the node, if anywhere.
    let link = RawLink::open(&place.neighbour, "lan0").unwrap();
    let mac = place.node.ip(["link", "show", "lan0"]).unwrap()[0]["address"].clone();
    let to_node = Ethernet::new(link.mac(), mac.as_str().unwrap().parse().unwrap());
    let packet = Ipv4::new([192, 0, 2, 2].into(), Ipv4Addr::LOCALHOST).udp(1000, 7070, b"?");
    link.send(&to_node.ipv4(&packet)).unwrap();
    let flow = || {
        let listing = place.node.run(["conntrack", "-L", "-p", "udp"]).unwrap();
        let mut lines = listing.stdout.lines();
        lines
            .find(|line| line.contains(" dst=127.0.0.1 sport=1000 "))
            .map(str::to_owned)
    };
    let flow = eventually(DEADLINE, "the frame's flow", flow).unwrap();
    assert!(flow.contains(" src=127.0.0.1 dst=192.0.2.2 "), "{flow}");
}

#[test]
fn only_what_leaves_the_cluster_from_a_pod_is_masqueraded() {
    let place = Place::new();
    let (a, b) = (place.pod("a", 10), place.pod("b", 11));
    let (node, neighbour) = (&place.node, &place.neighbour);
    serve(&a, "a", 80);
    serve(node, "node", 80);
    // A destination of the cluster beyond the LAN.
    for (place, line) in [
        (neighbour, "address add 203.0.113.5/32 dev lo"),
        (neighbour, "address add fd00:2::5/128 dev lo nodad"),
        (node, "route add 203.0.113.0/24 via 192.0.2.2"),
        (node, "route add fd00:2::/64 via 2001:db8::2"),
    ] {
        ip(place, line).unwrap();
    }
    let addresses = [
        "192.0.2.2:80",
        "[2001:db8::2]:80",
        "203.0.113.5:80",
        "[fd00:2::5]:80",
    ];
    serve_at(neighbour, "neighbour", &addresses);
    assert_answer(&b, "203.0.113.5:80", "neighbour saw 192.0.2.1");
    assert_answer(&b, "[fd00:2::5]:80", "neighbour saw 2001:db8::1");
    let cluster = ["203.0.113.0/24", "fd00:2::/64"].map(|text| text.parse().unwrap());
    ensure_covered(&place.socket, Sets::Cluster, &cluster).unwrap();
    assert_answer(&b, "203.0.113.5:80", "neighbour saw 10.244.1.11");
    assert_answer(&b, "[fd00:2::5]:80", "neighbour saw fd00:1::b");

    assert_answer(&b, "192.0.2.2:80", "neighbour saw 192.0.2.1");
    assert_answer(&b, "10.244.1.10:80", "a saw 10.244.1.11");
    assert_answer(&b, "[fd00:1::a]:80", "a saw fd00:1::b");
    assert_answer(&b, "192.0.2.1:80", "node saw 10.244.1.11");
    assert_answer(neighbour, "10.244.1.10:80", "a saw 192.0.2.2");
    // The node's own packets came by no link: whatever their source, it stays.
    for (from, to, answer) in [
        ("10.244.1.1:0", "192.0.2.2:80", "neighbour saw 10.244.1.1"),
        ("10.244.1.1:0", "10.244.1.10:80", "a saw 10.244.1.1"),
        (
            "[fd00:1::1]:0",
            "[2001:db8::2]:80",
            "neighbour saw fd00:1::1",
        ),
    ] {
        assert_eq!(Client::new(node, from).ask(to).unwrap(), answer);
    }
}
