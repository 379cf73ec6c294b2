//! A pod whose address is outside its node's pod CIDRs has an extra host route as long as it lives.

use std::collections::BTreeSet;
use std::time::Instant;

use lab::scenario::{
    AttachedPod, CLUSTER_CIDRS, JOIN_TIMEOUT, MeshCluster, MeshNode, NODE_TAG, connectivity,
};
use lab::{eventually, open_policy};
use serde_json::json;

/// Added one after the other in less than a second.
const MANY: usize = 12;

#[test]
fn a_pod_outside_the_pod_cidr_has_a_host_route_until_it_is_deleted() {
    let mut cluster = MeshCluster::prepare(2);
    // Only the daemons approve.
    let mut policy = open_policy(NODE_TAG, &CLUSTER_CIDRS);
    policy["autoApprovers"] = json!({"routes": {}});
    cluster.headscale.set_policy(&policy).unwrap();
    // The first node's tailscaled runs in its own netns, the second's in the host's.
    let config = cluster.nodes[0].config(&cluster.headscale.url());
    let own_netns = format!("{config}  netns: own\n");
    cluster.nodes[0].configure(&own_netns).unwrap();
    cluster.start_daemons().unwrap();

    let nodes = &cluster.nodes;
    let outside = [0, 1].map(|nth: usize| outside_pod(&nodes[nth], 9));
    for pod in &outside {
        assert_eq!(pod.ips.len(), 2, "of both families: {:?}", pod.ips);
    }
    for (node, pod) in nodes.iter().zip(&outside) {
        await_served(&cluster, node, std::slice::from_ref(pod));
    }
    let natives = [0, 1].map(|nth| nodes[nth].pod("n").unwrap());
    let all: Vec<_> = outside.into_iter().chain(natives).collect();
    connectivity::await_all_to_all(&all);
    for node in nodes {
        node.await_ready(JOIN_TIMEOUT).unwrap();
    }
    let [first, second, native, remote] = all.try_into().unwrap();

    let mut others = add_many(&cluster, &nodes[1]);
    others.push(second);
    for (node, gone) in nodes.iter().zip([vec![first], others]) {
        for pod in &gone {
            node.detach(pod).unwrap();
        }
        await_withdrawn(&cluster, node, &gone);
    }
    connectivity::await_all_to_all(&[native, remote]);
}

/// Pods added within a second are advertised with one change of tailscaled's prefs, or with another change
/// that happens meanwhile.
fn add_many(cluster: &MeshCluster, node: &MeshNode) -> Vec<AttachedPod> {
    let before = edits(node).len();
    let began = Instant::now();
    let pods: Vec<_> = (0..MANY).map(|nth| outside_pod(node, 11 + nth)).collect();
    let took = began.elapsed();
    await_served(cluster, node, &pods);
    let edits: BTreeSet<String> = edits(node).split_off(before).into_iter().collect();
    let count = edits.len();
    eprintln!("measured: {MANY} pods in {took:.1?}: {count} edits");
    // Adding takes longer on a busy machine.
    assert!(count as u64 <= 2 + took.as_secs(), "{edits:#?}");
    pods
}

/// The edits of tailscaled's prefs, from the log.
fn edits(node: &MeshNode) -> Vec<String> {
    let log = node.log();
    let edits = log
        .lines()
        .filter(|line| line.contains("updating tailscaled prefs"));
    edits
        .filter_map(|line| Some(line.split_once("edit=")?.1.to_owned()))
        .collect()
}

/// By the daemon's conflist, with an IPAM plugin that uses another range.
fn outside_pod(node: &MeshNode, last: usize) -> AttachedPod {
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
    eventually(JOIN_TIMEOUT, "no route to them is left", || {
        let routes = "for family in -4 -6; do ip $family rule; ip $family route; done";
        let netns = "/run/netns/headcni-mesh";
        let inside = format!("if [ -e {netns} ]; then nsenter --net={netns} sh -ec '{routes}'; fi");
        let found = node.sh(&format!("{routes}\n{inside}")).unwrap();
        let mut ips = pods.iter().flat_map(|pod| &pod.ips);
        let is_routed = |ip: &String| found.split_whitespace().any(|word| word == ip);
        (!ips.any(|ip| is_routed(&ip.to_string()))).then_some(())
    })
    .unwrap();
}

fn own_routes(pods: &[AttachedPod]) -> impl Iterator<Item = String> {
    let ips = pods.iter().flat_map(|pod| pod.ips.clone());
    ips.map(|ip| format!("{ip}/{}", if ip.is_ipv4() { 32 } else { 128 }))
}

/// A node's routes in Headscale.
fn routes(cluster: &MeshCluster, node: &MeshNode, kind: &str) -> Vec<String> {
    let name = node.node.name();
    let listed = cluster.headscale.node_named(name).unwrap();
    let routes = listed[kind].as_array().into_iter().flatten();
    routes
        .filter_map(|it| Some(it.as_str()?.to_owned()))
        .collect()
}
