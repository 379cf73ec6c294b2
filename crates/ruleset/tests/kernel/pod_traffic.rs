//! Packets that pods may not send are dropped, all others pass.

use std::net::{Ipv4Addr, Ipv6Addr};
use std::time::Duration;

use lab::frames::{Dhcp, Ethernet, Icmp, Icmpv6, Ipv4, Ipv6, RouterAdvertisement};
use lab::{Netns as _, Node, RawLink, eventually};

use crate::harness::{Client, GATEWAY, GATEWAY6, HOST_MAC, Testbed, ip, query_udp, reaches, serve};

/// How many packets were dropped by the rules with this comment: each family may have one.
fn dropped(node: &Node, rule: &str) -> u64 {
    let listing = node
        .run(["nft", "list", "table", "inet", "headcni"])
        .unwrap()
        .stdout;
    let comment = format!("comment \"{rule}\"");
    let rules = listing.lines().filter(|line| line.contains(&comment));
    let counts = rules.map(|line| -> u64 {
        let count = line.split("packets ").nth(1).unwrap();
        count.split(' ').next().unwrap().parse().unwrap()
    });
    let counts: Vec<u64> = counts.collect();
    assert!(!counts.is_empty(), "no rule for {rule}");
    counts.iter().sum()
}

#[test]
fn forged_frames_are_dropped_and_counted() {
    let testbed = Testbed::new();
    let (node, neighbour) = (&testbed.node, Ipv4Addr::new(192, 0, 2, 2));
    let (a, b) = (testbed.pod("a", 10), testbed.pod("b", 11));
    serve(node, "node", 80);
    // Now the sources of both are in src_ok, each with its own interface.
    for pod in [&a, &b] {
        assert!(reaches(pod, GATEWAY) && reaches(pod, GATEWAY6));
    }
    // The worst case of foreign settings.
    node.sysctl("net.ipv4.conf.hca.route_localnet", "1")
        .unwrap();
    let link = RawLink::open(&a, "eth0").unwrap();
    let to_host = Ethernet::new(link.mac(), HOST_MAC.parse().unwrap());
    let (own, own6) = (
        Ipv4Addr::new(10, 244, 1, 10),
        "fd00:1::a".parse::<Ipv6Addr>().unwrap(),
    );
    let gateway6: Ipv6Addr = "fd00:1::1".parse().unwrap();
    let v4 = |packet: Vec<u8>| to_host.ipv4(&packet);
    let v6 = |packet: Vec<u8>| to_host.ipv6(&packet);

    let loopback = "the node's loopback";
    let (forged, dhcp) = ("forged sources", "DHCP");
    let advertisements = "router advertisements, redirects";
    let discover = Dhcp::discover(link.mac(), 1);
    let syn = |source: Ipv4Addr| v4(Ipv4::new(source, neighbour).tcp_syn(1000, 80));
    let syn6 = |source: &str| {
        let neighbour = "2001:db8::2".parse().unwrap();
        v6(Ipv6::new(source.parse().unwrap(), neighbour).tcp_syn(1000, 80))
    };
    let all = Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 0, 1);
    let local: Ipv6Addr = "fe80::ff:fe00:10a".parse().unwrap();
    let advertisement = Icmpv6::router_advertisement(&RouterAdvertisement::default());
    let redirect6 = Icmpv6::redirect(own6, link.mac(), &[0; 40]);
    let cases: Vec<(&str, Vec<u8>)> = vec![
        (
            loopback,
            v4(Ipv4::new(own, Ipv4Addr::LOCALHOST).tcp_syn(1000, 80)),
        ),
        (
            loopback,
            v4(Ipv4::new(own, Ipv4Addr::new(127, 9, 9, 9)).udp(1000, 80, b"?")),
        ),
        (
            dhcp,
            v4(Ipv4::new(Ipv4Addr::UNSPECIFIED, Ipv4Addr::BROADCAST).udp(68, 67, discover.bytes())),
        ),
        (dhcp, v4(Ipv4::new(own, neighbour).udp(67, 68, b"?"))),
        (dhcp, v6(Ipv6::new(own6, all).udp(547, 546, b"?"))),
        (dhcp, v6(Ipv6::new(own6, all).udp(546, 547, b"?"))),
        (
            "redirects",
            v4(Ipv4::new(own, Ipv4Addr::new(192, 0, 2, 1)).icmp(Icmp::redirect(own, &[0; 28]))),
        ),
        (
            advertisements,
            v6(Ipv6::new(local, all).hop_limit(255).icmp(advertisement)),
        ),
        (
            advertisements,
            v6(Ipv6::new(local, gateway6).hop_limit(255).icmp(redirect6)),
        ),
        // Another pod, the gateway, the node, a neighbour, an outside address.
        (forged, syn(Ipv4Addr::new(10, 244, 1, 11))),
        (forged, syn(Ipv4Addr::new(10, 244, 1, 1))),
        (forged, syn(Ipv4Addr::new(192, 0, 2, 1))),
        (forged, syn(neighbour)),
        (forged, syn(Ipv4Addr::new(8, 8, 8, 8))),
        (forged, syn6("fd00:1::b")),
        (forged, syn6("fd00:1::1")),
        (forged, syn6("2001:db8::1")),
        (forged, syn6("2001:db8:1::1")),
    ];
    for (rule, frame) in cases {
        let before = dropped(node, rule);
        link.send(&frame).unwrap();
        let is_counted = || (dropped(node, rule) > before).then_some(());
        eventually(Duration::from_secs(5), rule, is_counted).unwrap();
    }
}

