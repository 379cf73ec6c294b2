//! Lies about who is where: ARP, and neighbour discovery.

use std::net::Ipv4Addr;

use lab::frames::{Arp, Ethernet, Icmpv6, Ipv6, Mac};
use lab::{Netns, Pod, eventually};

use super::attacker::{FORGED, GATEWAY, NODE, Stage};
use crate::connections::PATIENCE;
use crate::networks::{dual_stack, plugin_node};

/// Who is where, as a namespace knows it.
fn neighbours(place: &impl Netns) -> Vec<String> {
    let known = place.run(["ip", "neighbour"]).unwrap().stdout;
    let mut known: Vec<String> = known.lines().map(str::to_owned).collect();
    known.sort();
    known
}

/// What the attacker can say about IPv4 addresses.
fn lies_of_arp(stage: &Stage) -> Vec<Vec<u8>> {
    let gateway: Ipv4Addr = GATEWAY[0].parse().unwrap();
    let node: Ipv4Addr = NODE[0].parse().unwrap();
    let (victim, attacker) = (&stage.victim, &stage.attacker);
    let mut lies = Vec::new();
    for address in [victim.ipv4(), gateway, node, attacker.ipv4()] {
        for message in [
            Arp::gratuitous(address, FORGED),
            Arp::request((FORGED, address), gateway),
            Arp::reply(address, FORGED, (attacker.host_mac, gateway)),
            Arp::reply(address, FORGED, (Mac::BROADCAST, address)),
        ] {
            lies.extend([
                stage.ethernet().arp(&message),
                stage.broadcast().arp(&message),
            ]);
        }
    }
    lies
}

/// What the attacker can say about IPv6 addresses, in its own name and in theirs.
fn lies_of_discovery(stage: &Stage) -> Vec<Vec<u8>> {
    let all_nodes = "ff02::1".parse().unwrap();
    let gateway = GATEWAY[1].parse().unwrap();
    let (victim, attacker) = (stage.victim.ipv6(), stage.attacker.ipv6());
    let multicast = Ethernet::new(stage.attacker.mac, Mac::of_multicast(all_nodes));
    let mut lies = Vec::new();
    for address in [victim, gateway, attacker] {
        for source in [address, attacker, "fe80::bad".parse().unwrap()] {
            let advertise = || Icmpv6::neighbour_advertisement(address, FORGED);
            lies.push(multicast.ipv6(&Ipv6::new(source, all_nodes).icmp(advertise())));
            lies.push(
                stage
                    .ethernet()
                    .ipv6(&Ipv6::new(source, gateway).icmp(advertise())),
            );
            let ask = Icmpv6::neighbour_solicitation(gateway, FORGED);
            lies.push(stage.ethernet().ipv6(&Ipv6::new(source, gateway).icmp(ask)));
        }
    }
    lies
}

#[test]
fn no_lie_about_neighbours_is_believed() {
    let plugin = plugin_node();
    let stage = Stage::new(&plugin, &dual_stack());
    let everybody = || {
        let pods: [&Pod; 2] = [&stage.victim.pod, &stage.attacker.pod];
        (neighbours(&plugin.node), pods.map(neighbours_of))
    };
    let before = everybody();
    for lie in [lies_of_arp(&stage), lies_of_discovery(&stage)].concat() {
        stage.send(&lie);
    }
    stage.settle();
    assert_eq!(everybody(), before);
    stage.assert_traffic_goes_on();

    // They are believed where they meet an entry that is not fixed.
    for (own, lies) in [
        (stage.attacker.ips[0], lies_of_arp(&stage)),
        (stage.attacker.ips[1], lies_of_discovery(&stage)),
    ] {
        let (own, mac) = (own.to_string(), stage.attacker.mac.to_string());
        let link = &stage.attacker.host_link;
        let entry = [
            "neighbour",
            "replace",
            &own,
            "lladdr",
            &mac,
            "nud",
            "stale",
            "dev",
            link,
        ];
        plugin.node.ip(entry).unwrap();
        eventually(PATIENCE, "the node is fooled", || {
            for lie in &lies {
                stage.send(lie);
            }
            let known = neighbours(&plugin.node);
            let is_fooled =
                |line: &String| line.starts_with(&own) && line.contains(&FORGED.to_string());
            known.iter().any(is_fooled).then_some(())
        })
        .unwrap();
    }
}

fn neighbours_of(pod: &Pod) -> Vec<String> {
    neighbours(pod)
}

/// The kernel drops packets to new neighbours, the node's own on its LAN among them, when it knows
/// `gc_thresh3` of them.
#[test]
fn questions_in_many_names_do_not_fill_the_node_s_table() {
    let plugin = plugin_node();
    let stage = Stage::new(&plugin, &dual_stack());
    let flood = || {
        for number in 0..100u8 {
            let posing = Ipv4Addr::new(198, 51, 100, number);
            let message = Arp::request((FORGED, posing), GATEWAY[0].parse().unwrap());
            stage.send(&stage.ethernet().arp(&message));
        }
        stage.settle();
    };
    let before = neighbours(&plugin.node);
    flood();
    assert_eq!(neighbours(&plugin.node), before);
    stage.assert_traffic_goes_on();
    // It would, if the node answered all.
    let link = &stage.attacker.host_link;
    for conf in ["all", link] {
        let name = format!("net.ipv4.conf.{conf}.arp_filter");
        plugin.node.sysctl(&name, "0").unwrap();
    }
    plugin
        .node
        .sysctl("net.ipv4.conf.all.rp_filter", "0")
        .unwrap();
    flood();
    assert!(neighbours(&plugin.node).len() > before.len() + 50);
}
