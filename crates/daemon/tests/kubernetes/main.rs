//! With a real Kubernetes: what daemons read from the API, and what they write to it.

#![expect(
    clippy::unwrap_used,
    reason = "a failure outside the code under test must fail the test"
)]

mod api_faults;
mod behind_nat;
mod chart;
mod flannel_migration;
mod helm_hooks;
mod install;
mod large_cluster;
mod live_changes;
mod many_objects;
mod node_api;
mod pod_churn;
mod static_pod;
mod tcp_stream;
mod uninstall;

use serde_json::Value;

/// The RBAC rules that docs/kubernetes.md documents as sufficient.
fn documented_rules() -> Value {
    let document = include_str!("../../../../docs/kubernetes.md");
    let (_, rest) = document.split_once("```yaml\nrules:\n").unwrap();
    let (rules, _) = rest.split_once("```").unwrap();
    let list = rules.replace("  - {", "- {");
    serde_saphyr::from_str(&list).unwrap()
}
