//! From where a published port is reached.

use lab::{EchoServer, Family, Netns};
use serde_json::json;

use super::udp::{UdpClient, UdpServer};
use super::{NEIGHBOUR, NODE, Site, UPLINK, at, give_address, mapping, mapping_on, publishing};
use crate::networks::{dual_stack, ip, with};

#[test]
fn a_tcp_port_is_reached_from_outside_the_host_other_pods_and_the_pod_itself() {
    let site = Site::new();
    let conf = publishing(dual_stack(), &[mapping("tcp", 8080, 80)]);
    let (pod, _) = site.plugin.attached("server", &conf);
    let (other, others) = site.plugin.attached("other", &dual_stack());
    for (index, family) in [Family::V4, Family::V6].into_iter().enumerate() {
        let _server = EchoServer::start(&pod, family, 80).unwrap();
        let published = at(NODE[index], 8080);
        let seen = site.neighbour.call_echo(published, "outside").unwrap();
        assert_eq!(seen.to_string(), NEIGHBOUR[index]);
        let seen = other.call_echo(published, "other").unwrap();
        assert_eq!(seen.to_string(), ip(&others, index));
        let seen = site.plugin.node.call_echo(published, "host").unwrap();
        assert_eq!(seen.to_string(), NODE[index]);
        // It must not see itself as the caller: the answer would never pass the node.
        pod.call_echo(published, "itself").unwrap();
    }
}

#[test]
fn a_udp_port_is_reached_from_outside_the_host_other_pods_and_the_pod_itself() {
    let site = Site::new();
    let conf = publishing(dual_stack(), &[mapping("udp", 5353, 53)]);
    let (pod, _) = site.plugin.attached("server", &conf);
    let (other, others) = site.plugin.attached("other", &dual_stack());
    for (index, family) in [Family::V4, Family::V6].into_iter().enumerate() {
        let _server = UdpServer::start(&pod, family, 53, "server");
        let published = at(NODE[index], 5353);
        let (_, seen) = UdpClient::new(&site.neighbour, published).ask().unwrap();
        assert_eq!(seen.to_string(), NEIGHBOUR[index]);
        let (_, seen) = UdpClient::new(&other, published).ask().unwrap();
        assert_eq!(seen.to_string(), ip(&others, index));
        let (_, seen) = UdpClient::new(&site.plugin.node, published).ask().unwrap();
        assert_eq!(seen.to_string(), NODE[index]);
        UdpClient::new(&pod, published).ask().unwrap();
    }
}

#[test]
fn a_port_of_one_address_is_closed_on_the_others() {
    let site = Site::new();
    let more = ["192.0.2.9", "2001:db8::9"];
    give_address(&site.plugin.node, "192.0.2.9/24", UPLINK);
    give_address(&site.plugin.node, "2001:db8::9/64", UPLINK);
    let mappings = more.map(|address| mapping_on(address, 8080, 80));
    let conf = publishing(dual_stack(), &mappings);
    let (pod, _) = site.plugin.attached("server", &conf);
    for (index, family) in [Family::V4, Family::V6].into_iter().enumerate() {
        let _server = EchoServer::start(&pod, family, 80).unwrap();
        let open = at(more[index], 8080);
        site.neighbour.call_echo(open, "open").unwrap();
        site.plugin.node.call_echo(open, "open").unwrap();
        let closed = at(NODE[index], 8080);
        site.neighbour.call_echo(closed, "closed").unwrap_err();
        site.plugin.node.call_echo(closed, "closed").unwrap_err();
    }
}

#[test]
fn a_host_ip_of_all_zeroes_means_every_address_of_its_family() {
    let site = Site::new();
    let conf = publishing(dual_stack(), &[mapping_on("0.0.0.0", 8080, 80)]);
    let (pod, _) = site.plugin.attached("server", &conf);
    let _ipv4 = EchoServer::start(&pod, Family::V4, 80).unwrap();
    site.neighbour.call_echo(at(NODE[0], 8080), "v4").unwrap();
    site.neighbour
        .call_echo(at(NODE[1], 8080), "v6")
        .unwrap_err();
}

#[test]
fn one_port_of_two_addresses_can_lead_to_two_pods() {
    let site = Site::new();
    give_address(&site.plugin.node, "192.0.2.9/24", UPLINK);
    let (_servers, targets) = [("one", NODE[0]), ("two", "192.0.2.9")]
        .into_iter()
        .map(|(name, address)| {
            let mapping = with(mapping("udp", 53, 53), "hostIP", json!(address));
            let (pod, _) = site
                .plugin
                .attached(name, &publishing(dual_stack(), &[mapping]));
            (
                UdpServer::start(&pod, Family::V4, 53, name),
                (name, address),
            )
        })
        .collect::<(Vec<_>, Vec<_>)>();
    for (name, address) in targets {
        let client = UdpClient::new(&site.neighbour, at(address, 53));
        assert_eq!(client.ask().unwrap().0, name);
    }
}

#[test]
fn several_ports_and_one_number_for_tcp_and_udp_lead_where_they_should() {
    let site = Site::new();
    let mappings = [
        mapping("tcp", 53, 1053),
        mapping("udp", 53, 2053),
        mapping("TCP", 8080, 80),
        // No port of the host is asked for.
        json!({ "containerPort": 9090 }),
        // Protocol and address may be left out, or be empty.
        json!({ "hostPort": 8081, "containerPort": 81, "hostIP": "" }),
    ];
    let conf = publishing(dual_stack(), &mappings);
    let (pod, _) = site.plugin.attached("server", &conf);
    let _udp = UdpServer::start(&pod, Family::V4, 2053, "udp");
    let client = UdpClient::new(&site.neighbour, at(NODE[0], 53));
    assert_eq!(client.ask().unwrap().0, "udp");
    for (port, inside) in [(53, 1053), (8080, 80), (8081, 81)] {
        let _tcp = EchoServer::start(&pod, Family::V4, inside).unwrap();
        site.neighbour.call_echo(at(NODE[0], port), "x").unwrap();
    }
}
