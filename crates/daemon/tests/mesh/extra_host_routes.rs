//! A pod whose address is in none of its node's networks has a route of its own, as long as it lives.

use std::collections::BTreeSet;
use std::time::Instant;

use lab::scenario::{AttachedPod, CLUSTER_CIDRS, JOIN_TIMEOUT, MeshCluster, MeshNode, NODE_TAG, connectivity};
use lab::{eventually, open_policy};
use serde_json::json;


/// So many pods come one after the other, which takes less than a second.
const MANY: usize = 12;

#[test]
fn an_address_outside_the_nodes_networks_has_a_route_as_long_as_its_pod_lives() {
    let mut cluster = MeshCluster::prepare(2);
    // Nobody but the daemons approves.
    let mut policy = open_policy(NODE_TAG, &CLUSTER_CIDRS);
    policy["autoApprovers"] = json!({"routes": {}});
    cluster.headscale.set_policy(&policy).unwrap();
    // The first node's tailscaled has a network of its own, the second's has the host's.
    let config = cluster.nodes[0].config(&cluster.headscale.url());
    let apart = format!("{config}  namespace: own\n");
    cluster.nodes[0].configure(&apart).unwrap();
    cluster.start_daemons().unwrap();

    let nodes = &cluster.nodes;
    let strays = [0, 1].map(|nth: usize| stray(&nodes[nth], 9));
    for stray in &strays {
        assert_eq!(stray.ips.len(), 2, "of both families: {:?}", stray.ips);
    }
    for (node, stray) in nodes.iter().zip(&strays) {
        await_served(&cluster, node, std::slice::from_ref(stray));
    }
    let natives = [0, 1].map(|nth| nodes[nth].pod("n").unwrap());
    let all: Vec<_> = strays.into_iter().chain(natives).collect();
    connectivity::await_all_to_all(&all);
    for node in nodes {
        node.await_ready(JOIN_TIMEOUT).unwrap();
    }
    let [first, second, native, remote] = all.try_into().unwrap();

    let mut others = many_at_once(&cluster, &nodes[1]);
    others.push(second);
    for (node, gone) in nodes.iter().zip([vec![first], others]) {
        for pod in &gone {
            node.detach(pod).unwrap();
        }
        await_withdrawn(&cluster, node, &gone);
    }
    connectivity::await_all_to_all(&[native, remote]);
}

/// Whoever comes within a second of another one is told to tailscaled with it. Other news may come
/// meanwhile: then all that are there by then are told with it.
fn many_at_once<'a>(cluster: &MeshCluster, node: &MeshNode) -> Vec<AttachedPod> {
    let before = edits(node).len();
    let began = Instant::now();
    let pods: Vec<_> = (0..MANY).map(|nth| stray(node, 11 + nth)).collect();
    let took = began.elapsed();
    await_served(cluster, node, &pods);
    // One that says nothing new takes away what was only to be heard.
    let edits: BTreeSet<String> = edits(node).split_off(before).into_iter().collect();
    let count = edits.len();
    eprintln!("measured: {MANY} pods in {took:.1?}: {count} edits");
    // On a busy machine it takes longer.
    assert!(count as u64 <= 2 + took.as_secs(), "{edits:#?}");
    pods
}

/// What tailscaled was told to advertise, each time.
fn edits(node: &MeshNode) -> Vec<String> {
    let log = node.log();
    let told = log
        .lines()
        .filter(|line| line.contains("tailscaled is told otherwise"));
    told.filter_map(|line| Some(line.split_once("edit=")?.1.to_owned()))
        .collect()
}

/// A pod by the configuration that the daemon wrote, but with an IPAM plugin that has ideas of its own.
fn stray<'a>(node: &MeshNode, last: usize) -> AttachedPod {
    let third = 200 + node.number;
    let [v4, v6] = [format!("10.244.{third}."), format!("fd00:10:244:{third}::")];
    let range = |subnet: String, only: String| {
        let (start, end) = (&only, &only);
        json!([{"subnet": subnet, "rangeStart": start, "rangeEnd": end}])
    };
    let ranges = [
        range(format!("{v4}0/24"), format!("{v4}{last}")),
        range(format!("{v6}/64"), format!("{v6}{last}")),
    ];
    let mut conf = node.cni_conf().unwrap();
    conf["ipam"] = json!({"type": "host-local", "ranges": ranges, "dataDir": "/var/lib/cni/other"});
    node.pod_with_conf(&format!("o{last}"), conf).unwrap()
}

fn await_served(cluster: &MeshCluster, node: &MeshNode, pods: &[AttachedPod]) {
    eventually(JOIN_TIMEOUT, "their own routes are served", || {
        let served = routes(cluster, node, "subnet_routes");
        let mut all = own_routes(pods);
        all.all(|route| served.contains(&route)).then_some(())
    })
    .unwrap_or_else(|error| panic!("{error:#}\n{}", node.diagnostics()));
}

fn await_withdrawn(cluster: &MeshCluster, node: &MeshNode, pods: &[AttachedPod]) {
    eventually(JOIN_TIMEOUT, "their routes are withdrawn", || {
        let kinds = ["available_routes", "approved_routes", "subnet_routes"];
        let left = kinds.map(|kind| routes(cluster, node, kind)).concat();
        let mut all = own_routes(pods);
        (!all.any(|route| left.contains(&route))).then_some(())
    })
    .unwrap_or_else(|error| panic!("{error:#}\n{}", node.diagnostics()));
    let ours = routes(cluster, node, "subnet_routes");
    assert_eq!(ours.len(), 2, "the node's own stay: {ours:?}");
    eventually(JOIN_TIMEOUT, "nothing leads to them any more", || {
        let ways = "for family in -4 -6; do ip $family rule; ip $family route; done";
        let apart = "/run/netns/headcni-mesh";
        let inside = format!("if [ -e {apart} ]; then nsenter --net={apart} sh -ec '{ways}'; fi");
        let found = node.sh(&format!("{ways}\n{inside}")).unwrap();
        let mut ips = pods.iter().flat_map(|pod| &pod.ips);
        let leads = |ip: &String| found.split_whitespace().any(|word| word == ip);
        (!ips.any(|ip| leads(&ip.to_string()))).then_some(())
    })
    .unwrap();
}

/// The routes that lead to these pods alone.
fn own_routes(pods: &[AttachedPod]) -> impl Iterator<Item = String> {
    let ips = pods.iter().flat_map(|pod| pod.ips.clone());
    ips.map(|ip| format!("{ip}/{}", if ip.is_ipv4() { 32 } else { 128 }))
}

/// Routes of a node at the server.
fn routes(cluster: &MeshCluster, node: &MeshNode, kind: &str) -> Vec<String> {
    let name = node.node.name();
    let listed = cluster.headscale.node_named(name).unwrap();
    let routes = listed[kind].as_array().into_iter().flatten();
    routes
        .filter_map(|it| Some(it.as_str()?.to_owned()))
        .collect()
}
