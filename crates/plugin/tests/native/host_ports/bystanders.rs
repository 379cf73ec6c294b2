//! Whom a published port does not concern, though they use the same number.
//!
//! The pod that has the port never listens here: who is led to it by mistake is refused.

use std::net::TcpListener;

use lab::{EchoServer, Family, Netns, Node};
use serde_json::json;

use super::{NODE, Site, at, give_address, mapping, publishing};
use crate::networks::{dual_stack, ip, ipv4, with};

const PORT: u16 = 8080;

#[test]
fn flows_to_the_same_port_of_other_machines_pass() {
    let site = Site::new();
    let far = Node::new("far").unwrap();
    let node = &site.plugin.node;
    node.wire("up1", "198.51.100.1/24", &far, "198.51.100.2/24")
        .unwrap();
    far.run(["ip", "route", "add", "default", "via", "198.51.100.1"])
        .unwrap();
    site.neighbour
        .run(["ip", "route", "add", "default", "via", NODE[0]])
        .unwrap();
    let conf = publishing(ipv4(), &[mapping("tcp", PORT, 80)]);
    let (pod, _) = site.plugin.attached("server", &conf);
    let (other, _) = site.plugin.attached("other", &ipv4());

    let _server = EchoServer::start(&far, Family::V4, PORT).unwrap();
    let target = at("198.51.100.2", PORT);
    let seen = site.neighbour.call_echo(target, "through").unwrap();
    assert_eq!(seen.to_string(), "192.0.2.2");
    node.call_echo(target, "from the host").unwrap();
    for pod in [&pod, &other] {
        let seen = pod.call_echo(target, "from a pod").unwrap();
        assert_eq!(seen.to_string(), "198.51.100.1");
    }
}

#[test]
fn the_same_port_of_a_pod_is_its_own() {
    let site = Site::new();
    let conf = publishing(ipv4(), &[mapping("tcp", PORT, 80)]);
    let (pod, _) = site.plugin.attached("server", &conf);
    let (other, result) = site.plugin.attached("other", &ipv4());
    let _server = EchoServer::start(&other, Family::V4, PORT).unwrap();
    let target = at(&ip(&result, 0), PORT);
    pod.call_echo(target, "from the server").unwrap();
    site.plugin.node.call_echo(target, "from the host").unwrap();
}

#[test]
fn addresses_of_services_of_the_link_and_of_gateways_stay_the_hosts() {
    let site = Site::new();
    let services = "10.96.0.0/12,fd00:96::/112";
    let conf = with(dual_stack(), "service_cidr", json!(services));
    let conf = publishing(conf, &[mapping("tcp", PORT, 80)]);
    let (pod, _) = site.plugin.attached("server", &conf);
    let (other, _) = site.plugin.attached("other", &dual_stack());
    // As kube-proxy in its IPVS mode and node-local-dns do.
    for address in ["10.96.0.1/32", "169.254.20.10/32", "fd00:96::1/128"] {
        give_address(&site.plugin.node, address, "lo");
    }
    let _ipv4 = EchoServer::start(&site.plugin.node, Family::V4, PORT).unwrap();
    // It listens for IPv6 only: the other one has the rest.
    let of_ipv6 = ["fd00:96::1", "fd00:9::1"].map(|address| {
        let bind = || TcpListener::bind(at(address, PORT));
        site.plugin.node.enter(bind).unwrap().unwrap()
    });
    for place in [&pod, &other] {
        for address in ["10.96.0.1", "169.254.20.10", "10.9.0.1"] {
            place.call_echo(at(address, PORT), "v4").unwrap();
        }
        for listener in &of_ipv6 {
            let target = listener.local_addr().unwrap();
            let connect = || std::net::TcpStream::connect_timeout(&target, lab::DEADLINE);
            place.enter(connect).unwrap().unwrap();
        }
    }
    for address in ["10.96.0.1", "169.254.20.10", "10.9.0.1"] {
        let target = at(address, PORT);
        site.plugin.node.call_echo(target, "from the host").unwrap();
    }
}

#[test]
fn the_gateway_of_a_network_without_ports_stays_the_hosts() {
    let site = Site::new();
    let conf = publishing(ipv4(), &[mapping("tcp", PORT, 80)]);
    let other = json!({
        "cniVersion": "1.1.0", "name": "other", "type": "headcni", "service_cidr": "10.96.0.0/12",
        "ipam": { "type": "headcni-ipam", "subnet": "10.8.0.0/24" },
    });
    let (_pod, _) = site.plugin.attached("server", &conf);
    let (client, _) = site.plugin.attached("client", &other);
    give_address(&site.plugin.node, "10.96.0.1/32", "lo");
    let _server = EchoServer::start(&site.plugin.node, Family::V4, PORT).unwrap();
    for address in ["10.8.0.1", "10.96.0.1"] {
        client.call_echo(at(address, PORT), "x").unwrap();
    }
}

#[test]
fn a_listener_on_the_hosts_loopback_is_not_shadowed() {
    let site = Site::new();
    let conf = publishing(dual_stack(), &[mapping("tcp", PORT, 80)]);
    let (_pod, _) = site.plugin.attached("server", &conf);
    let node = &site.plugin.node;
    {
        let _ipv4 = EchoServer::start(node, Family::V4, PORT).unwrap();
        let seen = node.call_echo(at("127.0.0.1", PORT), "v4").unwrap();
        assert_eq!(seen.to_string(), "127.0.0.1");
        node.call_echo(at("127.0.0.53", PORT), "v4").unwrap();
    }
    let _ipv6 = EchoServer::start(node, Family::V6, PORT).unwrap();
    node.call_echo(at("::1", PORT), "v6").unwrap();
}
