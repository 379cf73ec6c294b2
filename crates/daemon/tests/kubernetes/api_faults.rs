//! What others do to this node's object, and what becomes of the API, is got over.

use std::thread;
use std::time::Duration;

use lab::kubernetes::{ControlPlane, PORT};
use lab::scenario::{JOIN_TIMEOUT, MeshCluster, MeshNode};
use lab::eventually;
use serde_json::json;


const NODE: &str = "/api/v1/nodes/node-1";
/// Longer than a daemon takes to look at its Node's words several times.
const A_WHILE: Duration = Duration::from_secs(10);

#[test]
fn a_daemon_gets_over_what_others_do_to_its_node_and_to_the_api() {
    let mut cluster = MeshCluster::prepare(1);
    let mut plane = ControlPlane::start(&grounds.server).unwrap();
    let user = account(&plane);
    let url = cluster.headscale.url();
    let node = &mut cluster.nodes[0];
    configure(node, &url, &user);
    post(&plane);
    node.start_daemon().unwrap();
    node.await_ready(JOIN_TIMEOUT).unwrap();
    says_what_it_has(&plane, "node-1");
    a_namespace_that_goes_is_a_sign(&plane, node);
    // Nobody but the daemon and this test changes the Node from here on.
    plane.stop_controllers().unwrap();

    let by_hand = json!({ "metadata": { "annotations": {
        "headcni.io/pod-cidrs": "10.244.99.0/24",
        "headcni.io/mesh": null,
    } } });
    plane.admin().patch(NODE, &by_hand).unwrap();
    says_what_it_has(&plane, "node-1");

    let no_conditions = json!({ "status": { "conditions": [] } });
    plane
        .admin()
        .patch(&format!("{NODE}/status"), &no_conditions)
        .unwrap();
    says_what_it_has(&plane, "node-1");

    // As a kubelet does that registers again.
    plane.admin().delete(NODE).unwrap();
    post(&plane);
    says_what_it_has(&plane, "node-1");

    let before = patches(&plane);
    thread::sleep(A_WHILE);
    assert_eq!(
        patches(&plane),
        before,
        "a Node that says all is left alone"
    );

    is_cut_off_and_back(node);
    starts_while_the_api_is_frozen(&plane, node);
}

fn post(plane: &ControlPlane) {
    let networks = ["10.244.1.0/24", "fd00:10:244:1::/64"];
    let node = json!({
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": { "name": "node-1" },
        "spec": { "podCIDR": networks[0], "podCIDRs": networks },
    });
    plane.admin().apply(&node).unwrap();
}

/// Its pods may have gone, and nobody told: everything is looked at.
fn a_namespace_that_goes_is_a_sign(plane: &ControlPlane, node: &MeshNode) {
    let namespace =
        json!({ "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": "shop" } });
    plane.admin().apply(&namespace).unwrap();
    let counts = |pods: u32| {
        let line = format!("headcni_pods {pods}");
        let metrics = node.get("/metrics").unwrap().body;
        metrics.lines().any(|it| it == line)
    };
    let _pod = node.pod("p").unwrap();
    eventually(JOIN_TIMEOUT, "the pod is known", || counts(1).then_some(())).unwrap();
    // What a daemon looks at after its start is looked at.
    thread::sleep(A_WHILE);
    // Without its last line, the record tells of a pod that is being made. Nobody tells the daemon.
    let cut = "sed -i '$d' $(find /var/lib/cni/headcni -name '*.json')";
    node.sh(cut).unwrap();
    thread::sleep(A_WHILE);
    assert!(
        counts(1),
        "it is not looked at without a reason: {}",
        node.diagnostics()
    );
    plane.admin().delete("/api/v1/namespaces/shop").unwrap();
    eventually(JOIN_TIMEOUT, "everything is looked at", || {
        counts(0).then_some(())
    })
    .unwrap_or_else(|error| panic!("{error:#}\n{}", node.diagnostics()));
}

/// How many requests have changed Nodes, or would have if there had been something to change.
fn patches(plane: &ControlPlane) -> u64 {
    let metrics = plane.admin().ask("GET", "/metrics").unwrap().body;
    let of_nodes = metrics.lines().filter(|line| {
        line.starts_with("apiserver_request_total{")
            && line.contains("resource=\"nodes\"")
            && line.contains("verb=\"PATCH\"")
    });
    let count = |line: &str| line.rsplit_once(' ')?.1.parse::<u64>().ok();
    let all: Option<u64> = of_nodes.map(count).sum();
    all.filter(|all| *all > 0).unwrap()
}

/// The network is away for a moment, and watches go on where they ended. Nothing happens in a cluster that is so
/// small, so no event says that the API is back.
fn is_cut_off_and_back(node: &MeshNode) {
    let is = |holds| node.await_condition("KubernetesReachable", holds, JOIN_TIMEOUT);
    let cut = format!(
        "nft 'add table inet cut; \
              add chain inet cut out {{ type filter hook output priority 0; }}; \
              add rule inet cut out tcp dport {PORT} reject with tcp reset'
         ss -K dport = {PORT}"
    );
    node.sh(&cut).unwrap();
    is(false).unwrap();
    node.sh("nft delete table inet cut").unwrap();
    is(true).unwrap();
}

/// Its connections are accepted, and then nobody answers.
fn starts_while_the_api_is_frozen(plane: &ControlPlane, node: &mut MeshNode) {
    plane.freeze();
    node.stop_daemon().unwrap();
    node.start_daemon().unwrap();
    node.await_ready(JOIN_TIMEOUT).unwrap();
    let is = |holds| node.await_condition("KubernetesReachable", holds, JOIN_TIMEOUT);
    is(false).unwrap();
    plane.thaw();
    is(true).unwrap();
    says_what_it_has(plane, "node-1");
}
