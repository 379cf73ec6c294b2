//! The control plane.

use std::net::TcpStream;
use std::path::PathBuf;
use std::thread;
use std::time::Duration;

use ipnet::IpNet;
use lab::kubernetes::{ControlPlane, User};
use lab::scenario::CLUSTER_CIDRS;
use lab::{Netns, Node, Underlay, eventually};
use serde_json::{Value, json};

const TIMEOUT: Duration = Duration::from_secs(30);

fn create_node(admin: &User, name: &str) {
    let node = json!({ "apiVersion": "v1", "kind": "Node", "metadata": { "name": name } });
    admin.apply(&node).unwrap();
}

/// The pod CIDRs that the controllers assigned.
fn pod_cidrs(admin: &User, name: &str) -> Vec<IpNet> {
    let cidrs = eventually(TIMEOUT, "the Node has PodCIDRs", || {
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
    create_node(plane.admin(), "node-1");
    let assigned = pod_cidrs(plane.admin(), "node-1");
    let sizes: Vec<_> = assigned.iter().map(IpNet::prefix_len).collect();
    assert_eq!(sizes, [24, 64]);
    for (network, cidr) in CLUSTER_CIDRS.iter().zip(&assigned) {
        assert!(network.contains(cidr), "{cidr} is not in {network}");
    }

    plane.stop().unwrap();
    let refused = plane.admin().get("/api/v1/nodes").unwrap_err();
    assert!(format!("{refused:#}").contains("refused"), "{refused:#}");
    plane.resume().unwrap();
    assert_eq!(pod_cidrs(plane.admin(), "node-1"), assigned);

    // The controllers have reconnected.
    create_node(plane.admin(), "node-2");
    let others = pod_cidrs(plane.admin(), "node-2");
    assert!(assigned.iter().all(|cidr| !others.contains(cidr)));

    plane.freeze();
    plane.admin().get("/api/v1/nodes").unwrap_err();
    plane.thaw();
    plane.admin().get("/api/v1/nodes").unwrap();

    plane.admin().delete("/api/v1/nodes/node-1").unwrap();
    let gone = plane.admin().ask("GET", "/api/v1/nodes/node-1").unwrap();
    assert_eq!(gone.status, 404);
}

#[test]
fn two_control_planes_are_independent_and_reachable_from_other_nodes() {
    let start = |name: &'static str| {
        move || {
            let underlay = Underlay::new().unwrap();
            let [server, client] = ["control-plane", "client"].map(|node| {
                let node = Node::new(node).unwrap();
                underlay.plug(&node).unwrap();
                node
            });
            let plane = ControlPlane::start(&server).unwrap();
            create_node(plane.admin(), name);
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
fn drop_removes_all_processes_and_files() {
    let node = Node::new("control-plane").unwrap();
    let plane = ControlPlane::start(&node).unwrap();
    let dir: PathBuf = plane.ca_file().parent().unwrap().to_owned();
    let listening = || node.run(["ss", "-Hltn"]).unwrap().stdout;
    assert!(dir.join("etcd").exists());
    assert!(listening().contains(":6443"));
    drop(plane);
    assert!(!dir.exists(), "{} remains", dir.display());
    assert_eq!(listening(), "");
}
