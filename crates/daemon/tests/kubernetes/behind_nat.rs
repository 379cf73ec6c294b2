//! Nodes whose `--node-ip` is their tailnet address, because one is behind NAT.

use std::net::{IpAddr, SocketAddr};

use lab::kubernetes::Worker;
use lab::scenario::{
    JOIN_TIMEOUT, KubeCluster, NODE_TAG, Site, Topology, fetch_from, object_name, pod_ips,
    pod_object, web_spec_on,
};
use lab::{Headscale, Join, Node, Tailscaled, eventually, http_get};
use serde_json::{Value, json};

const BEHIND: &str = "node-2";

#[test]
fn a_node_behind_nat_works_with_its_tailnet_address_as_node_ip() {
    let topology = Topology::new(&[Site::Open, Site::BehindNat]).unwrap();
    let headscale = KubeCluster::start_headscale(&topology);
    // The API server has to reach kubelets.
    let _server = join(&topology.server, &headscale);
    let hosts: Vec<_> = topology
        .nodes
        .iter()
        .map(|node| join(node, &headscale))
        .collect();
    let addresses: Vec<IpAddr> = hosts
        .iter()
        .map(|host| host.tailnet_ip().unwrap().parse().unwrap())
        .collect();
    let names: Vec<String> = topology
        .nodes
        .iter()
        .map(|node| node.name().to_owned())
        .collect();
    let index_of = |node: &Node| names.iter().position(|name| name == node.name());
    let cluster = KubeCluster::with_kubelets(topology, headscale, |node, plane| {
        let address = addresses[index_of(node).unwrap()];
        Worker::start_at(node, plane, &[address]).unwrap()
    });

    cluster.helm(&["install"], &["--set", "config.tailscale.mode=host"]);
    cluster.await_nodes();
    node_ips_are_tailnet_addresses(&cluster, &addresses);
    no_address_overlap_is_reported(&cluster);
    let pods = deploy(&cluster);
    the_api_server_reaches_kubelets(&cluster, &pods);
    pods_reach_pods(&cluster, &pods);
    host_network_pods_are_reached(&cluster, &pods, &addresses);
}

/// As in docs/install.md: the host joins before the kubelet starts.
fn join(node: &Node, headscale: &Headscale) -> Tailscaled {
    let tailscaled = Tailscaled::start(node, headscale.ca_file()).unwrap();
    let join = Join {
        url: &headscale.url(),
        key: &headscale.preauth_key(NODE_TAG).unwrap(),
        advertise: &[],
    };
    tailscaled.join(&join).unwrap();
    tailscaled
}

fn node_ips_are_tailnet_addresses(cluster: &KubeCluster, addresses: &[IpAddr]) {
    for (node, address) in cluster.topology.nodes.iter().zip(addresses) {
        let object = cluster.get(&format!("/api/v1/nodes/{}", node.name()));
        let known = object["status"]["addresses"].as_array().unwrap().iter();
        let known: Vec<_> = known
            .filter(|one| one["type"] == "InternalIP")
            .map(|one| one["address"].as_str().unwrap())
            .collect();
        assert_eq!(known, [address.to_string()]);
    }
}

/// A tailnet address as node IP is not an overlap.
fn no_address_overlap_is_reported(cluster: &KubeCluster) {
    let ready: SocketAddr = "127.0.0.1:9844".parse().unwrap();
    for node in &cluster.topology.nodes {
        let what = format!("NoAddressOverlap is True on {}", node.name());
        let is_true = || {
            let answer = http_get(node, ready, "/ready").ok()?;
            let ready: Value = serde_json::from_str(&answer.body).ok()?;
            let mut conditions = ready["conditions"].as_array()?.iter();
            let found = conditions.find(|one| one["name"] == "NoAddressOverlap")?;
            (answer.status == 200 && found["status"] == "True").then_some(())
        };
        eventually(JOIN_TIMEOUT, &what, is_true)
            .unwrap_or_else(|error| panic!("{error:#}\n{}", cluster.diagnostics()));
    }
}

/// A web server on each node, and one with hostNetwork behind NAT.
fn deploy(cluster: &KubeCluster) -> Vec<Value> {
    for node in &cluster.topology.nodes {
        let mut spec = web_spec_on(node.name());
        let serve = spec["containers"][0]["command"][2].as_str().unwrap();
        spec["containers"][0]["command"][2] = json!(format!("echo on {}\n{serve}", node.name()));
        cluster.apply(&pod_object(&format!("web-{}", node.name()), "web", &spec));
        if node.name() == BEHIND {
            spec["hostNetwork"] = json!(true);
            cluster.apply(&pod_object("host", "host", &spec));
        }
    }
    cluster.await_pods("host", 1);
    let mut pods = cluster.await_pods("web", cluster.topology.nodes.len());
    pods.sort_by_key(|pod| object_name(pod).to_owned());
    pods
}

fn the_api_server_reaches_kubelets(cluster: &KubeCluster, pods: &[Value]) {
    for pod in pods {
        let node = pod["spec"]["nodeName"].as_str().unwrap();
        let paths = [
            (
                format!("/api/v1/namespaces/default/pods/{}/log", object_name(pod)),
                format!("on {node}\n"),
            ),
            (
                format!("/api/v1/nodes/{node}/proxy/healthz"),
                "ok".to_owned(),
            ),
        ];
        for (path, expected) in paths {
            let answer = cluster.plane.admin().ask("GET", &path).unwrap();
            assert_eq!((answer.status, answer.body), (200, expected), "{path}");
        }
    }
}

/// The control plane reaches Pods, as for webhooks.
fn pods_reach_pods(cluster: &KubeCluster, pods: &[Value]) {
    cluster.await_all_to_all(pods);
    for to in pods {
        for ip in pod_ips(to) {
            let what = format!("the control plane reaches {} at {ip}", object_name(to));
            let fetch = || fetch_from(&cluster.topology.server, &ip, 8080);
            cluster.await_reply(&what, fetch, |reply| reply.pod == object_name(to));
        }
    }
}

fn host_network_pods_are_reached(cluster: &KubeCluster, pods: &[Value], addresses: &[IpAddr]) {
    let host = &cluster.pods("host")[0];
    let ip = addresses[cluster.number_of(BEHIND)].to_string();
    assert_eq!(pod_ips(host), [ip.as_str()]);
    for from in pods {
        let what = format!("{} reaches the node behind NAT", object_name(from));
        let fetch = || cluster.fetch(from, &ip, 8080);
        cluster.await_reply(&what, fetch, |reply| reply.pod == BEHIND);
    }
}
