//! The underlay connects nodes, with NAT and outages.

use std::net::SocketAddr;
use std::time::Duration;

use lab::{EchoServer, Family, NatKind, Netns, Node, Port, UPLINK, Underlay, eventually};

fn v6(port: &Port) -> String {
    port.v6.unwrap().to_string()
}

#[test]
fn plugged_nodes_reach_each_other_by_both_families() {
    let underlay = Underlay::new().unwrap();
    let nodes = ["n1", "n2", "n3"].map(|name| Node::new(name).unwrap());
    let ports = nodes.each_ref().map(|node| underlay.plug(node).unwrap());
    for (node, peer) in [(&nodes[0], &ports[1]), (&nodes[2], &ports[0])] {
        node.ping(&peer.v4.to_string()).unwrap();
        node.ping(&v6(peer)).unwrap();
    }
    for address in ["198.51.100.1", "2001:db8::1"] {
        let route = nodes[0].run(["ip", "route", "get", address]).unwrap();
        assert!(route.stdout.contains(UPLINK), "{}", route.stdout);
        let ping = ["ping", "-n", "-c", "1", "-W", "0.3", address];
        assert!(!nodes[0].attempt(ping).unwrap().status.success());
    }
}

#[test]
fn a_node_behind_a_nat_can_connect_out_but_not_be_connected_to() {
    let underlay = Underlay::new().unwrap();
    let nat = underlay.nat(NatKind::Easy).unwrap();
    let (inside, outside) = (Node::new("home").unwrap(), Node::new("cloud").unwrap());
    let (home, cloud) = (nat.plug(&inside).unwrap(), underlay.plug(&outside).unwrap());
    let server = EchoServer::start(&outside, Family::V4, 0).unwrap();
    let called = SocketAddr::new(cloud.v4.into(), server.port().unwrap());
    let source = inside.call_echo(called, "hello").unwrap();
    assert_eq!(source, nat.outside().v4, "it is masqueraded");

    let server = EchoServer::start(&inside, Family::V4, 0).unwrap();
    let port = server.port().unwrap();
    nat.router()
        .call_echo(SocketAddr::new(home.v4.into(), port), "hello")
        .unwrap();
    for address in [home.v4, nat.outside().v4] {
        let address = SocketAddr::new(address.into(), port);
        // One has no route, the other no port forwarding.
        assert!(outside.call_echo(address, "hello").is_err(), "{address}");
    }
}

#[test]
fn a_cable_is_unplugged_and_replugged() {
    let underlay = Underlay::new().unwrap();
    let nat = underlay.nat(NatKind::Hard).unwrap();
    let (inside, outside) = (Node::new("home").unwrap(), Node::new("cloud").unwrap());
    let (home, cloud) = (nat.plug(&inside).unwrap(), underlay.plug(&outside).unwrap());
    let line = ["ping", "-n", "-c", "1", "-W", "0.3", &cloud.v4.to_string()].map(str::to_owned);
    let is_reached = || inside.attempt(&line).unwrap().status.success();
    let has_address = || {
        let cidr = format!("{}/64", v6(&cloud));
        let addresses = outside.addresses().unwrap();
        addresses.iter().any(|address| address.cidr == cidr)
    };
    let await_reached = || {
        eventually(Duration::from_secs(10), "it is reached", || {
            is_reached().then_some(())
        })
        .unwrap();
    };
    await_reached();
    for (unplug, replug) in [
        (
            &(|| underlay.unplug(&cloud)) as &dyn Fn() -> _,
            &(|| underlay.replug(&cloud)) as &dyn Fn() -> _,
        ),
        (&|| nat.unplug(&home), &|| nat.replug(&home)),
    ] {
        unplug().unwrap();
        assert!(!is_reached());
        assert!(has_address(), "the node keeps its address");
        replug().unwrap();
        await_reached();
    }
}

#[test]
fn a_delayed_cable_is_slow_or_netem_is_missing() {
    let underlay = Underlay::new().unwrap();
    let nodes = ["n1", "n2"].map(|name| Node::new(name).unwrap());
    let [one, two] = nodes.each_ref().map(|node| underlay.plug(node).unwrap());
    match underlay.delay(&one, Duration::from_millis(300)) {
        Ok(()) => {
            let ping =
                ["ping", "-n", "-c", "1", "-W", "0.2", &two.v4.to_string()].map(str::to_owned);
            assert!(!nodes[0].attempt(&ping).unwrap().status.success());
        }
        Err(error) => assert!(error.to_string().contains("NET_SCH_NETEM"), "{error:#}"),
    }
}
