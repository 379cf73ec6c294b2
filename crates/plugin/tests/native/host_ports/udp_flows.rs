//! UDP flows that the kernel remembers, when a port moves.

use lab::scenario::PluginNode;
use lab::{Family, Netns};
use rstest::rstest;
use serde_json::json;

use super::udp::{UdpClient, UdpServer};
use super::{NODE, Site, at, give_address, mapping, publishing};
use crate::networks::{dual_stack, with};

#[rstest]
#[case::ipv4(0, Family::V4)]
#[case::ipv6(1, Family::V6)]
fn a_flow_goes_to_the_new_pod_after_the_old_one_has_gone(
    #[case] index: usize,
    #[case] family: Family,
) {
    let site = Site::new();
    let conf = publishing(dual_stack(), &[mapping("udp", 53, 1053)]);
    // One comes from outside, one from a pod, one from the node itself.
    let (client_pod, _) = site.plugin.attached("client", &dual_stack());
    let target = at(NODE[index], 53);
    let clients = [
        UdpClient::new(&site.neighbour, target),
        UdpClient::new(&client_pod, target),
        UdpClient::new(&site.plugin.node, target),
    ];
    for name in ["first", "second"] {
        for client in &clients {
            // Nobody is there yet, or no longer. The kernel remembers that they tried.
            client.ask().unwrap_err();
        }
        let (pod, _) = site.plugin.attached(name, &conf);
        let _server = UdpServer::start(&pod, family, 1053, name);
        for client in &clients {
            assert_eq!(client.ask().unwrap().0, name);
        }
        site.plugin.succeed("DEL", &conf, &pod);
    }
}

#[test]
fn a_flow_on_an_address_that_came_later_moves_too() {
    let site = Site::new();
    let conf = publishing(dual_stack(), &[mapping("udp", 53, 1053)]);
    let (first, _) = site.plugin.attached("first", &conf);
    give_address(&site.plugin.node, "192.0.2.77/24", super::UPLINK);
    let client = UdpClient::new(&site.neighbour, at("192.0.2.77", 53));
    let server = UdpServer::start(&first, Family::V4, 1053, "first");
    assert_eq!(client.ask().unwrap().0, "first");
    site.plugin.succeed("DEL", &conf, &first);
    drop(server);
    let (second, _) = site.plugin.attached("second", &conf);
    let _server = UdpServer::start(&second, Family::V4, 1053, "second");
    assert_eq!(client.ask().unwrap().0, "second");
}

/// The UDP flows that the kernel remembers, each with a number that another one never has.
fn flows(plugin: &PluginNode) -> Vec<String> {
    let line = ["conntrack", "--dump", "--proto", "udp", "--output", "id"];
    let mut flows = Vec::new();
    for family in ["ipv4", "ipv6"] {
        let of_family = ["--family", family];
        let listed = plugin.node.run(line.iter().chain(&of_family)).unwrap();
        flows.extend(listed.stdout.lines().map(|line| {
            let words = line.split_whitespace();
            // How long it is remembered yet changes by itself, and so does its state.
            let lasting = words.filter(|word| word.contains('='));
            lasting.collect::<Vec<_>>().join(" ")
        }));
    }
    flows.sort();
    flows
}

#[test]
fn flows_of_others_are_remembered() {
    let site = Site::new();
    let node = &site.plugin.node;
    let conf = with(dual_stack(), "service_cidr", json!("10.96.0.0/12"));
    give_address(node, "10.96.0.10/32", "lo");
    let (bystander, result) = site.plugin.attached("bystander", &conf);
    let other = publishing(conf.clone(), &[mapping("udp", 54, 1053)]);
    let (holder, _) = site.plugin.attached("other", &other);
    let of_outside = UdpServer::start(&site.neighbour, Family::V4, 53, "outside");
    let of_node = ["10.96.0.10", "10.9.0.1", "127.0.0.1", NODE[0]]
        .map(|address| UdpServer::bind(node, at(address, 53), "node"));
    let of_pod = UdpServer::start(&bystander, Family::V4, 53, "pod");
    let _of_54 = UdpServer::start(&holder, Family::V4, 1053, "54");

    let clients = [
        // The same port of another machine, of a pod, of a service; another port of the node.
        (UdpClient::new(&bystander, at("192.0.2.2", 53)), "outside"),
        (UdpClient::new(node, at("192.0.2.2", 53)), "outside"),
        (
            UdpClient::new(node, at(&crate::networks::ip(&result, 0), 53)),
            "pod",
        ),
        (UdpClient::new(&bystander, at("10.96.0.10", 53)), "node"),
        (UdpClient::new(&bystander, at("10.9.0.1", 53)), "node"),
        (UdpClient::new(node, at("127.0.0.1", 53)), "node"),
        (UdpClient::new(&site.neighbour, at(NODE[0], 54)), "54"),
    ];
    for (client, name) in &clients {
        assert_eq!(&client.ask().unwrap().0, name);
    }
    let before = flows(&site.plugin);
    assert_eq!(before.len(), clients.len(), "{before:#?}");
    // This one is to go.
    let stale = UdpClient::new(&site.neighbour, at(NODE[0], 53));
    assert_eq!(stale.ask().unwrap().0, "node");

    let (pod, _) = site.plugin.attached(
        "pod",
        &publishing(conf.clone(), &[mapping("udp", 53, 1053)]),
    );
    let _server = UdpServer::start(&pod, Family::V4, 1053, "53");
    assert_eq!(flows(&site.plugin), before);
    assert_eq!(stale.ask().unwrap().0, "53");
    site.plugin.succeed("DEL", &conf, &pod);
    assert_eq!(flows(&site.plugin), before);
    drop((of_outside, of_node, of_pod));
}
