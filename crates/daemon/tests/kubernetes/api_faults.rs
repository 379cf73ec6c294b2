//! The Node object is changed by others, and the API server fails.

use std::thread;
use std::time::Duration;

use lab::eventually;
use lab::kubernetes::{ControlPlane, PORT};
use lab::scenario::{JOIN_TIMEOUT, KubeApi, MeshCluster, MeshNode};
use serde_json::json;

use crate::documented_rules;

const NODE: &str = "/api/v1/nodes/node-1";
/// Longer than several reconciles of the Node.
const SEVERAL_RECONCILES: Duration = Duration::from_secs(10);

#[test]
fn the_daemon_recovers_from_changes_of_its_node_and_api_outages() {
    let mut cluster = MeshCluster::prepare(1);
    let mut api = KubeApi::start(&cluster, &documented_rules());
    let url = cluster.headscale.url();
    let node = &mut cluster.nodes[0];
    api.configure(node, &url);
    create_node(&api);
    node.start_daemon().unwrap();
    node.await_ready(JOIN_TIMEOUT).unwrap();
    api.await_node_patched("node-1");
    // Past the resync that follows a start.
    thread::sleep(SEVERAL_RECONCILES);
    a_deleted_namespace_triggers_a_resync(&api, node);
    // From here on only the daemon and this test change objects.
    api.plane.stop_controllers().unwrap();
    a_pod_event_triggers_a_resync(&api, node);

    let by_hand = json!({ "metadata": { "annotations": {
        "headcni.io/pod-cidrs": "10.244.99.0/24",
        "headcni.io/mesh": null,
    } } });
    api.plane.admin().patch(NODE, &by_hand).unwrap();
    api.await_node_patched("node-1");

    let no_conditions = json!({ "status": { "conditions": [] } });
    api.plane
        .admin()
        .patch(&format!("{NODE}/status"), &no_conditions)
        .unwrap();
    api.await_node_patched("node-1");

    // As a kubelet does that registers again.
    api.plane.admin().delete(NODE).unwrap();
    create_node(&api);
    api.await_node_patched("node-1");

    let before = patches(&api.plane);
    thread::sleep(SEVERAL_RECONCILES);
    assert_eq!(
        patches(&api.plane),
        before,
        "an up-to-date Node is not patched"
    );

    assert_reachable_again_after_a_cut(node);
    assert_ready_with_a_frozen_api(&api, node);
}

fn create_node(api: &KubeApi) {
    let cidrs = ["10.244.1.0/24", "fd00:10:244:1::/64"];
    let node = json!({
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": { "name": "node-1" },
        "spec": { "podCIDR": cidrs[0], "podCIDRs": cidrs },
    });
    api.plane.admin().apply(&node).unwrap();
}

/// Pods of the namespace may have ended without a DEL event.
fn a_deleted_namespace_triggers_a_resync(api: &KubeApi, node: &MeshNode) {
    let namespace =
        json!({ "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": "shop" } });
    api.plane.admin().apply(&namespace).unwrap();
    assert_resync(node, "p", || {
        api.plane.admin().delete("/api/v1/namespaces/shop").unwrap();
    });
}

/// The daemon watches the Pods of its own node only.
fn a_pod_event_triggers_a_resync(api: &KubeApi, node: &MeshNode) {
    let create = |name: &str, on: &str| {
        let pod = json!({
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": { "name": name, "namespace": "default" },
            "spec": { "nodeName": on, "containers": [{ "name": "c", "image": "none" }] },
        });
        api.plane.admin().apply(&pod).unwrap();
    };
    let delete = |name: &str| {
        let path = format!("/api/v1/namespaces/default/pods/{name}?gracePeriodSeconds=0");
        api.plane.admin().delete(&path).unwrap();
    };
    create("ours", "node-1");
    create("foreign", "node-9");
    // The resync that these two events trigger must be over.
    thread::sleep(SEVERAL_RECONCILES);
    assert_resync(node, "q", || delete("ours"));
    delete("foreign");
}

/// Adds a pod and makes its record incomplete behind the daemon's back, which the daemon must notice after
/// `event` and not before.
fn assert_resync(node: &MeshNode, name: &str, event: impl FnOnce()) {
    let count = || node.metric("headcni_pods", &[]);
    let before = count();
    let pod = node.pod(name).unwrap();
    eventually(JOIN_TIMEOUT, "the pod is counted", || {
        (count() > before).then_some(())
    })
    .unwrap();
    // Without its last line, a record is that of an unfinished ADD.
    let cut = format!("sed -i '$d' $(find /var/lib/cni/headcni -name '{name}@*.json')");
    node.sh(&cut).unwrap();
    thread::sleep(SEVERAL_RECONCILES);
    assert!(
        count() > before,
        "no resync without an event: {}",
        node.diagnostics()
    );
    event();
    eventually(JOIN_TIMEOUT, "a resync", || {
        (count() <= before).then_some(())
    })
    .unwrap_or_else(|error| panic!("{error:#}\n{}", node.diagnostics()));
    node.detach(&pod).unwrap();
}

/// Requests that patched Nodes, or tried to.
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

/// Watches continue after an outage. In a cluster without changes no event shows that the API is back.
fn assert_reachable_again_after_a_cut(node: &MeshNode) {
    let await_reachable = |is| node.await_condition("KubernetesReachable", is, JOIN_TIMEOUT);
    let cut = format!(
        "nft 'add table inet cut; \
              add chain inet cut out {{ type filter hook output priority 0; }}; \
              add rule inet cut out tcp dport {PORT} reject with tcp reset'
         ss -K dport = {PORT}"
    );
    node.sh(&cut).unwrap();
    await_reachable(false).unwrap();
    node.sh("nft delete table inet cut").unwrap();
    await_reachable(true).unwrap();
}

/// The API server accepts connections and does not answer.
fn assert_ready_with_a_frozen_api(api: &KubeApi, node: &mut MeshNode) {
    api.plane.freeze();
    node.stop_daemon().unwrap();
    node.start_daemon().unwrap();
    node.await_ready(JOIN_TIMEOUT).unwrap();
    let await_reachable = |is| node.await_condition("KubernetesReachable", is, JOIN_TIMEOUT);
    await_reachable(false).unwrap();
    api.plane.thaw();
    await_reachable(true).unwrap();
    api.await_node_patched("node-1");
}
