//! Servers of other generations than the newest, with which all other tests are made.

use lab::tools::{GoModule, HEADSCALES};
use lab::{AttachedPod, MeshCluster, JOIN_TIMEOUT, CLUSTER_CIDRS, Site, TAG, eventually, open_policy};
use rstest::rstest;
use serde_json::json;

use crate::scene::Scene;
use crate::{hosts, talk, told};

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
    let scene = Scene::new(&[Site::Open, Site::Open]);
    let mut cluster = MeshCluster::with_server(&scene.grounds, &version).unwrap();
    if keys == Keys::ForUsers {
        let first = &mut cluster.members[0];
        first.launch().unwrap();
        told::await_failing(first, "MeshJoined", &["set headscale.user"]);
        first.stop_daemon().unwrap();
    }
    for member in &cluster.members {
        let config = member.config(&cluster.headscale.url());
        let of_user = config.replace("headscale:\n", "headscale:\n  user: lab\n");
        member.configure(&of_user).unwrap();
    }
    cluster.start().unwrap();
    let members = cluster.members.iter();
    let pods: Vec<_> = members.map(|member| member.pod("p").unwrap()).collect();
    talk::check_all_to_all(&pods);
    if version.version == HEADSCALES[3].version {
        what_is_taken_away_at_the_oldest_comes_back(&cluster, &pods);
    }

    for member in &mut cluster.members {
        member.stop_daemon().unwrap();
        hosts::uninstall(member);
    }
    let nodes = cluster.headscale.nodes().unwrap();
    assert!(nodes.is_empty(), "{nodes:?}");
}

fn what_is_taken_away_at_the_oldest_comes_back(cluster: &MeshCluster, pods: &[AttachedPod]) {
    let (headscale, member) = (&cluster.headscale, &cluster.members[0]);
    // Without auto-approvers nobody but the daemon approves.
    let mut policy = open_policy(TAG, &CLUSTER_CIDRS);
    policy["autoApprovers"] = json!({"routes": {}});
    headscale.set_policy(&policy).unwrap();
    let approved = || {
        let node = headscale.node_named("node-1").ok()?;
        let routes = node["approved_routes"].as_array();
        Some(routes.map_or(0, Vec::len))
    };
    headscale.approve("node-1", &[]).unwrap();
    assert_eq!(approved(), Some(0));
    eventually(JOIN_TIMEOUT, "both networks are approved again", || {
        (approved() == Some(2)).then_some(())
    })
    .unwrap_or_else(|error| panic!("{error:#}\n{}", member.told()));

    headscale.delete("node-1").unwrap();
    eventually(JOIN_TIMEOUT, "the node is listed and approved again", || {
        (approved() == Some(2)).then_some(())
    })
    .unwrap_or_else(|error| panic!("{error:#}\n{}", member.told()));
    talk::await_all_to_all(pods);
    member.await_ready(JOIN_TIMEOUT).unwrap();
}
