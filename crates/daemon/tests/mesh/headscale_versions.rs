//! Servers of other generations than the newest, with which all other tests are made.

use lab::tools::{GoModule, HEADSCALES};
use lab::scenario::{AttachedPod, CLUSTER_CIDRS, JOIN_TIMEOUT, MeshCluster, NODE_TAG, connectivity};
use lab::{eventually, open_policy};
use rstest::rstest;
use serde_json::json;

use crate::host_tailscaled;

/// Whether a server makes keys for nobody, or for users only.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Keys {
    ForNobody,
    ForUsers,
}

#[rstest]
#[case::v0_28(HEADSCALES[1], Keys::ForNobody)]
#[case::v0_27(HEADSCALES[2], Keys::ForUsers)]
#[case::v0_26(HEADSCALES[3], Keys::ForUsers)]
fn an_older_server_is_joined_serves_pods_and_is_left(
    #[case] version: GoModule,
    #[case] keys: Keys,
) {
    let mut cluster = MeshCluster::builder().headscale(&version).prepare();
    if keys == Keys::ForUsers {
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
        what_is_taken_away_at_the_oldest_comes_back(&cluster, &pods);
    }

    for node in &mut cluster.nodes {
        node.stop_daemon().unwrap();
        host_tailscaled::uninstall(node);
    }
    let nodes = cluster.headscale.nodes().unwrap();
    assert!(nodes.is_empty(), "{nodes:?}");
}

fn what_is_taken_away_at_the_oldest_comes_back(cluster: &MeshCluster, pods: &[AttachedPod]) {
    let (headscale, node) = (&cluster.headscale, &cluster.nodes[0]);
    // Without auto-approvers nobody but the daemon approves.
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
    eventually(JOIN_TIMEOUT, "both networks are approved again", || {
        (approved() == Some(2)).then_some(())
    })
    .unwrap_or_else(|error| panic!("{error:#}\n{}", node.diagnostics()));

    headscale.delete_node("node-1").unwrap();
    eventually(JOIN_TIMEOUT, "the node is listed and approved again", || {
        (approved() == Some(2)).then_some(())
    })
    .unwrap_or_else(|error| panic!("{error:#}\n{}", node.diagnostics()));
    connectivity::await_all_to_all(pods);
    node.await_ready(JOIN_TIMEOUT).unwrap();
}
