//! Pods on different nodes reach each other under their own addresses.

use std::net::IpAddr;

use lab::scenario::{AttachedPod, MeshCluster, MeshNode, Site, connectivity};
use lab::{Family, Netns};
use rstest::rstest;
use serde_json::json;

#[test]
fn every_pod_reaches_every_pod_under_its_own_address() {
    let cluster = MeshCluster::builder()
        .sites(&[Site::Open, Site::Open, Site::BehindNat])
        .forbid_strays()
        .start();
    let nodes = &cluster.nodes;
    let pods: Vec<_> = nodes.iter().map(|node| node.pod("p").unwrap()).collect();
    connectivity::assert_all_to_all(&pods);
    packets_above_the_mesh_mtu_get_an_icmp_error(&nodes[0], &pods[0], &pods[2]);
    nodes_reach_pods_from_the_gateway_address(&nodes[0], &pods[2]);
    pods_reach_other_nodes(&cluster, &pods[0], &cluster.nodes[2]);
}

#[rstest]
#[case::ipv4(&[Family::V4])]
#[case::ipv6(&[Family::V6])]
fn pods_with_a_single_address_family_reach_each_other(#[case] families: &'static [Family]) {
    let cluster = MeshCluster::builder()
        .families(families)
        .forbid_strays()
        .start();
    let pods = cluster.pod_on_each("p");
    for (pod, node) in pods.iter().zip(&cluster.nodes) {
        let of_pod: Vec<_> = pod.ips.iter().map(|ip| connectivity::family(*ip)).collect();
        assert_eq!(of_pod, families, "{:?}", pod.ips);
        let listed = cluster.headscale.node_named(node.node.name()).unwrap();
        assert_eq!(listed["subnet_routes"], json!(node.pod_cidrs()), "{listed}");
    }
    connectivity::assert_all_to_all(&pods);
}

/// A pod with too large an MTU gets an ICMP error from its node instead of a timeout.
fn packets_above_the_mesh_mtu_get_an_icmp_error(
    node: &MeshNode,
    from: &AttachedPod,
    to: &AttachedPod,
) {
    let links = node.node.links().unwrap();
    let link = links.iter().find(|name| name.starts_with("hc")).unwrap();
    let raise_mtu = |link: &str| format!("ip link set {link} mtu 1500");
    node.sh(&raise_mtu(link)).unwrap();
    from.pod.run(raise_mtu("eth0").split(' ')).unwrap();
    for ip in &to.ips {
        let output = connectivity::ping_sized(&from.pod, *ip, 1400).unwrap_err();
        let output = output.to_lowercase();
        let is_icmp_error = output.contains("frag needed") || output.contains("packet too big");
        assert!(is_icmp_error && output.contains("mtu"), "{output}");
        // From then on the pod uses the path MTU.
        let seen = connectivity::tcp(&from.pod, &to.pod, *ip).unwrap();
        assert!(from.ips.contains(&seen), "{seen}");
    }
}

/// A node sends from the gateway address, which is in its pod CIDR, so that answers are routed and policies
/// apply.
fn nodes_reach_pods_from_the_gateway_address(node: &MeshNode, to: &AttachedPod) {
    for ip in &to.ips {
        let seen = connectivity::tcp(&node.node, &to.pod, *ip).unwrap();
        let number = node.number;
        let gateway: IpAddr = match ip {
            IpAddr::V4(_) => format!("10.244.{number}.1"),
            IpAddr::V6(_) => format!("fd00:10:244:{number}::1"),
        }
        .parse()
        .unwrap();
        assert_eq!(seen, gateway);
    }
}

fn pods_reach_other_nodes(cluster: &MeshCluster, from: &AttachedPod, to: &MeshNode) {
    let listed = cluster.headscale.node_named(to.node.name()).unwrap();
    let addresses = listed["ip_addresses"].as_array().unwrap();
    assert_eq!(addresses.len(), 2, "{listed}");
    for address in addresses {
        let ip: IpAddr = address.as_str().unwrap().parse().unwrap();
        let seen = connectivity::tcp(&from.pod, &to.node, ip).unwrap();
        assert!(from.ips.contains(&seen), "{ip} saw {seen}");
    }
}
