//! CHECK names whatever is missing or changed, and leaves alone what others have added.

use lab::scenario::PluginNode;
use lab::{Netns, Pod};
use rstest::rstest;
use serde_json::{Value, json};

use crate::networks::{LEASE_DIR, dual_stack, host_link, plugin_node, with};

/// Where something is broken.
#[derive(Clone, Copy, Debug)]
enum Place {
    Host,
    Pod,
}
use Place::{Host, Pod as InPod};

fn conf() -> Value {
    let ports = json!([{ "hostPort": 8080, "containerPort": 80, "protocol": "tcp" }]);
    with(
        dual_stack(),
        "runtimeConfig",
        json!({ "portMappings": ports }),
    )
}

/// Runs a line, in which `LINK` is the pod's link on the host.
fn run(plugin: &PluginNode, pod: &Pod, place: Place, line: &str, host_link: &str) {
    let line = line.replace("LINK", host_link);
    let shell = ["sh", "-ec", &line];
    match place {
        Host => plugin.node.run(shell).unwrap(),
        InPod => pod.run(shell).unwrap(),
    };
}

#[rstest]
#[case::link_deleted(Host, "ip link del LINK", "no interface")]
#[case::link_down(Host, "ip link set LINK down", "LINK on the host is down")]
#[case::pod_link_deleted(InPod, "ip link del eth0", "no interface")]
#[case::pod_link_down(InPod, "ip link set eth0 down", "eth0 in the container is down")]
#[case::pod_link_renamed(
    InPod,
    "ip link set eth0 down; ip link set eth0 name x; ip link set x up",
    "eth0"
)]
#[case::address(InPod, "ip address del 10.9.0.2/24 dev eth0", "10.9.0.2/24")]
#[case::address6(InPod, "ip address del fd00:9::2/64 dev eth0", "fd00:9::2/64")]
#[case::other_length(
    InPod,
    "ip address del 10.9.0.2/24 dev eth0; \
    ip address add 10.9.0.2/16 dev eth0; ip route replace default via 10.9.0.1 dev eth0",
    "10.9.0.2/24"
)]
#[case::route(InPod, "ip route del default", "0.0.0.0/0 via 10.9.0.1")]
#[case::route6(InPod, "ip -6 route del default", "::/0 via fd00:9::1")]
#[case::other_gateway(
    InPod,
    "ip route replace default via 10.9.0.9 dev eth0 onlink",
    "0.0.0.0/0 via 10.9.0.1"
)]
#[case::other_device(
    InPod,
    "ip link add x type dummy || ip link add x type bridge; \
    ip link set x up; ip route replace default via 10.9.0.1 dev x onlink",
    "0.0.0.0/0"
)]
#[case::host_route(Host, "ip route del 10.9.0.2", "route to 10.9.0.2")]
#[case::host_route6(Host, "ip -6 route del fd00:9::2", "route to fd00:9::2")]
#[case::host_route_elsewhere(Host, "ip route replace 10.9.0.2 dev lo", "route to 10.9.0.2")]
#[case::host_neighbour(Host, "ip neigh del 10.9.0.2 dev LINK", "neighbour 10.9.0.2")]
#[case::host_neighbour6(Host, "ip neigh del fd00:9::2 dev LINK", "neighbour fd00:9::2")]
#[case::host_neighbour_other(
    Host,
    "ip neigh replace 10.9.0.2 lladdr 02:00:00:00:00:01 dev LINK nud permanent",
    "neighbour 10.9.0.2"
)]
#[case::pod_neighbour(InPod, "ip neigh del 10.9.0.1 dev eth0", "neighbour 10.9.0.1")]
#[case::pod_neighbour6(InPod, "ip neigh del fd00:9::1 dev eth0", "neighbour fd00:9::1")]
#[case::mac(
    InPod,
    "ip link set eth0 address 02:00:00:00:00:01",
    "02:00:00:00:00:01"
)]
// The kernel then forgets the neighbours of that link.
#[case::host_mac(Host, "ip link set LINK address 02:00:00:00:00:01", "LINK")]
#[case::mtu(InPod, "ip link set eth0 mtu 1400", "MTU 1400 and not 1280")]
#[case::host_mtu(Host, "ip link set LINK mtu 1300", "MTU 1300")]
#[case::host_port(Host, "nft flush map inet headcni-ports by_port4", "8080")]
#[case::host_port6(Host, "nft flush map inet headcni-ports by_port6", "8080")]
#[case::table(Host, "nft delete table inet headcni", "nftables")]
#[case::ports_table(Host, "nft delete table inet headcni-ports", "nftables")]
fn damage_is_told_by_name(#[case] place: Place, #[case] line: &str, #[case] part: &str) {
    let plugin = plugin_node();
    let (pod, result) = plugin.attached("p", &conf());
    let link = host_link(&result);
    let known = with(conf(), "prevResult", result);
    plugin.succeed("CHECK", &known, &pod);
    run(&plugin, &pod, place, line, &link);
    let outcome = plugin.attempt("CHECK", &known, &pod);
    assert!(!outcome.status.success(), "{line}: nothing noticed");
    assert_eq!(outcome.err_code(), Some(103), "{outcome:?}");
    let part = part.replace("LINK", &link);
    assert!(
        outcome.err_msg().contains(&part),
        "{part} in {}",
        outcome.err_msg()
    );
    // Whatever is broken, DEL takes all of it away.
    plugin.succeed("DEL", &known, &pod);
    assert_eq!(plugin.node.link(&link).unwrap(), None);
}

