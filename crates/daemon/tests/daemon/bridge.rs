//! Bridge mode: the reference plugins do the work, by the document that the daemon writes.

use std::net::{IpAddr, SocketAddr};

use lab::{EchoServer, Family, Netns, Node, Pod};
use serde_json::Value;

use crate::scene::{CONFLIST, Scene};

const NATIVE: &str = "network: {podCIDR: {nodeLocal: 10.244.1.0/24, base: 10.244.0.0/16}}";
const BRIDGE: &str = "network: {podCIDR: {nodeLocal: 10.244.1.0/24, base: 10.244.0.0/16}}
cni: {mode: bridge}";

/// Calls the real cnitool, as by the document that is there.
#[track_caller]
fn cnitool(scene: &Scene, verb: &str, pod: &Pod) -> Value {
    let tool = scene
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

/// What a server in `place` sees as our address.
#[track_caller]
fn seen(from: &impl Netns, place: &impl Netns, at: IpAddr) -> IpAddr {
    let server = EchoServer::start(place, Family::V4, 0).unwrap();
    let at = SocketAddr::new(at, server.port().unwrap());
    from.call_echo(at, "hello").unwrap()
}

/// A machine outside the cluster, at 192.0.2.2; the node is 192.0.2.1.
fn outside(scene: &Scene) -> Node {
    let outside = Node::new("outside").unwrap();
    let node = &scene.node;
    node.wire("up0", "192.0.2.1/24", &outside, "192.0.2.2/24")
        .unwrap();
    scene.sh("ip route add default via 192.0.2.2");
    outside
}

#[test]
fn pods_of_the_reference_plugins_keep_their_address_inside_and_have_the_nodes_outside() {
    let scene = Scene::with(BRIDGE);
    let outside = outside(&scene);
    let daemon = scene.start();
    let document = scene.read(CONFLIST).unwrap();
    assert!(document.contains("host-local"), "{document}");
    let (one, two) = (scene.node.pod("p1").unwrap(), scene.node.pod("p2").unwrap());
    let first = address(&cnitool(&scene, "add", &one));
    let second = address(&cnitool(&scene, "add", &two));
    assert_eq!(seen(&one, &two, second), first);
    one.ping("10.244.1.1").unwrap();
    let node: IpAddr = "192.0.2.1".parse().unwrap();
    assert_eq!(seen(&one, &outside, "192.0.2.2".parse().unwrap()), node);
    assert_eq!(
        seen(&scene.node, &two, second),
        "10.244.1.1".parse::<IpAddr>().unwrap()
    );
    cnitool(&scene, "check", &one);
    // Without our table the pod would go out under its own name; it comes back.
    scene.sh("nft flush ruleset");
    scene.eventually("masquerade is back", || {
        let tables = scene.sh("nft list tables");
        let is_back = tables.lines().any(|line| line == "table inet headcni");
        is_back.then_some(())
    });
    daemon.await_ready();
    assert_eq!(seen(&two, &outside, "192.0.2.2".parse().unwrap()), node);
    cnitool(&scene, "del", &one);
    cnitool(&scene, "del", &two);
    assert!(scene.leases().is_empty(), "{:?}", scene.leases());
}

#[test]
fn a_node_changes_its_mode_and_back_and_pods_of_both_live_on() {
    let scene = Scene::with(NATIVE);
    let daemon = scene.start();
    let native = scene.node.pod("p1").unwrap();
    let first = address(&scene.add(&native));

    scene.configure(BRIDGE);
    daemon.reload();
    scene.eventually("the document is of a bridge", || {
        scene.read(CONFLIST)?.contains("host-local").then_some(())
    });
    daemon.await_ready();
    let bridged = scene.node.pod("p2").unwrap();
    let second = address(&cnitool(&scene, "add", &bridged));
    assert_ne!(first, second, "two pods, two addresses");
    // The files may be written before the bridge is let through.
    for address in [first, second] {
        scene.eventually("the node reaches both", || {
            scene.node.ping(&address.to_string()).ok()
        });
    }

    scene.configure(NATIVE);
    daemon.reload();
    scene.eventually("the document is ours", || {
        scene.read(CONFLIST)?.contains("headcni-ipam").then_some(())
    });
    scene.eventually("the gateway is on lo again", || {
        let addresses = scene.sh("ip address show lo");
        addresses.contains("10.244.1.1/32").then_some(())
    });
    daemon.await_ready();
    let third_pod = scene.node.pod("p3").unwrap();
    let third = address(&scene.add(&third_pod));
    assert!(
        third != first && third != second,
        "{first} {second} {third}"
    );
    assert_eq!(seen(&third_pod, &native, first), third);
    scene.node.ping(&second.to_string()).unwrap();
    daemon.await_metric("headcni_pods", 2.0);
    scene.del(&third_pod);
    scene.del(&native);
    assert_eq!(scene.leases(), [second.to_string()]);
    drop(daemon.stop());
    let done = scene.command(&["uninstall"]);
    assert!(done.status.success(), "{done:?}");
    assert!(scene.node.link("headcni0").unwrap().is_none());
}