#[test]
fn a_source_whose_route_has_moved_is_dropped_after_the_timeout() {
    let testbed = Testbed::new();
    let (a, _b) = (testbed.pod("a", 10), testbed.pod("b", 11));
    assert!(reaches(&a, GATEWAY) && reaches(&a, GATEWAY6));
    let link = RawLink::open(&a, "eth0").unwrap();
    let to_host = Ethernet::new(link.mac(), HOST_MAC.parse().unwrap());
    let (own, gateway) = (Ipv4Addr::new(10, 244, 1, 10), Ipv4Addr::new(10, 244, 1, 1));
    let [own6, gateway6] = ["fd00:1::a", "fd00:1::1"].map(|ip| ip.parse::<Ipv6Addr>().unwrap());
    let frames = [
        to_host.ipv4(&Ipv4::new(own, gateway).udp(1000, 53, b"?")),
        to_host.ipv6(&Ipv6::new(own6, gateway6).udp(1000, 53, b"?")),
    ];
    for line in [
        "route replace 10.244.1.10/32 dev hcb",
        "route replace fd00:1::a/128 dev hcb",
    ] {
        ip(&testbed.node, line).unwrap();
    }
    for frame in frames {
        let before = dropped(&testbed.node, "forged sources");
        eventually(
            Duration::from_secs(20),
            "a drop of the moved source",
            || {
                link.send(&frame).unwrap();
                (dropped(&testbed.node, "forged sources") > before).then_some(())
            },
        )
        .unwrap();
    }
}

#[test]
fn ordinary_packets_of_pods_pass() {
    let testbed = Testbed::new();
    let a = testbed.pod("a", 10);
    serve(&testbed.neighbour, "neighbour", 53);
    serve(&testbed.node, "node", 53);
    for to in [
        "192.0.2.2:53",
        "[2001:db8::2]:53",
        "10.244.1.1:53",
        "[fd00:1::1]:53",
    ] {
        query_udp(&a, to).unwrap();
    }
    // A link-local destination, which needs neighbour discovery.
    let scope = a.ip(["link", "show", "eth0"]).unwrap()[0]["ifindex"].to_string();
    a.run([
        "ping",
        "-n",
        "-c",
        "1",
        "-W",
        "5",
        &format!("fe80::ff:fe00:1%{scope}"),
    ])
    .unwrap();
    // The rules for pods do not apply to a neighbour.
    Client::new(&testbed.neighbour, "192.0.2.2:68")
        .query("192.0.2.1:53")
        .unwrap();
    for rule in ["the node's loopback", "DHCP", "redirects", "forged sources"] {
        assert_eq!(dropped(&testbed.node, rule), 0, "{rule}");
    }
}

#[test]
fn a_saved_ruleset_loads_after_its_pods_are_deleted() {
    let testbed = Testbed::new();
    let a = testbed.pod("a", 10);
    assert!(reaches(&a, GATEWAY) && reaches(&a, GATEWAY6));
    let again = "saved=$(nft list ruleset); ip link delete hca; nft flush ruleset
                 echo \"$saved\" | nft -f -; echo \"$saved\"";
    let saved = testbed.node.run(["sh", "-ec", again]).unwrap().stdout;
    for source in ["\"hca\" . 10.244.1.10", "\"hca\" . fd00:1::a"] {
        assert!(saved.contains(source), "{source} is not in src_ok: {saved}");
    }
}
