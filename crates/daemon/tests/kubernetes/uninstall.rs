//! Whoever uninstalls takes back what was said on the Node, if the API is there.

use std::time::{Duration, Instant};

use lab::kubernetes::{ControlPlane, Helm, User};
use lab::scenario::{JOIN_TIMEOUT, MeshCluster, MeshNode, Topology};
use lab::eventually;
use serde_json::{Value, json};

use crate::chart::rendered;

/// Of all that `uninstall` does, what it may take: the mesh and the API have their limits.
const NOT_LONG: Duration = Duration::from_secs(40);

#[test]
fn uninstall_takes_its_words_back_and_does_not_wait_for_an_api_that_is_away() {
    let mut cluster = MeshCluster::prepare(2);
    let mut plane = ControlPlane::start(&grounds.server).unwrap();
    let user = account(&plane);
    let url = cluster.headscale.url();
    for name in ["node-1", "node-2"] {
        post_node(&plane, name);
        say_something_else(&plane, name);
    }
    for node in &mut cluster.nodes {
        configure(node, &url, &user);
        node.start_daemon().unwrap();
        node.await_ready(JOIN_TIMEOUT).unwrap();
        await_words(&plane, node);
        node.stop_daemon().unwrap();
    }

    // The daemon's own account is deleted first, so from here on the hook's has to do.
    let last = hooks_account(&grounds, &plane);
    for node in &cluster.nodes {
        configure(node, &url, &last);
    }
    let said = uninstall(&cluster.nodes[0]);
    assert!(
        said.contains("took our words off the Node node-1"),
        "{said}"
    );
    let [annotations, conditions] = words(&plane, "node-1");
    assert_eq!(annotations, json!(["example.org/ours"]));
    assert_eq!(conditions, json!(["Other", "Ready"]));

    plane.freeze();
    let start = Instant::now();
    let said = uninstall(&cluster.nodes[1]);
    assert!(
        said.contains("left at the Kubernetes API: the Node node-2"),
        "{said}"
    );
    assert!(said.contains("no answer within 10s"), "{said}");
    assert!(start.elapsed() < NOT_LONG, "{:?}", start.elapsed());
    plane.thaw();

    // Nothing is there to be done any more, but for what is left at the API.
    plane.stop().unwrap();
    let said = uninstall(&cluster.nodes[1]);
    assert!(
        said.contains("left at the Kubernetes API: the Node node-2"),
        "{said}"
    );
    plane.resume().unwrap();
    let said = uninstall(&cluster.nodes[1]);
    assert!(
        said.contains("took our words off the Node node-2"),
        "{said}"
    );
    assert_eq!(words(&plane, "node-2")[0], json!(["example.org/ours"]));

    plane.admin().delete("/api/v1/nodes/node-2").unwrap();
    let said = uninstall(&cluster.nodes[1]);
    assert!(said.contains("there is no Node node-2"), "{said}");

    cluster.nodes[1].configure("").unwrap();
    let said = uninstall(&cluster.nodes[1]);
    assert!(!said.contains("Node"), "nobody is asked: {said}");
}

/// An annotation and conditions of others, which have to stay.
fn say_something_else(plane: &ControlPlane, name: &str) {
    let path = format!("/api/v1/nodes/{name}");
    let annotation = json!({ "metadata": { "annotations": { "example.org/ours": "1" } } });
    plane.admin().patch(&path, &annotation).unwrap();
    let condition = |kind: &str| json!({ "type": kind, "status": "True", "reason": "Said" });
    let conditions =
        json!({ "status": { "conditions": [condition("Ready"), condition("Other")] } });
    let path = format!("{path}/status");
    plane.admin().patch(&path, &conditions).unwrap();
}

fn await_words(plane: &ControlPlane, node: &MeshNode) {
    let name = node.node.name();
    eventually(JOIN_TIMEOUT, &format!("{name} has said all"), || {
        let [annotations, conditions] = words(plane, name);
        let ours = annotations.to_string().matches("headcni.io/").count();
        let is_said = conditions.to_string().contains("NetworkUnavailable");
        (ours == 3 && is_said).then_some(())
    })
    .unwrap_or_else(|error| panic!("{error:#}: {:#}", node(plane, name)));
}

/// The names of a Node's annotations and conditions, but for those that controllers make.
fn words(plane: &ControlPlane, name: &str) -> [Value; 2] {
    let node = node(plane, name);
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

/// Who uninstalls on nodes has this account, with the rights that the chart gives it.
fn hooks_account<'a>(grounds: &Topology, plane: &ControlPlane) -> User {
    let helm = Helm::new(&grounds.server, plane).unwrap();
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

/// What it says. It succeeds, and nothing is left on the node.
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
