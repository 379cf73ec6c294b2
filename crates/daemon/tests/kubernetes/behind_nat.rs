//! Nodes that are known by their address in the mesh, because one of them can't be called otherwise.

use std::net::{IpAddr, SocketAddr};

use lab::kubernetes::Worker;
use lab::{Topology, Headscale, JOIN_TIMEOUT, Join, Node, Site, TAG, Tailscaled, eventually, http_get};
use serde_json::{Value, json};

use crate::whole::{Whole, ask_from, ips, name, pod, start_headscale, web_on};

const BEHIND: &str = "node-2";

#[test]
fn a_node_behind_nat_is_known_by_its_address_in_the_mesh() {
    let grounds = Topology::new(&[Site::Open, Site::BehindNat]).unwrap();
    let headscale = start_headscale(&grounds);
    // The API server's node is a member, too: it has to reach kubelets.
    let _server = join(&grounds.server, &headscale);
    let hosts: Vec<_> = grounds
        .nodes
        .iter()
        .map(|node| join(node, &headscale))
        .collect();
    let addresses: Vec<IpAddr> = hosts
        .iter()
        .map(|host| host.address().unwrap().parse().unwrap())
        .collect();
    let of = |node: &Node| {
        grounds
            .nodes
            .iter()
            .position(|one| one.name() == node.name())
    };
    let whole = Whole::of(&grounds, headscale, |node, plane| {
        let address = addresses[of(node).unwrap()];
        Worker::start_at(node, plane, &[address]).unwrap()
    });

    whole.helm(&["install"], &["--set", "config.tailscale.mode=host"]);
    whole.await_nodes();
    nodes_have_the_address_of_the_mesh(&whole, &addresses);
    addresses_are_apart(&whole);
    let pods = deploy(&whole);
    the_api_server_reaches_kubelets(&whole, &pods);
    pods_reach_pods(&whole, &pods);
    pods_in_the_hosts_network_are_reached(&whole, &pods, &addresses);
}

/// As docs/install.md says: a person joins the machine before Kubernetes does anything.
fn join<'a>(node: &'a Node, headscale: &Headscale) -> Tailscaled {
    let tailscaled = Tailscaled::start(node, headscale.ca_file()).unwrap();
    let join = Join {
        url: &headscale.url(),
        key: &headscale.preauth_key(TAG).unwrap(),
        advertise: &[],
    };
    tailscaled.join(&join).unwrap();
    tailscaled
}

fn nodes_have_the_address_of_the_mesh(whole: &Whole<'_>, addresses: &[IpAddr]) {
    for (node, address) in whole.grounds.nodes.iter().zip(addresses) {
        let object = whole.get(&format!("/api/v1/nodes/{}", node.name()));
        let known = object["status"]["addresses"].as_array().unwrap().iter();
        let known: Vec<_> = known
            .filter(|one| one["type"] == "InternalIP")
            .map(|one| one["address"].as_str().unwrap())
            .collect();
        assert_eq!(known, [address.to_string()]);
    }
}

/// The nodes' address is in the mesh's own network, and that is as it should be.
fn addresses_are_apart(whole: &Whole<'_>) {
    let ready: SocketAddr = "127.0.0.1:9844".parse().unwrap();
    for node in &whole.grounds.nodes {
        let what = format!("AddressesApart holds on {}", node.name());
        let holds = || {
            let answer = http_get(node, ready, "/ready").ok()?;
            let said: Value = serde_json::from_str(&answer.body).ok()?;
            let mut conditions = said["conditions"].as_array()?.iter();
            let found = conditions.find(|one| one["name"] == "AddressesApart")?;
            (answer.status == 200 && found["status"] == "True").then_some(())
        };
        eventually(JOIN_TIMEOUT, &what, holds)
            .unwrap_or_else(|error| panic!("{error:#}\n{}", whole.told()));
    }
}

/// A web server on each node, and one in the network of the node behind NAT.
fn deploy(whole: &Whole<'_>) -> Vec<Value> {
    for node in &whole.grounds.nodes {
        let mut spec = web_on(node.name());
        let serve = spec["containers"][0]["command"][2].as_str().unwrap();
        spec["containers"][0]["command"][2] = json!(format!("echo on {}\n{serve}", node.name()));
        whole.apply(&pod(&format!("web-{}", node.name()), "web", &spec));
        if node.name() == BEHIND {
            spec["hostNetwork"] = json!(true);
            whole.apply(&pod("host", "host", &spec));
        }
    }
    whole.await_pods("host", 1);
    let mut pods = whole.await_pods("web", whole.grounds.nodes.len());
    pods.sort_by_key(|pod| name(pod).to_owned());
    pods
}

fn the_api_server_reaches_kubelets(whole: &Whole<'_>, pods: &[Value]) {
    for pod in pods {
        let node = pod["spec"]["nodeName"].as_str().unwrap();
        let paths = [
            (
                format!("/api/v1/namespaces/default/pods/{}/log", name(pod)),
                format!("on {node}\n"),
            ),
            (
                format!("/api/v1/nodes/{node}/proxy/healthz"),
                "ok".to_owned(),
            ),
        ];
        for (path, expected) in paths {
            let answer = whole.plane.admin().ask("GET", &path).unwrap();
            assert_eq!((answer.status, answer.body), (200, expected), "{path}");
        }
    }
}

/// So do the API server's webhooks.
fn pods_reach_pods(whole: &Whole<'_>, pods: &[Value]) {
    whole.await_all_to_all(pods);
    for to in pods {
        for ip in ips(to) {
            let what = format!("the control plane reaches {} at {ip}", name(to));
            let ask = || ask_from(&whole.grounds.server, &ip, 8080);
            whole.await_answer(&what, ask, |answer| answer.by == name(to));
        }
    }
}

fn pods_in_the_hosts_network_are_reached(whole: &Whole<'_>, pods: &[Value], addresses: &[IpAddr]) {
    let host = &whole.pods("host")[0];
    let ip = addresses[whole.number_of(BEHIND)].to_string();
    assert_eq!(ips(host), [ip.as_str()]);
    for from in pods {
        let what = format!("{} reaches the node behind NAT", name(from));
        let ask = || whole.ask(from, &ip, 8080);
        whole.await_answer(&what, ask, |answer| answer.by == BEHIND);
    }
}
