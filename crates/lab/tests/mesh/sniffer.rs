//! The sniffer sees what it must, and cries about nothing else.

use std::net::{IpAddr, Ipv4Addr, UdpSocket};
use std::thread;

use ipnet::IpNet;
use lab::frames::{Arp, EtherType, Ethernet, Ipv4, Mac};
use lab::{SnifferReport, NatKind, Netns, Node, RawLink, Underlay};

const POD: Ipv4Addr = Ipv4Addr::new(10, 244, 1, 10);

fn pods() -> Vec<IpNet> {
    ["10.244.0.0/16", "fd00:10:244::/48"]
        .map(|prefix| prefix.parse().unwrap())
        .to_vec()
}

/// What is seen of what `act` does with two nodes and their addresses.
fn account_of(act: impl Fn([&Node; 2], Ipv4Addr)) -> SnifferReport {
    let underlay = Underlay::new().unwrap();
    let sniffer = underlay.sniff(&pods()).unwrap();
    let nodes = ["n1", "n2"].map(|name| Node::new(name).unwrap());
    let [_, two] = nodes.each_ref().map(|node| underlay.plug(node).unwrap());
    act(nodes.each_ref(), two.v4);
    sniffer.finish().unwrap()
}

fn has_clear(account: &SnifferReport, address: &str) -> bool {
    let address: IpAddr = address.parse().unwrap();
    let mut clear = account.clear.iter();
    clear.any(|frame| [frame.ip_source(), frame.ip_destination()].contains(&Some(address)))
}

#[test]
fn nodes_talk_without_a_cry() {
    let account = account_of(|[one, _], two| {
        one.ping(&two.to_string()).unwrap();
        one.ping("fd99::c").unwrap();
        let link = RawLink::open(one, "eth0").unwrap();
        // ARP has addresses, but no packet. And a mark on a wire ends nothing.
        let wire = Ethernet::new(link.mac(), Mac::BROADCAST);
        link.send(&wire.arp(&Arp::request((link.mac(), POD), POD)))
            .unwrap();
        link.send(&wire.frame(EtherType(0x88b5), &[0; 46])).unwrap();
        one.ping(&two.to_string()).unwrap();
    });
    assert!(account.frames >= 6, "{account:?}");
    account.check_nothing_in_clear().unwrap();
    account.check_no_strays().unwrap();
}

#[test]
fn a_packet_to_a_pod_is_seen_in_clear() {
    for address in ["10.244.1.10", "fd00:10:244:1::10"] {
        let account = account_of(|[one, _], _| {
            // By the default route, as when the mesh is gone.
            let ping = ["ping", "-n", "-c", "1", "-W", "0.2", address];
            assert!(!one.attempt(ping).unwrap().status.success());
        });
        assert!(has_clear(&account, address), "{account:?}");
        let error = account.check_nothing_in_clear().unwrap_err();
        assert!(error.to_string().contains("in clear"), "{error}");
        // Who asks for strangers only does not have to know the pods.
        account.check_no_strays().unwrap_err();
    }
}

#[test]
fn a_packet_from_a_pod_is_seen_in_clear() {
    let account = account_of(|[one, two], address| {
        let (from, to) = (
            RawLink::open(one, "eth0").unwrap(),
            RawLink::open(two, "eth0").unwrap(),
        );
        let packet = Ipv4::new(POD, address).udp(1000, 53, b"word");
        from.send(&Ethernet::new(from.mac(), to.mac()).ipv4(&packet))
            .unwrap();
    });
    assert!(has_clear(&account, &POD.to_string()), "{account:?}");
}

#[test]
fn the_network_behind_a_router_is_watched_as_well() {
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
    // The router hides the source: only behind it can it be seen.
    let is_from_pod = |account: &SnifferReport| {
        let mut clear = account.clear.iter();
        clear.any(|frame| frame.ip_source() == Some(POD.into()))
    };
    let accounts = sniffers.map(|sniffer| sniffer.finish().unwrap());
    assert_eq!(accounts.each_ref().map(is_from_pod), [true, false]);
}

#[test]
fn a_storm_of_frames_is_seen_whole() {
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
    let storm = || {
        let socket = UdpSocket::bind("0.0.0.0:0").unwrap();
        for _ in 0..EACH {
            // Nobody listens, and says so now and then.
            let _ = socket.send_to(&[0; 1200], (two.v4, 9));
        }
    };
    thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| nodes[0].enter(storm).unwrap());
        }
    });
    // What the kernel could not even queue never was on the switch.
    let arrived = counters() - before;
    let account = sniffer.finish().unwrap();
    assert!(arrived > 1000, "{arrived}");
    assert_eq!(account.dropped, 0);
    assert!(account.frames >= arrived, "{} of {arrived}", account.frames);
}
