//! Bridge mode: the reference plugins attach pods by the conflist that the daemon writes.

use std::net::{IpAddr, SocketAddr};

use lab::scenario::{CONFLIST, DaemonNode};
use lab::{EchoServer, Family, Netns, Node, Pod};
use serde_json::Value;

const NATIVE: &str = "network: {podCIDR: {nodeLocal: 10.244.1.0/24, base: 10.244.0.0/16}}";
const BRIDGE: &str = "network: {podCIDR: {nodeLocal: 10.244.1.0/24, base: 10.244.0.0/16}}
cni: {mode: bridge}";

/// Runs cnitool with the node's conflist.
#[track_caller]
fn cnitool(node: &DaemonNode, verb: &str, pod: &Pod) -> Value {
    let tool = node
        .node
        .cnitool("/etc/cni/net.d", verb, "headcni", pod.netns_path())
        .path("/opt/cni/bin");
    let outcome = tool.run().unwrap();
    outcome.ok().unwrap();
    outcome.json.unwrap_or_default()
}

#[track_caller]
fn address(result: &Value) -> IpAddr {
    let text = result["ips"][0]["address"].as_str().unwrap();
    text.split('/').next().unwrap().parse().unwrap()
}

/// The source address that a server in `place` sees.
#[track_caller]
fn seen(from: &impl Netns, place: &impl Netns, at: IpAddr) -> IpAddr {
    let server = EchoServer::start(place, Family::V4, 0).unwrap();
    let at = SocketAddr::new(at, server.port().unwrap());
    from.call_echo(at, "hello").unwrap()
}

/// A machine outside the cluster, at 192.0.2.2; the node is 192.0.2.1.
fn outside(node: &DaemonNode) -> Node {
    let outside = Node::new("outside").unwrap();
    node.node
        .wire("up0", "192.0.2.1/24", &outside, "192.0.2.2/24")
        .unwrap();
    node.sh("ip route add default via 192.0.2.2");
    outside
}

#[test]
fn bridged_pods_are_masqueraded_only_outside_the_cluster() {
    let node = DaemonNode::with_config(BRIDGE);
    let outside = outside(&node);
    let daemon = node.start_daemon();
    let conflist = node.read(CONFLIST).unwrap();
    assert!(conflist.contains("host-local"), "{conflist}");
    let (one, two) = (node.pod("p1"), node.pod("p2"));
    let first = address(&cnitool(&node, "add", &one));
    let second = address(&cnitool(&node, "add", &two));
    assert_eq!(seen(&one, &two, second), first);
    one.ping("10.244.1.1").unwrap();
    let node_ip: IpAddr = "192.0.2.1".parse().unwrap();
    assert_eq!(seen(&one, &outside, "192.0.2.2".parse().unwrap()), node_ip);
    assert_eq!(
        seen(&node.node, &two, second),
        "10.244.1.1".parse::<IpAddr>().unwrap()
    );
    cnitool(&node, "check", &one);
    // Our table masquerades, and is restored.
    node.sh("nft flush ruleset");
    node.eventually("masquerade is back", || {
        let tables = node.sh("nft list tables");
        let is_back = tables.lines().any(|line| line == "table inet headcni");
        is_back.then_some(())
    });
    daemon.await_ready();
    assert_eq!(seen(&two, &outside, "192.0.2.2".parse().unwrap()), node_ip);
    cnitool(&node, "del", &one);
    cnitool(&node, "del", &two);
    assert!(node.leases().is_empty(), "{:?}", node.leases());
}

#[test]
fn changing_cni_mode_and_back_keeps_pods_of_both_modes_connected() {
    let node = DaemonNode::with_config(NATIVE);
    let daemon = node.start_daemon();
    let native = node.pod("p1");
    let first = address(&node.add(&native));

    node.configure(BRIDGE);
    daemon.reload();
    node.eventually("the conflist is for bridge mode", || {
        node.read(CONFLIST)?.contains("host-local").then_some(())
    });
    daemon.await_ready();
    let bridged = node.pod("p2");
    let second = address(&cnitool(&node, "add", &bridged));
    assert_ne!(first, second, "two pods, two addresses");
    // The conflist may be written before the bridge is allowed.
    for address in [first, second] {
        node.eventually("the node reaches both", || {
            node.node.ping(&address.to_string()).ok()
        });
    }

    node.configure(NATIVE);
    daemon.reload();
    node.eventually("the conflist is native", || {
        node.read(CONFLIST)?.contains("headcni-ipam").then_some(())
    });
    node.eventually("the gateway is on lo again", || {
        let addresses = node.sh("ip address show lo");
        addresses.contains("10.244.1.1/32").then_some(())
    });
    daemon.await_ready();
    let third_pod = node.pod("p3");
    let third = address(&node.add(&third_pod));
    assert!(
        third != first && third != second,
        "{first} {second} {third}"
    );
    assert_eq!(seen(&third_pod, &native, first), third);
    node.node.ping(&second.to_string()).unwrap();
    daemon.await_metric("headcni_pods", 2.0);
    node.del(&third_pod);
    node.del(&native);
    assert_eq!(node.leases(), [second.to_string()]);
    drop(daemon.stop());
    let done = node.command(&["uninstall"]);
    assert!(done.status.success(), "{done:?}");
    assert!(node.node.link("headcni0").unwrap().is_none());
}
