//! NAT: hostPorts, masquerading, and packets that keep their addresses.

use std::io::ErrorKind;
use std::net::Ipv4Addr;

use lab::frames::{Ethernet, Ipv4};
use lab::{DEADLINE, Netns, RawLink, eventually};
use ruleset::host_ports::{Protocol, add, remove};
use ruleset::{Sets, ensure_covered};

use crate::harness::{
    Client, GATEWAY, GATEWAY6, Testbed, host_port, ip, query_tcp, query_udp, serve, serve_at,
};

/// By TCP and UDP.
#[track_caller]
fn assert_answer(from: &impl Netns, to: &str, answer: &str) {
    assert_eq!(query_tcp(from, to).unwrap(), answer, "{to} by TCP");
    assert_eq!(query_udp(from, to).unwrap(), answer, "{to} by UDP");
}

#[test]
fn a_host_port_is_reached_from_everywhere() {
    let testbed = Testbed::new();
    let (a, b) = (testbed.pod("a", 10), testbed.pod("b", 11));
    serve(&a, "a", 80);
    serve(&testbed.node, "node", 9090);
    for protocol in [Protocol::Tcp, Protocol::Udp] {
        let ports = [
            host_port(None, protocol, 8080, "10.244.1.10", 80),
            host_port(None, protocol, 8080, "fd00:1::a", 80),
            host_port(Some("192.0.2.1"), protocol, 9090, "10.244.1.10", 80),
            host_port(Some("2001:db8::1"), protocol, 9090, "fd00:1::a", 80),
        ];
        add(&testbed.socket, &ports).unwrap();
    }
    for port in [8080, 9090] {
        let (v4, v6) = (format!("192.0.2.1:{port}"), format!("[2001:db8::1]:{port}"));
        // Clients keep their source address,
        assert_answer(&testbed.neighbour, &v4, "a saw 192.0.2.2");
        assert_answer(&testbed.neighbour, &v6, "a saw 2001:db8::2");
        assert_answer(&b, &v4, "a saw 10.244.1.11");
        assert_answer(&b, &v6, "a saw fd00:1::b");
        assert_answer(&testbed.node, &v4, "a saw 192.0.2.1");
        assert_answer(&testbed.node, &v6, "a saw 2001:db8::1");
        // except the pod itself, which would answer itself past the node.
        assert_answer(&a, &v4, &format!("a saw {GATEWAY}"));
        assert_answer(&a, &v6, &format!("a saw {GATEWAY6}"));
    }
    // 8080 applies to every address, 9090 to its hostIP only.
    assert_answer(&b, &format!("{GATEWAY}:8080"), "a saw 10.244.1.11");
    assert_answer(&b, &format!("{GATEWAY}:9090"), "node saw 10.244.1.11");
    assert_answer(&b, &format!("[{GATEWAY6}]:9090"), "node saw fd00:1::b");

    for protocol in [Protocol::Tcp, Protocol::Udp] {
        let gone = [host_port(None, protocol, 8080, "10.244.1.10", 80)];
        remove(&testbed.socket, &gone).unwrap();
    }
    let error = query_tcp(&testbed.neighbour, "192.0.2.1:8080").unwrap_err();
    assert_eq!(error.kind(), ErrorKind::ConnectionRefused);
    assert_answer(
        &testbed.neighbour,
        "[2001:db8::1]:8080",
        "a saw 2001:db8::2",
    );
}

#[test]
fn other_destinations_and_excluded_addresses_are_not_translated() {
    let testbed = Testbed::new();
    let (a, b) = (testbed.pod("a", 10), testbed.pod("b", 11));
    serve(&a, "a", 80);
    serve(&testbed.node, "node", 8080);
    serve(&testbed.neighbour, "neighbour", 8080);
    serve(&b, "b", 8080);
    // As node-local-dns and kube-proxy's IPVS mode add them.
    for address in ["169.254.20.10/32", "10.96.0.1/32", "fd00:96::1/128"] {
        ip(&testbed.node, &format!("address add {address} dev lo")).unwrap();
    }
    let excluded = ["10.96.0.0/12", "fd00:96::/108"].map(|text| text.parse().unwrap());
    ensure_covered(&testbed.socket, Sets::Excluded, &excluded).unwrap();
    for protocol in [Protocol::Tcp, Protocol::Udp] {
        let ports = [
            host_port(None, protocol, 8080, "10.244.1.10", 80),
            host_port(None, protocol, 8080, "fd00:1::a", 80),
        ];
        add(&testbed.socket, &ports).unwrap();
    }
    assert_answer(&b, "192.0.2.1:8080", "a saw 10.244.1.11");
    // The same port elsewhere: on the LAN, of another pod, of the same pod.
    assert_answer(&b, "192.0.2.2:8080", "neighbour saw 192.0.2.1");
    assert_answer(&b, "[2001:db8::2]:8080", "neighbour saw 2001:db8::1");
    assert_answer(&a, "10.244.1.11:8080", "b saw 10.244.1.10");
    assert_answer(&testbed.node, "192.0.2.2:8080", "neighbour saw 192.0.2.1");
    assert_answer(&testbed.neighbour, "10.244.1.11:8080", "b saw 192.0.2.2");
    // Excluded local addresses.
    for to in ["169.254.20.10:8080", "10.96.0.1:8080"] {
        assert_answer(&b, to, "node saw 10.244.1.11");
        let own = to.split(':').next().unwrap();
        assert_answer(&testbed.node, to, &format!("node saw {own}"));
    }
    assert_answer(&b, "[fd00:96::1]:8080", "node saw fd00:1::b");
    // Loopback has no hostPorts without a hostIP.
    assert_answer(&testbed.node, "127.0.0.1:8080", "node saw 127.0.0.1");
    assert_answer(&testbed.node, "[::1]:8080", "node saw ::1");
}

