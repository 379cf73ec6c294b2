//! The sniffer reports packets in clear and nothing else.

use std::net::{IpAddr, Ipv4Addr, UdpSocket};
use std::thread;

use ipnet::IpNet;
use lab::frames::{Arp, EtherType, Ethernet, Ipv4, Mac};
use lab::{NatKind, Netns, Node, RawLink, SnifferReport, Underlay};

const POD: Ipv4Addr = Ipv4Addr::new(10, 244, 1, 10);

fn pods() -> Vec<IpNet> {
    ["10.244.0.0/16", "fd00:10:244::/48"]
        .map(|prefix| prefix.parse().unwrap())
        .to_vec()
}

/// Sniffs what `act` does with two nodes and their addresses.
fn report_of(act: impl Fn([&Node; 2], Ipv4Addr)) -> SnifferReport {
    let underlay = Underlay::new().unwrap();
    let sniffer = underlay.sniff(&pods()).unwrap();
    let nodes = ["n1", "n2"].map(|name| Node::new(name).unwrap());
    let [_, two] = nodes.each_ref().map(|node| underlay.plug(node).unwrap());
    act(nodes.each_ref(), two.v4);
    sniffer.finish().unwrap()
}

fn has_clear(report: &SnifferReport, address: &str) -> bool {
    let address: IpAddr = address.parse().unwrap();
    let mut clear = report.clear.iter();
    clear.any(|frame| [frame.ip_source(), frame.ip_destination()].contains(&Some(address)))
}

#[test]
fn underlay_traffic_is_not_reported() {
    let report = report_of(|[one, _], two| {
        one.ping(&two.to_string()).unwrap();
        one.ping("fd99::c").unwrap();
        let link = RawLink::open(one, "eth0").unwrap();
        // ARP has no IP header, and an end mark on a wire is ignored.
        let wire = Ethernet::new(link.mac(), Mac::BROADCAST);
        link.send(&wire.arp(&Arp::request((link.mac(), POD), POD)))
            .unwrap();
        link.send(&wire.frame(EtherType(0x88b5), &[0; 46])).unwrap();
        one.ping(&two.to_string()).unwrap();
    });
    assert!(report.frames >= 6, "{report:?}");
    report.check_nothing_in_clear().unwrap();
    report.check_no_strays().unwrap();
}

#[test]
fn a_packet_to_a_pod_is_reported() {
    for address in ["10.244.1.10", "fd00:10:244:1::10"] {
        let report = report_of(|[one, _], _| {
            // By the default route, as without a mesh.
            let ping = ["ping", "-n", "-c", "1", "-W", "0.2", address];
            assert!(!one.attempt(ping).unwrap().status.success());
        });
        assert!(has_clear(&report, address), "{report:?}");
        let error = report.check_nothing_in_clear().unwrap_err();
        assert!(error.to_string().contains("in clear"), "{error}");
        report.check_no_strays().unwrap_err();
    }
}

#[test]
fn a_packet_from_a_pod_is_reported() {
    let report = report_of(|[one, two], address| {
        let (from, to) = (
            RawLink::open(one, "eth0").unwrap(),
            RawLink::open(two, "eth0").unwrap(),
        );
        let packet = Ipv4::new(POD, address).udp(1000, 53, b"data");
        from.send(&Ethernet::new(from.mac(), to.mac()).ipv4(&packet))
            .unwrap();
    });
    assert!(has_clear(&report, &POD.to_string()), "{report:?}");
}

#[test]
fn the_network_behind_a_nat_is_sniffed_as_well() {
    let underlay = Underlay::new().unwrap();
    let nat = underlay.nat(NatKind::Easy).unwrap();
    let sniffers = [
        nat.sniff(&pods()).unwrap(),
        underlay.sniff(&pods()).unwrap(),
    ];
    let (home, cloud) = (Node::new("home").unwrap(), Node::new("cloud").unwrap());
    nat.plug(&home).unwrap();
    let cloud = underlay.plug(&cloud).unwrap();
    home.run(["ip", "address", "add", "10.244.1.10/32", "dev", "lo"])
        .unwrap();
    let ping = ["ping", "-n", "-c", "1", "-W", "0.2", "-I", "10.244.1.10"];
    let to = cloud.v4.to_string();
    home.attempt(ping.iter().copied().chain([to.as_str()]))
        .unwrap();
    // The NAT hides the source from the switch.
    let is_from_pod = |report: &SnifferReport| {
        let mut clear = report.clear.iter();
        clear.any(|frame| frame.ip_source() == Some(POD.into()))
    };
    let reports = sniffers.map(|sniffer| sniffer.finish().unwrap());
    assert_eq!(reports.each_ref().map(is_from_pod), [true, false]);
}

#[test]
fn no_frame_of_a_flood_is_missed() {
    const EACH: usize = 50_000;
    let underlay = Underlay::new().unwrap();
    let nodes = ["n1", "n2"].map(|name| Node::new(name).unwrap());
    let [_, two] = nodes.each_ref().map(|node| underlay.plug(node).unwrap());
    let switch = underlay.switch();
    let cables = switch.links().unwrap();
    let cables = cables.iter().filter(|link| link.starts_with("port"));
    let counters = || -> u64 {
        let path = |link| format!("/sys/class/net/{link}/statistics/rx_packets");
        let counter = |link| switch.read(path(link)).unwrap();
        cables
            .clone()
            .map(|link| counter(link).trim().parse::<u64>().unwrap())
            .sum()
    };

    let before = counters();
    let sniffer = underlay.sniff(&pods()).unwrap();
    let flood = || {
        let socket = UdpSocket::bind("0.0.0.0:0").unwrap();
        for _ in 0..EACH {
            // The port is closed, so errors come back.
            let _ = socket.send_to(&[0; 1200], (two.v4, 9));
        }
    };
    thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| nodes[0].enter(flood).unwrap());
        }
    });
    // Frames that the sender dropped never reached the switch.
    let arrived = counters() - before;
    let report = sniffer.finish().unwrap();
    assert!(arrived > 1000, "{arrived}");
    assert_eq!(report.dropped, 0);
    assert!(report.frames >= arrived, "{} of {arrived}", report.frames);
}
