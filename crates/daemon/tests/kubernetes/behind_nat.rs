//! Nodes that are known by their address in the mesh, because one of them can't be called otherwise.

use std::net::{IpAddr, SocketAddr};

use lab::kubernetes::Worker;
use lab::scenario::{JOIN_TIMEOUT, KubeCluster, NODE_TAG, Site, Topology, fetch_from, object_name, pod_ips, pod_object, web_spec_on};
use lab::{Headscale, Join, Node, Tailscaled, eventually, http_get};
use serde_json::{Value, json};


const BEHIND: &str = "node-2";

#[test]
fn a_node_behind_nat_is_known_by_its_address_in_the_mesh() {
    let grounds = Topology::new(&[Site::Open, Site::BehindNat]).unwrap();
    let headscale = start_headscale(&grounds);
    // The API server's node is a node, too: it has to reach kubelets.
    let _server = join(&grounds.server, &headscale);
    let hosts: Vec<_> = grounds
        .nodes
        .iter()
        .map(|node| join(node, &headscale))
        .collect();
    let addresses: Vec<IpAddr> = hosts
        .iter()
        .map(|host| host.tailnet_ip().unwrap().parse().unwrap())
        .collect();
    let of = |node: &Node| {
        grounds
            .nodes
            .iter()
            .position(|one| one.name() == node.name())
    };
    let cluster = KubeCluster::of(&grounds, headscale, |node, plane| {
        let address = addresses[of(node).unwrap()];
        Worker::start_at(node, plane, &[address]).unwrap()
    });

    cluster.helm(&["install"], &["--set", "config.tailscale.mode=host"]);
    cluster.await_nodes();
    nodes_have_the_address_of_the_mesh(&cluster, &addresses);
    addresses_are_apart(&cluster);
    let pods = deploy(&cluster);
    the_api_server_reaches_kubelets(&cluster, &pods);
    pods_reach_pods(&cluster, &pods);
    pods_in_the_hosts_network_are_reached(&cluster, &pods, &addresses);
}

/// As docs/install.md says: a person joins the machine before Kubernetes does anything.
fn join<'a>(node: &'a Node, headscale: &Headscale) -> Tailscaled {
    let tailscaled = Tailscaled::start(node, headscale.ca_file()).unwrap();
    let join = Join {
        url: &headscale.url(),
        key: &headscale.preauth_key(NODE_TAG).unwrap(),
        advertise: &[],
    };
    tailscaled.join(&join).unwrap();
    tailscaled
}

fn nodes_have_the_address_of_the_mesh(cluster: &KubeCluster, addresses: &[IpAddr]) {
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

/// The nodes' address is in the mesh's own network, and that is as it should be.
fn addresses_are_apart(cluster: &KubeCluster) {
    let ready: SocketAddr = "127.0.0.1:9844".parse().unwrap();
    for node in &cluster.topology.nodes {
        let what = format!("NoAddressOverlap holds on {}", node.name());
        let holds = || {
            let answer = http_get(node, ready, "/ready").ok()?;
            let said: Value = serde_json::from_str(&answer.body).ok()?;
            let mut conditions = said["conditions"].as_array()?.iter();
            let found = conditions.find(|one| one["name"] == "NoAddressOverlap")?;
            (answer.status == 200 && found["status"] == "True").then_some(())
        };
        eventually(JOIN_TIMEOUT, &what, holds)
            .unwrap_or_else(|error| panic!("{error:#}\n{}", cluster.diagnostics()));
    }
}

/// A web server on each node, and one in the network of the node behind NAT.
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

/// So do the API server's webhooks.
fn pods_reach_pods(cluster: &KubeCluster, pods: &[Value]) {
    cluster.await_all_to_all(pods);
    for to in pods {
        for ip in pod_ips(to) {
            let what = format!("the control plane reaches {} at {ip}", object_name(to));
            let ask = || fetch_from(&cluster.topology.server, &ip, 8080);
            cluster.await_reply(&what, ask, |reply| reply.pod == object_name(to));
        }
    }
}

fn pods_in_the_hosts_network_are_reached(cluster: &KubeCluster, pods: &[Value], addresses: &[IpAddr]) {
    let host = &cluster.pods("host")[0];
    let ip = addresses[cluster.number_of(BEHIND)].to_string();
    assert_eq!(pod_ips(host), [ip.as_str()]);
    for from in pods {
        let what = format!("{} reaches the node behind NAT", object_name(from));
        let ask = || cluster.fetch(from, &ip, 8080);
        cluster.await_reply(&what, ask, |reply| reply.pod == BEHIND);
    }
}
