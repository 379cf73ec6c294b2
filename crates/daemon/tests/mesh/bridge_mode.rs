//! Pods of bridge mode, and of the delegate, reach pods of other nodes.

use std::net::IpAddr;

use lab::scenario::{JOIN_TIMEOUT, MeshCluster, MeshNode, connectivity};
use lab::{Pod, eventually};
use serde_json::json;

#[test]
fn pods_on_a_bridge_reach_pods_of_other_nodes() {
    let mut cluster = MeshCluster::prepare(2);
    let url = cluster.headscale.url();
    // The other node stays native.
    let node = &cluster.nodes[0];
    let config = node.config(&url);
    node.configure(&format!("{config}cni: {{mode: bridge}}\n"))
        .unwrap();
    cluster.start_daemons().unwrap();
    let bridged = attach(&cluster.nodes[0], "headcni");
    let bridged = (&bridged.0, &bridged.1[..]);
    let native = cluster.nodes[1].pod("p").unwrap();
    check_both_ways(bridged, (&native.pod, &native.ips));

    cluster.nodes[1].detach(&native).unwrap();
    delegate(&cluster.nodes[1], &url);
    let delegated = attach(&cluster.nodes[1], "delegated");
    check_both_ways(bridged, (&delegated.0, &delegated.1));
}

/// Makes the pods of a node by headcni's delegate, by a conflist of the administrator.
fn delegate(node: &MeshNode, url: &str) {
    let config = node.config(url);
    let cni = "{mode: bridge, exclusive: false, bridge: {name: cni0}}";
    node.configure(&format!("{config}cni: {cni}\n")).unwrap();
    node.reload();
    eventually(JOIN_TIMEOUT, "its bridge is known", || {
        let mesh_ifaces = node.sh("nft list set inet headcni mesh_ifaces").ok()?;
        mesh_ifaces.contains("cni0").then_some(())
    })
    .unwrap();
    let list = json!({
        "cniVersion": "1.0.0",
        "name": "delegated",
        "plugins": [{"type": "headcni", "delegate": {"type": "bridge", "bridge": "cni0"}}],
    });
    let path = "/etc/cni/net.d/05-delegated.conflist";
    node.node.write(path, list.to_string()).unwrap();
}

fn check_both_ways(one: (&Pod, &[IpAddr]), other: (&Pod, &[IpAddr])) {
    for (from, (to, ips)) in [(one, other), (other, one)] {
        for ip in ips {
            connectivity::assert_pair(from, to, *ip);
        }
    }
}

/// By cnitool and the node's conflist.
fn attach(node: &MeshNode, network: &str) -> (Pod, Vec<IpAddr>) {
    let pod = node.node.pod(network).unwrap();
    let tool = node
        .node
        .cnitool("/etc/cni/net.d", "add", network, pod.netns_path())
        .path("/opt/cni/bin");
    let outcome = tool.run().unwrap();
    outcome.ok().unwrap();
    let result = outcome.json.unwrap();
    let ips = result["ips"].as_array().unwrap().iter();
    let ips = ips.map(|ip| ip["address"].as_str().unwrap().split('/').next().unwrap());
    let ips: Vec<IpAddr> = ips.map(|ip| ip.parse().unwrap()).collect();
    assert_eq!(ips.len(), 2, "{result}");
    (pod, ips)
}
