//! What it knows, what it does, and what is left of it.

use std::net::TcpStream;
use std::path::PathBuf;
use std::thread;
use std::time::Duration;

use ipnet::IpNet;
use lab::kubernetes::{ControlPlane, User};
use lab::scenario::{CLUSTER_CIDRS};
use lab::{Netns, Node, Underlay, eventually};
use serde_json::{Value, json};

const SOON: Duration = Duration::from_secs(30);

fn post_node(admin: &User, name: &str) {
    let node = json!({ "apiVersion": "v1", "kind": "Node", "metadata": { "name": name } });
    admin.apply(&node).unwrap();
}

/// What the controllers have given a Node.
fn pod_cidrs(admin: &User, name: &str) -> Vec<IpNet> {
    let cidrs = eventually(SOON, "the Node has PodCIDRs", || {
        let node = admin.get(&format!("/api/v1/nodes/{name}")).unwrap();
        node["spec"]["podCIDRs"].as_array().cloned()
    });
    let parse = |cidr: &Value| cidr.as_str().unwrap().parse().unwrap();
    cidrs.unwrap().iter().map(parse).collect()
}

#[test]
fn a_node_has_pod_cidrs_of_both_families_which_survive_the_api_server() {
    let node = Node::new("control-plane").unwrap();
    let mut plane = ControlPlane::start(&node).unwrap();
    assert_eq!(plane.url(), "https://127.0.0.1:6443");
    post_node(plane.admin(), "node-1");
    let given = pod_cidrs(plane.admin(), "node-1");
    let sizes: Vec<_> = given.iter().map(IpNet::prefix_len).collect();
    assert_eq!(sizes, [24, 64]);
    for (network, cidr) in CLUSTER_CIDRS.iter().zip(&given) {
        assert!(network.contains(cidr), "{cidr} is not of {network}");
    }

    plane.stop().unwrap();
    let refused = plane.admin().get("/api/v1/nodes").unwrap_err();
    assert!(format!("{refused:#}").contains("refused"), "{refused:#}");
    plane.resume().unwrap();
    assert_eq!(pod_cidrs(plane.admin(), "node-1"), given);

    // The controllers have found it again, too.
    post_node(plane.admin(), "node-2");
    let others = pod_cidrs(plane.admin(), "node-2");
    assert!(given.iter().all(|cidr| !others.contains(cidr)));

    plane.freeze();
    plane.admin().get("/api/v1/nodes").unwrap_err();
    plane.thaw();
    plane.admin().get("/api/v1/nodes").unwrap();

    plane.admin().delete("/api/v1/nodes/node-1").unwrap();
    let gone = plane.admin().ask("GET", "/api/v1/nodes/node-1").unwrap();
    assert_eq!(gone.status, 404);
}

#[test]
fn two_at_once_know_nothing_of_each_other_and_others_reach_theirs() {
    let start = |name: &'static str| {
        move || {
            let underlay = Underlay::new().unwrap();
            let [server, client] = ["control-plane", "client"].map(|node| {
                let node = Node::new(node).unwrap();
                underlay.plug(&node).unwrap();
                node
            });
            let plane = ControlPlane::start(&server).unwrap();
            post_node(plane.admin(), name);
            let nodes = plane.admin().get("/api/v1/nodes").unwrap();
            let names: Vec<_> = nodes["items"]
                .as_array()
                .unwrap()
                .iter()
                .map(|node| node["metadata"]["name"].clone())
                .collect();
            assert_eq!(names, [name]);
            assert_eq!(plane.url(), "https://10.99.0.11:6443");
            let connect = || TcpStream::connect("10.99.0.11:6443").map(drop);
            client.enter(connect).unwrap().unwrap();
        }
    };
    thread::scope(|scope| {
        let others = scope.spawn(start("theirs"));
        start("ours")();
        others.join().unwrap();
    });
}

#[test]
fn nothing_is_left_of_one_that_is_dropped() {
    let node = Node::new("control-plane").unwrap();
    let plane = ControlPlane::start(&node).unwrap();
    let dir: PathBuf = plane.ca_file().parent().unwrap().to_owned();
    let listening = || node.run(["ss", "-Hltn"]).unwrap().stdout;
    assert!(dir.join("etcd").exists());
    assert!(listening().contains(":6443"));
    drop(plane);
    assert!(!dir.exists(), "{} is left", dir.display());
    assert_eq!(listening(), "");
}
