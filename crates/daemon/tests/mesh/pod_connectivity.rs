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
    let pods: Vec<_> = nodes
        .iter()
        .map(|node| node.pod("p").unwrap())
        .collect();
    connectivity::assert_all_to_all(&pods);
    larger_packets_are_refused_on_the_way(&nodes[0], &pods[0], &pods[2]);
    nodes_reach_pods_under_addresses_of_their_pods(&nodes[0], &pods[2]);
    pods_reach_other_nodes(&cluster, &pods[0], &cluster.nodes[2]);
}

#[rstest]
#[case::ipv4(&[Family::V4])]
#[case::ipv6(&[Family::V6])]
fn pods_that_have_one_family_only_reach_each_other_by_it(#[case] families: &'static [Family]) {
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

/// A pod that believes in larger packets is told better by its node, instead of waiting for answers
/// that never come.
fn larger_packets_are_refused_on_the_way(
    node: &MeshNode,
    from: &AttachedPod,
    to: &AttachedPod,
) {
    let links = node.node.links().unwrap();
    let link = links.iter().find(|name| name.starts_with("hc")).unwrap();
    let raise = |link: &str| format!("ip link set {link} mtu 1500");
    node.sh(&raise(link)).unwrap();
    from.pod.run(raise("eth0").split(' ')).unwrap();
    for ip in &to.ips {
        let said = connectivity::ping_sized(&from.pod, *ip, 1400).unwrap_err();
        let said = said.to_lowercase();
        let is_told = said.contains("frag needed") || said.contains("packet too big");
        assert!(is_told && said.contains("mtu"), "{said}");
        // From then on the pod knows.
        let seen = connectivity::tcp(&from.pod, &to.pod, *ip).unwrap();
        assert!(from.ips.contains(&seen), "{seen}");
    }
}

/// What runs in a node's own network calls pods from the gateway's address, which is one of the
/// node's pod network: answers find their way, and policies know it.
fn nodes_reach_pods_under_addresses_of_their_pods(node: &MeshNode, to: &AttachedPod) {
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
