//! Helm hooks while a node is lost.

use lab::eventually;
use lab::scenario::{KUBE_TIMEOUT, KubeCluster, pod_object, web_spec_on};
use serde_json::{Value, json};

const DAEMON_SETS: &str = "/apis/apps/v1/namespaces/kube-system/daemonsets";

#[test]
fn a_lost_node_does_not_block_an_upgrade_and_is_cleaned_when_it_returns() {
    let mut cluster = KubeCluster::prepare(2);
    cluster.install();
    cluster.await_nodes();
    cluster.workers[1].stop_kubelet().unwrap();
    eventually(KUBE_TIMEOUT, "node-2 is lost", || {
        let taints = cluster.get("/api/v1/nodes/node-2")["spec"]["taints"].clone();
        let is_lost = |taint: &Value| taint["key"] == "node.kubernetes.io/unreachable";
        taints.as_array()?.iter().any(is_lost).then_some(())
    })
    .unwrap();

    fill(&cluster, "node-1");
    a_bad_configuration_is_reported(&cluster);
    cluster.helm(
        &["upgrade"],
        &["--set", "hooks.uninstall.timeoutSeconds=30"],
    );

    // The Secret was deleted too early; the uninstall cleans the nodes anyway.
    let keys = "/api/v1/namespaces/kube-system/secrets/headcni";
    cluster.plane.admin().delete(keys).unwrap();
    let failed = cluster.helm.run(&["uninstall", "headcni"]).unwrap_err();
    let failed = failed.to_string();
    assert!(
        failed.contains("1 of 2 nodes are ready"),
        "{failed}\n{}",
        cluster.diagnostics()
    );
    cluster.assert_clean(&cluster.topology.nodes[0]);
    let again = ["install", "headcni", "charts/headcni"];
    let refused = cluster.helm.run(&again).unwrap_err().to_string();
    assert!(refused.contains("an earlier uninstallation is still at work"));

    cluster.workers[1].resume_kubelet().unwrap();
    eventually(KUBE_TIMEOUT, "node-2 is clean, too", || {
        let set = cluster.get(&format!("{DAEMON_SETS}/headcni-uninstall"));
        (set["status"]["numberReady"] == 2).then_some(())
    })
    .unwrap_or_else(|error| panic!("{error:#}\n{}", cluster.diagnostics()));
    for node in &cluster.topology.nodes {
        cluster.assert_clean(node);
    }
}

/// Leaves no room on a node, so that a Pod that tolerates it is scheduled to the lost node.
fn fill(cluster: &KubeCluster, node: &str) {
    let mut spec = web_spec_on(node);
    spec["containers"][0]["resources"] = json!({ "requests": { "cpu": "1", "memory": "2Gi" } });
    cluster.apply(&pod_object("filler", "filler", &spec));
    cluster.await_pods("filler", 1);
}

/// Helm shows the daemon's error.
fn a_bad_configuration_is_reported(cluster: &KubeCluster) {
    let args = ["upgrade", "headcni", "charts/headcni", "--reuse-values"];
    // Valid by the schema, but not a CIDR.
    let args = [
        &args[..],
        &["--set", "config.network.podCIDR.base=10.244.0.0/99"],
    ]
    .concat();
    let output = cluster.helm.attempt(&args).unwrap();
    assert!(!output.status.success());
    let all = format!("{}{}", output.stdout, output.stderr);
    assert!(all.contains("not a CIDR such as"), "{all}");
}
