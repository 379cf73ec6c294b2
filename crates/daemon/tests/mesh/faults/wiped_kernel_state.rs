//! Rules, routes, nft tables and interfaces are deleted, and cables are pulled.

use std::thread;
use std::time::Duration;

use lab::scenario::{JOIN_TIMEOUT, MeshNode};
use lab::{Netns, eventually, without_dynamic_elements};

use super::{KERNEL_RESTORE, TAILSCALED_RESTART, await_ping, ip_rules, with_two_nodes};

/// Commands that administrators and programs use.
const WIPED: [(&str, &str); 6] = [
    (
        "our rules",
        "for f in -4 -6; do for p in 5190 5195 5200; do ip $f rule delete priority $p; done; done",
    ),
    (
        "all rules",
        "for f in -4 -6; do ip $f rule flush; ip $f rule add lookup main priority 32766; done",
    ),
    (
        "our table of routes",
        "for f in -4 -6; do ip $f route flush table 26723; done",
    ),
    ("our nft table", "nft delete table inet headcni"),
    ("all of nftables", "nft flush ruleset"),
    (
        "all of these",
        "nft flush ruleset
         for f in -4 -6; do
             ip $f route flush table 26723
             ip $f rule flush; ip $f rule add lookup main priority 32766
         done",
    ),
];

/// Our kernel state without counters and dynamic set elements.
fn state(node: &MeshNode) -> Option<String> {
    let routes = "for family in -4 -6; do
                      ip $family route show table 26723 | sort
                      ip $family route show table main | sort
                  done";
    let routes = node.sh(routes).ok()?;
    let tables = node.sh("nft --stateless list table inet headcni").ok()?;
    Some([ip_rules(node), routes, without_dynamic_elements(&tables)].concat())
}

fn await_state(node: &MeshNode, before: &str, limit: Duration, what: &str) {
    let is_back = || (state(node)? == before).then_some(());
    eventually(limit, &format!("the state before {what}"), is_back).unwrap_or_else(|error| {
        let now = state(node).unwrap_or_default();
        panic!("{error:#}, which was\n{before}\nand is\n{now}")
    });
}

#[test]
fn deleted_rules_routes_tables_and_interfaces_are_restored() {
    with_two_nodes(|cluster, traffic| {
        let node = &cluster.nodes[0];
        let peer_ips = cluster.nodes[1].tailnet_ips().unwrap();
        let before = state(node).unwrap();
        for part in ["5190:", "dev headcni01", "unreachable", "chain guard"] {
            assert!(before.contains(part), "{part}: {before}");
        }
        for (what, line) in WIPED {
            let what = format!("{what} wiped");
            traffic.assert_outage(&what, KERNEL_RESTORE, || {
                node.sh(line).unwrap();
                await_state(node, &before, KERNEL_RESTORE, &what);
            });
        }
        node.await_ready(JOIN_TIMEOUT).unwrap();

        let what = "mesh interface set down";
        traffic.assert_outage(what, TAILSCALED_RESTART, || {
            node.sh("ip link set headcni01 down").unwrap();
            await_state(node, &before, TAILSCALED_RESTART, what);
        });
        // tailscaled's own state is restored by a new tailscaled.
        for to in peer_ips {
            await_ping(&traffic.client, to);
        }
        node.await_ready(JOIN_TIMEOUT).unwrap();

        let what = "mesh interface deleted";
        traffic.assert_outage(what, TAILSCALED_RESTART, || {
            let delete = ["ip", "link", "delete", "headcni01"];
            node.node.run(delete).unwrap();
            await_state(node, &before, TAILSCALED_RESTART, what);
        });
        node.await_ready(JOIN_TIMEOUT).unwrap();
    });
}

#[test]
fn traffic_recovers_when_a_pulled_cable_is_replugged() {
    with_two_nodes(|cluster, traffic| {
        let (underlay, port) = (&cluster.topology.underlay, &cluster.topology.ports[0]);
        traffic.assert_outage("cable pulled for 10 s", TAILSCALED_RESTART, || {
            underlay.unplug(port).unwrap();
            // The duration of the outage is what is tested.
            thread::sleep(Duration::from_secs(10));
            underlay.replug(port).unwrap();
        });
        for node in &cluster.nodes {
            node.await_ready(JOIN_TIMEOUT * 3).unwrap();
        }
    });
}
