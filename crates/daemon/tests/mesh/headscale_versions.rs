//! Older Headscale versions. All other tests use the newest.

use lab::scenario::{
    AttachedPod, CLUSTER_CIDRS, JOIN_TIMEOUT, MeshCluster, NODE_TAG, connectivity,
};
use lab::tools::{GoModule, HEADSCALES};
use lab::{eventually, open_policy};
use rstest::rstest;
use serde_json::json;

use crate::host_tailscaled;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum PreauthKeys {
    WithTag,
    WithUser,
}

#[rstest]
#[case::v0_28(HEADSCALES[1], PreauthKeys::WithTag)]
#[case::v0_27(HEADSCALES[2], PreauthKeys::WithUser)]
#[case::v0_26(HEADSCALES[3], PreauthKeys::WithUser)]
fn an_older_headscale_is_joined_serves_pods_and_is_left_on_uninstall(
    #[case] version: GoModule,
    #[case] keys: PreauthKeys,
) {
    let mut cluster = MeshCluster::builder().headscale(&version).prepare();
    if keys == PreauthKeys::WithUser {
        let first = &mut cluster.nodes[0];
        first.start_daemon().unwrap();
        first.await_reported_false("MeshJoined", &["set headscale.user"]);
        first.stop_daemon().unwrap();
    }
    for node in &cluster.nodes {
        let config = node.config(&cluster.headscale.url());
        let of_user = config.replace("headscale:\n", "headscale:\n  user: lab\n");
        node.configure(&of_user).unwrap();
    }
    cluster.start_daemons().unwrap();
    let pods = cluster.pod_on_each("p");
    connectivity::assert_all_to_all(&pods);
    if version.version == HEADSCALES[3].version {
        withdrawn_routes_and_a_deleted_node_recover(&cluster, &pods);
    }

    for node in &mut cluster.nodes {
        node.stop_daemon().unwrap();
        host_tailscaled::uninstall(node);
    }
    let nodes = cluster.headscale.nodes().unwrap();
    assert!(nodes.is_empty(), "{nodes:?}");
}

fn withdrawn_routes_and_a_deleted_node_recover(cluster: &MeshCluster, pods: &[AttachedPod]) {
    let (headscale, node) = (&cluster.headscale, &cluster.nodes[0]);
    // Without autoApprovers only the daemon approves.
    let mut policy = open_policy(NODE_TAG, &CLUSTER_CIDRS);
    policy["autoApprovers"] = json!({"routes": {}});
    headscale.set_policy(&policy).unwrap();
    let approved = || {
        let listed = headscale.node_named("node-1").ok()?;
        let routes = listed["approved_routes"].as_array();
        Some(routes.map_or(0, Vec::len))
    };
    headscale.approve_routes("node-1", &[]).unwrap();
    assert_eq!(approved(), Some(0));
    eventually(JOIN_TIMEOUT, "both routes are approved again", || {
        (approved() == Some(2)).then_some(())
    })
    .unwrap_or_else(|error| panic!("{error:#}\n{}", node.diagnostics()));

    headscale.delete_node("node-1").unwrap();
    eventually(
        JOIN_TIMEOUT,
        "the node is listed and approved again",
        || (approved() == Some(2)).then_some(()),
    )
    .unwrap_or_else(|error| panic!("{error:#}\n{}", node.diagnostics()));
    connectivity::await_all_to_all(pods);
    node.await_ready(JOIN_TIMEOUT).unwrap();
}