#[test]
fn a_lost_lease_is_told_by_name() {
    let plugin = plugin_node();
    let (pod, result) = plugin.attached("p", &conf());
    let known = with(conf(), "prevResult", result);
    let lease = format!("{LEASE_DIR}/10.9.0.2");
    let held = plugin.node.read(&lease).unwrap();
    plugin.node.run(["rm", &lease]).unwrap();
    let outcome = plugin.attempt("CHECK", &known, &pod);
    assert!(outcome.err_msg().contains("10.9.0.2"), "{outcome:?}");
    plugin.node.write(&lease, held.replace('p', "q")).unwrap();
    let outcome = plugin.attempt("CHECK", &known, &pod);
    assert!(outcome.err_msg().contains("10.9.0.2"), "{outcome:?}");
}

#[rstest]
#[case::addresses(
    InPod,
    "ip address add 10.77.0.1/24 dev eth0; ip address add fd00:77::1/64 dev eth0"
)]
#[case::routes(
    InPod,
    "ip route add 192.0.2.0/24 via 10.9.0.1 dev eth0 onlink; \
    ip -6 route add 2001:db8::/32 dev eth0; ip route add default dev eth0 metric 99"
)]
#[case::rules(InPod, "ip rule add from 10.77.0.0/16 lookup 77")]
#[case::links(InPod, "ip link add x type bridge; ip link set x up")]
#[case::neighbours(
    InPod,
    "ip neigh add 10.9.0.9 lladdr 02:00:00:00:00:09 dev eth0 nud permanent"
)]
#[case::host_routes(
    Host,
    "ip route add 10.88.0.0/16 dev LINK; ip address add 10.88.0.1/32 dev lo"
)]
#[case::host_address(Host, "ip address add 10.88.0.1/32 dev LINK")]
#[case::other_tables(
    Host,
    "nft add table inet other; nft add element inet headcni cluster4 { 10.1.0.0/16 }"
)]
#[case::other_ports(
    Host,
    "nft add element inet headcni-ports by_port4 { tcp . 9090 : 10.9.0.9 . 90 }"
)]
fn what_others_have_added_is_their_business(#[case] place: Place, #[case] line: &str) {
    let plugin = plugin_node();
    let (pod, result) = plugin.attached("p", &conf());
    let link = host_link(&result);
    run(&plugin, &pod, place, line, &link);
    plugin.succeed("CHECK", &with(conf(), "prevResult", result), &pod);
}
