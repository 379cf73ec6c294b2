//! Redirects: nobody's routes are a pod's to change.

use lab::frames::{Icmp, Icmpv6, Ipv4, Ipv6};
use lab::scenario::PluginNode;
use lab::{Capture, Netns};

use super::attacker::{FORGED, GATEWAY, Stage};
use crate::connections::PATIENCE;
use crate::networks::{dual_stack, plugin_node};

/// Counts the redirects that get as far as the node's own stack.
const PROBE: &str = "table inet probe {
    chain input {
        type filter hook input priority 0; policy accept;
        icmp type redirect counter comment \"v4\"
        icmpv6 type nd-redirect counter comment \"v6\"
    }
}";

/// How many redirects of either family the node has got.
fn redirects_of_the_node(plugin: &PluginNode) -> [bool; 2] {
    let listed = plugin.node.run(["nft", "list", "table", "inet", "probe"]);
    let listed = listed.unwrap().stdout;
    ["v4", "v6"].map(|family| {
        let line = listed.lines().find(|line| line.contains(family)).unwrap();
        !line.contains("packets 0 ")
    })
}

/// Sends redirects to the node.
fn redirect_node(stage: &Stage) {
    let own = (stage.attacker.ipv4(), stage.attacker.ipv6());
    let gateway = (GATEWAY[0].parse().unwrap(), GATEWAY[1].parse().unwrap());
    let far = ([198, 51, 100, 9].into(), "2001:db8::9".parse().unwrap());
    let sent = Ipv4::new(gateway.0, far.0).icmp(Icmp::echo_reply(1, 1, b""));
    let packet = Ipv4::new(own.0, gateway.0).icmp(Icmp::redirect(own.0, &sent));
    stage.send(&stage.ethernet().ipv4(&packet));
    let sent = Ipv6::new(gateway.1, far.1).icmp(Icmpv6::echo_reply(1, 1, b""));
    let packet = Ipv6::new(own.1, gateway.1).icmp(Icmpv6::redirect(own.1, FORGED, &sent));
    stage.send(&stage.ethernet().ipv6(&packet));
    stage.settle();
}

/// Whether the victim gets a redirect, in the attacker's own name or in the gateway's.
fn reaches_victim(stage: &Stage) -> bool {
    let mut capture = Capture::start(&stage.victim.pod, "eth0").unwrap();
    let (own, victim) = (stage.attacker.ipv4(), stage.victim.ipv4());
    let sent = Ipv4::new(victim, [198, 51, 100, 9].into()).icmp(Icmp::echo_reply(1, 1, b""));
    for source in [own, GATEWAY[0].parse().unwrap()] {
        let packet = Ipv4::new(source, victim).icmp(Icmp::redirect(own, &sent));
        stage.send(&stage.ethernet().ipv4(&packet));
    }
    let mark = Ipv4::new(own, victim).icmp(Icmp::echo_request(7, 7, b"mark"));
    stage.send(&stage.ethernet().ipv4(&mark));
    // ICMP_ECHO, ICMP_REDIRECT
    let seen = capture.until(PATIENCE, |frame| frame.icmp_type() == Some(8));
    let seen = seen.unwrap();
    seen.iter().any(|frame| frame.icmp_type() == Some(5))
}

/// Where the victim sends what is for the world.
fn way_out(stage: &Stage) -> String {
    let line = ["ip", "route", "get", "198.51.100.9"];
    stage.victim.pod.run(line).unwrap().stdout
}

#[test]
fn no_redirect_gets_to_the_node_or_to_another_pod() {
    let plugin = plugin_node();
    let stage = Stage::new(&plugin, &dual_stack());
    plugin.node.write("/run/probe.nft", PROBE).unwrap();
    plugin.node.run(["nft", "-f", "/run/probe.nft"]).unwrap();
    // The victim believes in the attacker as a next hop.
    let (hop, mac) = (stage.attacker.ipv4().to_string(), FORGED.to_string());
    let entry = ["neighbour", "replace", &hop, "lladdr", &mac, "dev", "eth0"];
    stage.victim.pod.ip(entry).unwrap();
    for (name, value) in [("accept_redirects", "1"), ("secure_redirects", "0")] {
        for link in ["all", "eth0"] {
            let name = format!("net.ipv4.conf.{link}.{name}");
            stage.victim.pod.sysctl(&name, value).unwrap();
        }
    }
    let before = way_out(&stage);
    redirect_node(&stage);
    assert!(!reaches_victim(&stage));
    assert_eq!(redirects_of_the_node(&plugin), [false; 2]);
    assert_eq!(way_out(&stage), before);

    stage.disarm();
    redirect_node(&stage);
    assert_eq!(redirects_of_the_node(&plugin), [true; 2]);
    assert!(reaches_victim(&stage));
    lab::eventually(PATIENCE, "the victim is led astray", || {
        (way_out(&stage) != before).then_some(())
    })
    .unwrap();
}
