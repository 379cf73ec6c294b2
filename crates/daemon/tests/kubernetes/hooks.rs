//! Helm's hooks where a node is lost: what can be done is done, and the rest is told and made up for.

use lab::{Topology, Site, eventually};
use serde_json::{Value, json};

use crate::whole::{SOON, Whole, pod, web_on};

const DAEMON_SETS: &str = "/apis/apps/v1/namespaces/kube-system/daemonsets";

#[test]
fn a_lost_node_holds_up_no_upgrade_and_is_cleaned_when_it_is_back() {
    let grounds = Topology::new(&[Site::Open, Site::Open]).unwrap();
    let mut whole = Whole::new(&grounds);
    whole.install();
    whole.await_nodes();
    whole.workers[1].stop_kubelet().unwrap();
    eventually(SOON, "node-2 is lost", || {
        let taints = whole.get("/api/v1/nodes/node-2")["spec"]["taints"].clone();
        let is_lost = |taint: &Value| taint["key"] == "node.kubernetes.io/unreachable";
        taints.as_array()?.iter().any(is_lost).then_some(())
    })
    .unwrap();

    fill(&whole, "node-1");
    bad_configuration_is_told(&whole);
    whole.helm(
        &["upgrade"],
        &["--set", "hooks.uninstall.timeoutSeconds=30"],
    );

    // Too early, but no reason to leave nodes as they are.
    let keys = "/api/v1/namespaces/kube-system/secrets/headcni";
    whole.plane.admin().delete(keys).unwrap();
    let failed = whole.helm.run(&["uninstall", "headcni"]).unwrap_err();
    let failed = failed.to_string();
    assert!(
        failed.contains("1 of 2 nodes are ready"),
        "{failed}\n{}",
        whole.told()
    );
    whole.check_is_clean(&grounds.nodes[0]);
    let again = ["install", "headcni", "charts/headcni"];
    let refused = whole.helm.run(&again).unwrap_err().to_string();
    assert!(refused.contains("an earlier uninstallation is still at work"));

    whole.workers[1].resume_kubelet().unwrap();
    eventually(SOON, "node-2 is clean, too", || {
        let set = whole.get(&format!("{DAEMON_SETS}/headcni-uninstall"));
        (set["status"]["numberReady"] == 2).then_some(())
    })
    .unwrap_or_else(|error| panic!("{error:#}\n{}", whole.told()));
    for node in &grounds.nodes {
        whole.check_is_clean(node);
    }
}

/// Whatever can be scheduled elsewhere goes there: to a node that is lost, if it tolerates that.
fn fill(whole: &Whole<'_>, node: &str) {
    let mut spec = web_on(node);
    spec["containers"][0]["resources"] = json!({ "requests": { "cpu": "1", "memory": "2Gi" } });
    whole.apply(&pod("filler", "filler", &spec));
    whole.await_pods("filler", 1);
}

/// Helm shows what the daemon says against it.
fn bad_configuration_is_told(whole: &Whole<'_>) {
    let words = ["upgrade", "headcni", "charts/headcni", "--reuse-values"];
    // Good to the schema, but no network.
    let words = [
        &words[..],
        &["--set", "config.network.podCIDR.base=10.244.0.0/99"],
    ]
    .concat();
    let output = whole.helm.attempt(&words).unwrap();
    assert!(!output.status.success());
    let said = format!("{}{}", output.stdout, output.stderr);
    assert!(said.contains("not a network of the form"), "{said}");
}
