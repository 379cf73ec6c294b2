//! A cluster changes while a TCP connection between Pods is open.

use std::thread;
use std::time::Duration;

use lab::scenario::{KUBE_TIMEOUT, KubeCluster, Site, pod_ips, pod_object, web_spec_on};
use lab::{Netns, eventually_slowly};
use serde_json::{Value, json};

use crate::tcp_stream::TcpStream;

const API_OUTAGE: Duration = Duration::from_mins(1);
const DAEMON_SET: &str = "/apis/apps/v1/namespaces/kube-system/daemonsets/headcni-daemon";

#[test]
fn tcp_connections_survive_upgrades_api_outages_and_changed_pod_cidrs() {
    let mut cluster = KubeCluster::prepare_at(&[Site::Open, Site::Open, Site::BehindNat]);
    cluster.install();
    cluster.await_nodes();
    let streams = [0, 1].map(|family| TcpStream::start(&cluster, "node-1", "node-2", family));
    let mut pods = one_pod_each(&cluster, "before");
    cluster.await_all_to_all(&pods);

    upgrade(&cluster);
    assert_all_flow(&cluster, &streams, "the upgrade of the daemons");

    api_outage(&mut cluster, &pods);
    assert_all_flow(&cluster, &streams, "an API outage");

    change_pod_cidrs(&cluster, "node-2");
    let spec = web_spec_on("node-2");
    cluster.apply(&pod_object("after-change", "changed", &spec));
    let [new] = &cluster.await_pods("changed", 1)[..] else {
        panic!("one Pod")
    };
    assert!(
        pod_ips(new)[0].starts_with("10.244.77."),
        "{:?}",
        pod_ips(new)
    );
    pods.push(new.clone());
    cluster.await_all_to_all(&pods);
    assert_all_flow(&cluster, &streams, "a change of a pod CIDR");

    pods.retain(|pod| pod["spec"]["nodeName"] != "node-3");
    remove_and_add(&mut cluster, 2);
    let spec = web_spec_on("node-3");
    cluster.apply(&pod_object("after-return", "returned", &spec));
    pods.extend(cluster.await_pods("returned", 1));
    cluster.await_all_to_all(&pods);
    assert_all_flow(&cluster, &streams, "the replacement of another node");

    cluster
        .helm
        .run(&["uninstall", "headcni"])
        .unwrap_or_else(|error| panic!("{error:#}\n{}", cluster.diagnostics()));
    assert_nothing_left(&cluster);
}

fn assert_all_flow(cluster: &KubeCluster, streams: &[TcpStream], after: &str) {
    for stream in streams {
        stream.assert_flows(cluster, after);
    }
}

fn one_pod_each(cluster: &KubeCluster, app: &str) -> Vec<Value> {
    for node in &cluster.topology.nodes {
        let spec = web_spec_on(node.name());
        cluster.apply(&pod_object(&format!("{app}-{}", node.name()), app, &spec));
    }
    cluster.await_pods(app, cluster.topology.nodes.len())
}

/// Upgrades the image.
fn upgrade(cluster: &KubeCluster) {
    cluster.helm(&["upgrade"], &["--set", "image.tag=0.1.1"]);
    eventually_slowly(KUBE_TIMEOUT, "every node has the new version", || {
        let set = cluster.get(DAEMON_SET);
        let status = &set["status"];
        let all = cluster.topology.nodes.len();
        let is_done = status["observedGeneration"] == set["metadata"]["generation"]
            && status["updatedNumberScheduled"] == all
            && status["numberReady"] == all;
        is_done.then_some(())
    })
    .unwrap_or_else(|error| panic!("{error:#}\n{}", cluster.diagnostics()));
}

fn api_outage(cluster: &mut KubeCluster, pods: &[Value]) {
    cluster.plane.stop().unwrap();
    thread::sleep(API_OUTAGE);
    cluster.await_all_to_all(pods);
    cluster.plane.resume().unwrap();
    cluster.await_nodes();
    let now = cluster.await_pods("before", pods.len());
    let ids = |pods: &[Value]| {
        let ids = pods
            .iter()
            .map(|pod| pod["status"]["containerStatuses"].clone());
        json!(ids.collect::<Vec<_>>())
    };
    assert_eq!(ids(&now), ids(pods), "containers keep running");
}

/// The pod CIDRs of a Node are immutable, so the Node is recreated.
fn change_pod_cidrs(cluster: &KubeCluster, node: &str) {
    let path = format!("/api/v1/nodes/{node}");
    let old = cluster.get(&path);
    cluster.plane.admin().delete(&path).unwrap();
    let new = json!({
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": { "name": node, "labels": old["metadata"]["labels"] },
        "spec": {
            "podCIDR": "10.244.77.0/24",
            "podCIDRs": ["10.244.77.0/24", "fd00:10:244:77::/64"],
        },
    });
    // The kubelet may be faster; then the controllers assign other CIDRs.
    eventually_slowly(KUBE_TIMEOUT, "a Node with other pod CIDRs", || {
        let _ = cluster.plane.admin().post("/api/v1/nodes", &new);
        let now = cluster.plane.admin().get(&path).ok()?;
        if now["spec"]["podCIDR"] == "10.244.77.0/24" {
            return Some(());
        }
        let _ = cluster.plane.admin().delete(&path);
        None
    })
    .unwrap();
    cluster.await_node(node);
    eventually_slowly(
        KUBE_TIMEOUT,
        "the Node is annotated with its new pod CIDRs",
        || {
            let now = cluster.get(&path);
            let cidrs = now["metadata"]["annotations"]["headcni.io/pod-cidrs"].as_str()?;
            cidrs.contains("10.244.77.0/24").then_some(())
        },
    )
    .unwrap_or_else(|error| {
        panic!(
            "{error:#}: {:#}\n{}",
            cluster.get(&path),
            cluster.diagnostics()
        )
    });
}

/// `kubectl delete node`, and the node registers again.
fn remove_and_add(cluster: &mut KubeCluster, index: usize) {
    let node = cluster.topology.nodes[index].name().to_owned();
    let path = format!("/api/v1/nodes/{node}");
    cluster.workers[index].stop_kubelet().unwrap();
    cluster.plane.admin().delete(&path).unwrap();
    eventually_slowly(KUBE_TIMEOUT, "its Pods are deleted", || {
        let pods = cluster.get("/api/v1/namespaces/default/pods");
        let mut pods = pods["items"].as_array()?.iter();
        (!pods.any(|pod| pod["spec"]["nodeName"] == node.as_str())).then_some(())
    })
    .unwrap();
    cluster.workers[index].resume_kubelet().unwrap();
    cluster.await_node(&node);
}

/// On the nodes, in Headscale and in the API.
fn assert_nothing_left(cluster: &KubeCluster) {
    for node in &cluster.topology.nodes {
        cluster.assert_clean(node);
        let tables = node.run(["nft", "list", "tables"]).unwrap().stdout;
        assert!(!tables.contains("headcni"), "{}: {tables}", node.name());
        let routes = node.run(["ip", "route", "show", "table", "all"]).unwrap();
        assert!(
            !routes.stdout.contains("26723"),
            "{}: {}",
            node.name(),
            routes.stdout
        );
        let links = node.links().unwrap();
        assert!(
            !links.iter().any(|link| link.starts_with("headcni")),
            "{links:?}"
        );
    }
    let nodes = cluster
        .headscale
        .cli(["nodes", "list", "-o", "json"])
        .unwrap();
    assert!(nodes.as_array().is_none_or(Vec::is_empty), "{nodes:#}");
}
