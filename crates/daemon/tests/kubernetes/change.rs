//! A cluster changes while people use it: a connection that is there stays.

use std::thread;
use std::time::Duration;

use lab::{Topology, Netns, Site, eventually_slowly};
use serde_json::{Value, json};

use crate::stream::Stream;
use crate::whole::{SOON, Whole, ips, pod, web_on};

/// How long the API server is away.
const A_MINUTE: Duration = Duration::from_mins(1);
const DAEMON_SET: &str = "/apis/apps/v1/namespaces/kube-system/daemonsets/headcni-daemon";

#[test]
fn connections_outlive_upgrades_and_changed_networks() {
    let grounds = Topology::new(&[Site::Open, Site::Open, Site::BehindNat]).unwrap();
    let mut whole = Whole::new(&grounds);
    whole.install();
    whole.await_nodes();
    let streams = [0, 1].map(|family| Stream::start(&whole, "node-1", "node-2", family));
    let mut pods = one_pod_each(&whole, "before");
    whole.await_all_to_all(&pods);

    upgrade(&whole);
    all_flow(&whole, &streams, "the daemons were upgraded");

    api_is_away(&mut whole, &pods);
    all_flow(&whole, &streams, "the API server was away");

    change_networks(&whole, "node-2");
    let spec = web_on("node-2");
    whole.apply(&pod("after-change", "changed", &spec));
    let [new] = &whole.await_pods("changed", 1)[..] else {
        panic!("one Pod")
    };
    assert!(ips(new)[0].starts_with("10.244.77."), "{:?}", ips(new));
    pods.push(new.clone());
    whole.await_all_to_all(&pods);
    all_flow(&whole, &streams, "a node has other networks");

    pods.retain(|pod| pod["spec"]["nodeName"] != "node-3");
    remove_and_add(&mut whole, 2);
    let spec = web_on("node-3");
    whole.apply(&pod("after-return", "returned", &spec));
    pods.extend(whole.await_pods("returned", 1));
    whole.await_all_to_all(&pods);
    all_flow(&whole, &streams, "another node was removed and added");

    whole
        .helm
        .run(&["uninstall", "headcni"])
        .unwrap_or_else(|error| panic!("{error:#}\n{}", whole.told()));
    nothing_is_left(&whole);
}

fn all_flow(whole: &Whole<'_>, streams: &[Stream], after: &str) {
    for stream in streams {
        stream.flows(whole, after);
    }
}

fn one_pod_each(whole: &Whole<'_>, app: &str) -> Vec<Value> {
    for node in &whole.grounds.nodes {
        let spec = web_on(node.name());
        whole.apply(&pod(&format!("{app}-{}", node.name()), app, &spec));
    }
    whole.await_pods(app, whole.grounds.nodes.len())
}

/// A new version of the image, and so of all that runs on the nodes.
fn upgrade(whole: &Whole<'_>) {
    whole.helm(&["upgrade"], &["--set", "image.tag=0.1.1"]);
    eventually_slowly(SOON, "every node has the new version", || {
        let set = whole.get(DAEMON_SET);
        let status = &set["status"];
        let all = whole.grounds.nodes.len();
        let is_done = status["observedGeneration"] == set["metadata"]["generation"]
            && status["updatedNumberScheduled"] == all
            && status["numberReady"] == all;
        is_done.then_some(())
    })
    .unwrap_or_else(|error| panic!("{error:#}\n{}", whole.told()));
}

fn api_is_away(whole: &mut Whole<'_>, pods: &[Value]) {
    whole.plane.stop().unwrap();
    thread::sleep(A_MINUTE);
    whole.await_all_to_all(pods);
    whole.plane.resume().unwrap();
    whole.await_nodes();
    let now = whole.await_pods("before", pods.len());
    let ids = |pods: &[Value]| {
        let ids = pods
            .iter()
            .map(|pod| pod["status"]["containerStatuses"].clone());
        json!(ids.collect::<Vec<_>>())
    };
    assert_eq!(ids(&now), ids(pods), "containers run on");
}

/// Kubernetes lets nobody change the networks of a Node, but a Node can be made anew.
fn change_networks(whole: &Whole<'_>, node: &str) {
    let path = format!("/api/v1/nodes/{node}");
    let old = whole.get(&path);
    whole.plane.admin().delete(&path).unwrap();
    let new = json!({
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": { "name": node, "labels": old["metadata"]["labels"] },
        "spec": {
            "podCIDR": "10.244.77.0/24",
            "podCIDRs": ["10.244.77.0/24", "fd00:10:244:77::/64"],
        },
    });
    // The kubelet may have been faster, but then it has got networks from the controllers.
    eventually_slowly(SOON, "a Node with other networks", || {
        let _ = whole.plane.admin().post("/api/v1/nodes", &new);
        let now = whole.plane.admin().get(&path).ok()?;
        if now["spec"]["podCIDR"] == "10.244.77.0/24" {
            return Some(());
        }
        let _ = whole.plane.admin().delete(&path);
        None
    })
    .unwrap();
    whole.await_node(node);
    eventually_slowly(SOON, "the Node says its new networks", || {
        let now = whole.get(&path);
        let said = now["metadata"]["annotations"]["headcni.io/pod-cidrs"].as_str()?;
        said.contains("10.244.77.0/24").then_some(())
    })
    .unwrap_or_else(|error| panic!("{error:#}: {:#}\n{}", whole.get(&path), whole.told()));
}

/// As after `kubectl delete node`, and a repair.
fn remove_and_add(whole: &mut Whole<'_>, index: usize) {
    let node = whole.grounds.nodes[index].name().to_owned();
    let path = format!("/api/v1/nodes/{node}");
    whole.workers[index].stop_kubelet().unwrap();
    whole.plane.admin().delete(&path).unwrap();
    eventually_slowly(SOON, "its Pods are forgotten", || {
        let pods = whole.get("/api/v1/namespaces/default/pods");
        let mut pods = pods["items"].as_array()?.iter();
        (!pods.any(|pod| pod["spec"]["nodeName"] == node.as_str())).then_some(())
    })
    .unwrap();
    whole.workers[index].resume_kubelet().unwrap();
    whole.await_node(&node);
}

/// Neither on the nodes, nor at Headscale, nor in the API.
fn nothing_is_left(whole: &Whole<'_>) {
    for node in &whole.grounds.nodes {
        whole.check_is_clean(node);
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
    let members = whole
        .headscale
        .cli(["nodes", "list", "-o", "json"])
        .unwrap();
    assert!(members.as_array().is_none_or(Vec::is_empty), "{members:#}");
}
