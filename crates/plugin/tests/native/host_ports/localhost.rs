//! Ports of 127.0.0.1, which are for the node alone.

use std::time::Duration;

use lab::frames::{Ethernet, Frame, IpNumber, Ipv4};
use lab::{Capture, EchoServer, Family, Netns, RawLink};
use rstest::rstest;
use serde_json::{Value, json};

use super::{NODE, Site, UPLINK, at, mapping, mapping_on, publishing};
use crate::networks::{ip, ipv4, with};

fn named() -> Value {
    publishing(ipv4(), &[mapping_on("127.0.0.1", 8080, 80)])
}

fn opted_in() -> Value {
    let conf = with(ipv4(), "hostport_localhost", json!(true));
    publishing(conf, &[mapping("tcp", 8080, 80)])
}

#[rstest]
#[case::named(&named(), false)]
#[case::opted_in(&opted_in(), true)]
fn a_port_of_127_0_0_1_works_from_the_host(#[case] conf: &Value, #[case] is_open: bool) {
    let site = Site::new();
    let (pod, _) = site.plugin.attached("server", conf);
    let _server = EchoServer::start(&pod, Family::V4, 80).unwrap();
    let local = at("127.0.0.1", 8080);
    site.plugin.node.call_echo(local, "from the host").unwrap();
    let published = at(NODE[0], 8080);
    let from_outside = site.neighbour.call_echo(published, "from outside");
    assert_eq!(from_outside.is_ok(), is_open, "{from_outside:?}");
    // Its own loopback is another one, where this port is closed.
    pod.call_echo(local, "from the pod").unwrap_err();
    site.plugin
        .succeed("CHECK", &checked(conf, &site, &pod), &pod);
}

/// The configuration with the result of the pod's ADD, as CHECK gets it.
fn checked(conf: &Value, site: &Site, pod: &lab::Pod) -> Value {
    let record = format!("{}/{}@eth0.json", crate::networks::RECORD_DIR, pod.name());
    let record = site.plugin.node.read(record).unwrap();
    let last: Value = serde_json::from_str(record.lines().last().unwrap()).unwrap();
    with(conf.clone(), "prevResult", last["result"].clone())
}

#[rstest]
#[case::named(&named())]
#[case::opted_in(&opted_in())]
fn a_neighbour_cannot_reach_a_port_of_127_0_0_1(#[case] conf: &Value) {
    let site = Site::new();
    let (pod, result) = site.plugin.attached("server", conf);
    // As kube-proxy may have it. Without this the kernel drops such a frame by itself.
    let node = &site.plugin.node;
    node.sysctl("net.ipv4.conf.all.route_localnet", "1")
        .unwrap();
    let mut seen = Capture::start(&pod, "eth0").unwrap();
    let link = RawLink::open(&site.neighbour, UPLINK).unwrap();
    let to = RawLink::open(node, UPLINK).unwrap().mac();
    let neighbour = [192, 0, 2, 2].into();
    for source in [neighbour, [127, 0, 0, 1].into()] {
        let packet = Ipv4::new(source, [127, 0, 0, 1].into()).tcp_syn(40000, 8080);
        link.send(&Ethernet::new(link.mac(), to).ipv4(&packet))
            .unwrap();
    }
    // It comes by the same way, after the others.
    let address: std::net::Ipv4Addr = ip(&result, 0).parse().unwrap();
    let mark = Ipv4::new(neighbour, address).udp(1, 4711, b"mark");
    link.send(&Ethernet::new(link.mac(), to).ipv4(&mark))
        .unwrap();
    let is_mark = |frame: &Frame| frame.udp_payload() == Some(b"mark");
    let frames = seen.until(Duration::from_secs(5), is_mark).unwrap();
    let is_led = |frame: &&Frame| frame.protocol() == Some(IpNumber(6));
    assert_eq!(frames.iter().find(is_led), None);
}
