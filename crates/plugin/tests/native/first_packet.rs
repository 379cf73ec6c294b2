//! The first packet of a pod's life: none is lost, whoever sends it, whatever others have set.

use lab::scenario::PluginNode;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, UdpSocket};
use std::time::{Duration, Instant};

use lab::Netns;
use rstest::rstest;
use serde_json::Value;

use crate::connections::{exchange, udp_socket};
use crate::networks::{dual_stack, ip, plugin_node};

/// How long after its ADD a pod's first conversation may end.
const LIMIT: Duration = Duration::from_millis(20);
/// When a packet counts as lost.
const LOST: Duration = Duration::from_secs(1);
const PORT: u16 = 5000;

/// Who says the first word to whom.
#[derive(Clone, Copy, Debug)]
enum First {
    PodToNew,
    NewToPod,
    HostToNew,
    NewToGateway,
}

/// A node with a pod on it, waiting for others.
struct Nursery {
    plugin: PluginNode,
    elder: UdpSocket,
    elder_ip: IpAddr,
    host: UdpSocket,
    family: usize,
}

impl Nursery {
    fn new(plugin: PluginNode, family: usize) -> Self {
        let (pod, result) = plugin.attached("elder", &dual_stack());
        let elder_ip: IpAddr = ip(&result, family).parse().unwrap();
        let elder = waiting(&pod, family);
        let host = waiting(&plugin.node, family);
        Self {
            plugin,
            elder,
            elder_ip,
            host,
            family,
        }
    }

    /// How long after its ADD each of some new pods has had its first conversation.
    fn births(&self, first: First, count: usize) -> Vec<Option<Duration>> {
        let family = self.family;
        let birth = |number| {
            let Self { elder, host, .. } = self;
            let name = format!("{first:?}{number}");
            grow(&self.plugin, &name, family, |new, result| match first {
                First::PodToNew => exchange(elder, new, own(result, family)),
                First::NewToPod => exchange(new, elder, self.elder_ip),
                First::HostToNew => exchange(host, new, own(result, family)),
                First::NewToGateway => exchange(new, host, gateway(result, family)),
            })
        };
        (0..count).map(birth).collect()
    }
}

/// A socket that waits for datagrams, before there is an address.
fn waiting(place: &impl Netns, family: usize) -> UdpSocket {
    let any = [Ipv4Addr::UNSPECIFIED.into(), Ipv6Addr::UNSPECIFIED.into()];
    let socket = udp_socket(place, any[family], PORT);
    socket.set_read_timeout(Some(LOST)).unwrap();
    socket
}

/// Attaches a pod whose socket waits already; how long after ADD's return it has talked, if it
/// could.
fn grow(
    plugin: &PluginNode,
    name: &str,
    family: usize,
    talk: impl Fn(&UdpSocket, &Value) -> io::Result<IpAddr>,
) -> Option<Duration> {
    let pod = plugin.pod(name);
    let socket = waiting(&pod, family);
    let outcome = plugin.succeed("ADD", &dual_stack(), &pod);
    let born = Instant::now();
    let talked = talk(&socket, outcome.json.as_ref().unwrap());
    let took = born.elapsed();
    talked.ok().map(|_| took)
}

fn own(result: &Value, family: usize) -> IpAddr {
    ip(result, family).parse().unwrap()
}

fn gateway(result: &Value, family: usize) -> IpAddr {
    let gateway = result["ips"][family]["gateway"].as_str();
    gateway.unwrap().parse().unwrap()
}

/// Asserts that no first packet was lost, and that the best one was in time.
#[track_caller]
fn assert_prompt(births: &[Option<Duration>]) {
    let lost = births.iter().filter(|birth| birth.is_none()).count();
    assert_eq!(lost, 0, "first packets are lost: {births:?}");
    let best = births.iter().flatten().min().unwrap();
    assert!(*best < LIMIT, "{births:?}");
}

#[rstest]
fn no_new_pod_s_first_packet_is_lost(
    #[values(
        First::PodToNew,
        First::NewToPod,
        First::HostToNew,
        First::NewToGateway
    )]
    first: First,
    #[values(0, 1)] family: usize,
) {
    let nursery = Nursery::new(plugin_node(), family);
    assert_prompt(&nursery.births(first, 8));
}

#[rstest]
fn the_very_first_pod_of_a_node_talks_to_it_at_once(#[values(0, 1)] family: usize) {
    let births = (0..3).map(|_| {
        let plugin = plugin_node();
        let host = waiting(&plugin.node, family);
        let to_gateway =
            |new: &UdpSocket, result: &Value| exchange(new, &host, gateway(result, family));
        grow(&plugin, "first", family, to_gateway)
    });
    assert_prompt(&births.collect::<Vec<_>>());
}

#[rstest]
#[case::strict_arp(&[
    ("net.ipv4.conf.all.arp_ignore", "1"), ("net.ipv4.conf.default.arp_ignore", "1"),
    ("net.ipv4.conf.all.arp_announce", "2"), ("net.ipv4.conf.default.arp_announce", "2"),
])]
#[case::strict_sources(&[
    ("net.ipv4.conf.all.rp_filter", "1"), ("net.ipv4.conf.default.rp_filter", "1"),
])]
#[case::loose_sources(&[
    ("net.ipv4.conf.all.rp_filter", "2"), ("net.ipv4.conf.default.rp_filter", "2"),
])]
#[case::routers_are_believed(&[
    ("net.ipv6.conf.all.accept_ra", "2"), ("net.ipv6.conf.default.accept_ra", "2"),
])]
#[case::duplicates_are_looked_for(&[
    ("net.ipv6.conf.all.accept_dad", "2"), ("net.ipv6.conf.default.accept_dad", "2"),
    ("net.ipv6.conf.default.dad_transmits", "5"),
])]
#[case::addresses_are_random(&[
    ("net.ipv6.conf.default.addr_gen_mode", "3"), ("net.ipv6.conf.default.use_tempaddr", "2"),
])]
#[case::new_links_do_not_forward(&[
    ("net.ipv4.conf.default.forwarding", "0"), ("net.ipv6.conf.default.forwarding", "0"),
])]
#[case::routes_need_a_carrier(&[
    ("net.ipv4.conf.all.ignore_routes_with_linkdown", "1"),
    ("net.ipv6.conf.all.ignore_routes_with_linkdown", "1"),
])]
fn others_settings_lose_no_first_packet(
    #[case] settings: &[(&str, &str)],
    #[values(0, 1)] family: usize,
) {
    let plugin = plugin_node();
    for (name, value) in settings {
        plugin.node.sysctl(name, value).unwrap();
    }
    let nursery = Nursery::new(plugin, family);
    for first in [First::PodToNew, First::HostToNew, First::NewToGateway] {
        assert_prompt(&nursery.births(first, 1));
    }
}
