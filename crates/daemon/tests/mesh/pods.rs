//! Pods on different nodes reach each other under their own addresses.

use std::net::IpAddr;

use lab::{AttachedPod, MeshCluster, Family, MeshNode, Netns, Site};
use rstest::rstest;
use serde_json::json;

use crate::scene::Scene;
use crate::talk;

#[test]
fn every_pod_reaches_every_pod_under_its_own_address() {
    let scene = Scene::without_strays(&[Site::Open, Site::Open, Site::BehindNat]);
    let mut cluster = MeshCluster::new(&scene.grounds).unwrap();
    cluster.start().unwrap();
    let members = &cluster.members;
    let pods: Vec<_> = members
        .iter()
        .map(|member| member.pod("p").unwrap())
        .collect();
    talk::check_all_to_all(&pods);
    larger_packets_are_refused_on_the_way(&members[0], &pods[0], &pods[2]);
    nodes_reach_pods_under_addresses_of_their_pods(&members[0], &pods[2]);
    pods_reach_other_nodes(&cluster, &pods[0], &cluster.members[2]);
}

#[rstest]
#[case::ipv4(&[Family::V4])]
#[case::ipv6(&[Family::V6])]
fn pods_that_have_one_family_only_reach_each_other_by_it(#[case] families: &'static [Family]) {
    let scene = Scene::without_strays(&[Site::Open, Site::Open]);
    let mut cluster = MeshCluster::of_families(&scene.grounds, families).unwrap();
    cluster.start().unwrap();
    let members = cluster.members.iter();
    let pods: Vec<_> = members.map(|member| member.pod("p").unwrap()).collect();
    for (pod, member) in pods.iter().zip(&cluster.members) {
        let of_pod: Vec<_> = pod.ips.iter().map(|ip| talk::family(*ip)).collect();
        assert_eq!(of_pod, families, "{:?}", pod.ips);
        let node = cluster.headscale.node_named(member.node.name()).unwrap();
        assert_eq!(node["subnet_routes"], json!(member.networks()), "{node}");
    }
    talk::check_all_to_all(&pods);
}

/// A pod that believes in larger packets is told better by its node, instead of waiting for answers
/// that never come.
fn larger_packets_are_refused_on_the_way(
    member: &MeshNode,
    from: &AttachedPod,
    to: &AttachedPod,
) {
    let links = member.node.links().unwrap();
    let link = links.iter().find(|name| name.starts_with("hc")).unwrap();
    let raise = |link: &str| format!("ip link set {link} mtu 1500");
    member.sh(&raise(link)).unwrap();
    from.pod.run(raise("eth0").split(' ')).unwrap();
    for ip in &to.ips {
        let said = talk::ping_sized(&from.pod, *ip, 1400).unwrap_err();
        let said = said.to_lowercase();
        let is_told = said.contains("frag needed") || said.contains("packet too big");
        assert!(is_told && said.contains("mtu"), "{said}");
        // From then on the pod knows.
        let seen = talk::tcp(&from.pod, &to.pod, *ip).unwrap();
        assert!(from.ips.contains(&seen), "{seen}");
    }
}

/// What runs in a node's own network calls pods from the gateway's address, which is one of the
/// node's pod network: answers find their way, and policies know it.
fn nodes_reach_pods_under_addresses_of_their_pods(member: &MeshNode, to: &AttachedPod) {
    for ip in &to.ips {
        let seen = talk::tcp(member.node, &to.pod, *ip).unwrap();
        let number = member.number;
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
    let node = cluster.headscale.node_named(to.node.name()).unwrap();
    let addresses = node["ip_addresses"].as_array().unwrap();
    assert_eq!(addresses.len(), 2, "{node}");
    for address in addresses {
        let ip: IpAddr = address.as_str().unwrap().parse().unwrap();
        let seen = talk::tcp(&from.pod, to.node, ip).unwrap();
        assert!(from.ips.contains(&seen), "{ip} saw {seen}");
    }
}