#[test]
fn a_host_port_of_loopback_is_for_the_node_alone() {
    let testbed = Testbed::new();
    let a = testbed.pod("a", 10);
    serve(&a, "a", 80);
    serve(&testbed.node, "node", 7070);
    for protocol in [Protocol::Tcp, Protocol::Udp] {
        let ports = [host_port(
            Some("127.0.0.1"),
            protocol,
            7070,
            "10.244.1.10",
            80,
        )];
        add(&testbed.socket, &ports).unwrap();
    }
    // A hostPort of 127.0.0.1 needs it on hca; on lan0 it is the worst case of foreign settings.
    for link in ["hca", "lan0"] {
        let sysctl = format!("net.ipv4.conf.{link}.route_localnet");
        testbed.node.sysctl(&sysctl, "1").unwrap();
    }
    assert_answer(&testbed.node, "127.0.0.1:7070", &format!("a saw {GATEWAY}"));
    assert_answer(&testbed.node, "192.0.2.1:7070", "node saw 192.0.2.1");

    // A martian of a neighbour must not reach the pod.
    let link = RawLink::open(&testbed.neighbour, "lan0").unwrap();
    let mac = testbed.node.ip(["link", "show", "lan0"]).unwrap()[0]["address"].clone();
    let to_node = Ethernet::new(link.mac(), mac.as_str().unwrap().parse().unwrap());
    let packet = Ipv4::new([192, 0, 2, 2].into(), Ipv4Addr::LOCALHOST).udp(1000, 7070, b"?");
    link.send(&to_node.ipv4(&packet)).unwrap();
    let flow = || {
        let listing = testbed.node.run(["conntrack", "-L", "-p", "udp"]).unwrap();
        let mut lines = listing.stdout.lines();
        lines
            .find(|line| line.contains(" dst=127.0.0.1 sport=1000 "))
            .map(str::to_owned)
    };
    let flow = eventually(DEADLINE, "the frame's flow", flow).unwrap();
    assert!(flow.contains(" src=127.0.0.1 dst=192.0.2.2 "), "{flow}");
}

#[test]
fn only_packets_of_pods_that_leave_the_cluster_are_masqueraded() {
    let testbed = Testbed::new();
    let (a, b) = (testbed.pod("a", 10), testbed.pod("b", 11));
    let (node, neighbour) = (&testbed.node, &testbed.neighbour);
    serve(&a, "a", 80);
    serve(node, "node", 80);
    // A cluster destination beyond the LAN.
    for (host, line) in [
        (neighbour, "address add 203.0.113.5/32 dev lo"),
        (neighbour, "address add fd00:2::5/128 dev lo nodad"),
        (node, "route add 203.0.113.0/24 via 192.0.2.2"),
        (node, "route add fd00:2::/64 via 2001:db8::2"),
    ] {
        ip(host, line).unwrap();
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
    ensure_covered(&testbed.socket, Sets::Cluster, &cluster).unwrap();
    assert_answer(&b, "203.0.113.5:80", "neighbour saw 10.244.1.11");
    assert_answer(&b, "[fd00:2::5]:80", "neighbour saw fd00:1::b");

    assert_answer(&b, "192.0.2.2:80", "neighbour saw 192.0.2.1");
    assert_answer(&b, "10.244.1.10:80", "a saw 10.244.1.11");
    assert_answer(&b, "[fd00:1::a]:80", "a saw fd00:1::b");
    assert_answer(&b, "192.0.2.1:80", "node saw 10.244.1.11");
    assert_answer(neighbour, "10.244.1.10:80", "a saw 192.0.2.2");
    // The node's own packets have no input interface, and keep their source.
    for (from, to, answer) in [
        ("10.244.1.1:0", "192.0.2.2:80", "neighbour saw 10.244.1.1"),
        ("10.244.1.1:0", "10.244.1.10:80", "a saw 10.244.1.1"),
        (
            "[fd00:1::1]:0",
            "[2001:db8::2]:80",
            "neighbour saw fd00:1::1",
        ),
    ] {
        assert_eq!(Client::new(node, from).query(to).unwrap(), answer);
    }
}
