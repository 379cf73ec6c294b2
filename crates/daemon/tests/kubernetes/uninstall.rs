//! `uninstall` removes annotations and conditions from the Node.

use std::time::{Duration, Instant};

use lab::kubernetes::{ControlPlane, Helm, User};
use lab::scenario::{JOIN_TIMEOUT, KubeApi, MeshCluster, MeshNode};
use lab::{Node, eventually};
use serde_json::{Value, json};

use crate::chart::rendered;
use crate::documented_rules;

/// The timeouts of the mesh and the API together.
const UNINSTALL_TIMEOUT: Duration = Duration::from_secs(40);

#[test]
fn uninstall_cleans_the_node_object_and_does_not_wait_for_an_unreachable_api() {
    let mut cluster = MeshCluster::prepare(2);
    let mut api = KubeApi::start(&cluster, &documented_rules());
    let url = cluster.headscale.url();
    for name in ["node-1", "node-2"] {
        api.create_node(name);
        add_foreign_metadata(&api, name);
    }
    for node in &mut cluster.nodes {
        api.configure(node, &url);
        node.start_daemon().unwrap();
        node.await_ready(JOIN_TIMEOUT).unwrap();
        await_metadata(&api, node);
        node.stop_daemon().unwrap();
    }

    // Helm deletes the daemon's account before the hook runs.
    let hook_account = hook_account(&cluster.topology.server, &api.plane);
    for node in &cluster.nodes {
        api.configure_as(node, &url, &hook_account);
    }
    let output = uninstall(&cluster.nodes[0]);
    assert!(
        output.contains("removed our annotations from Node node-1"),
        "{output}"
    );
    let [annotations, conditions] = metadata(&api, "node-1");
    assert_eq!(annotations, json!(["example.org/ours"]));
    assert_eq!(conditions, json!(["Other", "Ready"]));

    api.plane.freeze();
    let start = Instant::now();
    let output = uninstall(&cluster.nodes[1]);
    assert!(
        output.contains("failed to clean up Node node-2"),
        "{output}"
    );
    assert!(output.contains("no answer within 10s"), "{output}");
    assert!(start.elapsed() < UNINSTALL_TIMEOUT, "{:?}", start.elapsed());
    api.plane.thaw();

    // Only the Node object is left to do.
    api.plane.stop().unwrap();
    let output = uninstall(&cluster.nodes[1]);
    assert!(
        output.contains("failed to clean up Node node-2"),
        "{output}"
    );
    api.plane.resume().unwrap();
    let output = uninstall(&cluster.nodes[1]);
    assert!(
        output.contains("removed our annotations from Node node-2"),
        "{output}"
    );
    assert_eq!(metadata(&api, "node-2")[0], json!(["example.org/ours"]));

    api.plane.admin().delete("/api/v1/nodes/node-2").unwrap();
    let output = uninstall(&cluster.nodes[1]);
    assert!(output.contains("there is no Node node-2"), "{output}");

    cluster.nodes[1].configure("").unwrap();
    let output = uninstall(&cluster.nodes[1]);
    assert!(!output.contains("Node"), "the API is not used: {output}");
}

/// An annotation and conditions of others, which must stay.
fn add_foreign_metadata(api: &KubeApi, name: &str) {
    let path = format!("/api/v1/nodes/{name}");
    let annotation = json!({ "metadata": { "annotations": { "example.org/ours": "1" } } });
    api.plane.admin().patch(&path, &annotation).unwrap();
    let condition = |kind: &str| json!({ "type": kind, "status": "True", "reason": "Test" });
    let conditions =
        json!({ "status": { "conditions": [condition("Ready"), condition("Other")] } });
    let path = format!("{path}/status");
    api.plane.admin().patch(&path, &conditions).unwrap();
}

fn await_metadata(api: &KubeApi, node: &MeshNode) {
    let name = node.node.name();
    eventually(
        JOIN_TIMEOUT,
        &format!("{name} has patched its Node"),
        || {
            let [annotations, conditions] = metadata(api, name);
            let ours = annotations.to_string().matches("headcni.io/").count();
            let has_condition = conditions.to_string().contains("NetworkUnavailable");
            (ours == 3 && has_condition).then_some(())
        },
    )
    .unwrap_or_else(|error| panic!("{error:#}: {:#}", api.node(name)));
}

/// The names of a Node's annotations and conditions, without those of controllers.
fn metadata(api: &KubeApi, name: &str) -> [Value; 2] {
    let node = api.node(name);
    let annotations = node["metadata"]["annotations"].as_object().unwrap();
    let annotations = annotations
        .keys()
        .filter(|key| !key.contains("kubernetes.io/"));
    let conditions = node["status"]["conditions"].as_array().unwrap().iter();
    let conditions = conditions.map(|condition| condition["type"].as_str().unwrap());
    let mut conditions: Vec<_> = conditions.filter(|it| !it.ends_with("Pressure")).collect();
    conditions.sort_unstable();
    [json!(annotations.collect::<Vec<_>>()), json!(conditions)]
}

/// The account of the uninstall hook, with the rights in the chart.
fn hook_account(server: &Node, plane: &ControlPlane) -> User {
    let helm = Helm::new(server, plane).unwrap();
    let is_right = |kind: &Value| {
        ["ServiceAccount", "ClusterRole", "ClusterRoleBinding"].contains(&kind.as_str().unwrap())
    };
    let mut count = 0;
    for object in rendered(&helm, &[]) {
        if is_right(&object["kind"]) && object["metadata"]["name"] == "headcni-uninstall" {
            plane.admin().apply(&object).unwrap();
            count += 1;
        }
    }
    assert_eq!(count, 3);
    plane
        .service_account("kube-system", "headcni-uninstall")
        .unwrap()
}

/// Returns the output. Nothing must be left on the node.
fn uninstall(node: &MeshNode) -> String {
    let output = node.command(&["uninstall"]).unwrap();
    assert!(output.status.success(), "{output:?}");
    for path in [
        "/var/lib/headcni",
        "/run/headcni",
        "/etc/cni/net.d/10-headcni.conflist",
    ] {
        assert!(!node.file(path).exists(), "{path}: {output:?}");
    }
    output.stdout
}
