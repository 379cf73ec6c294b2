//! Servers of other generations than the newest, with which all other tests are made.

use lab::tools::{GoModule, HEADSCALES};
use lab::{Cluster, Site};
use rstest::rstest;

use crate::scene::Scene;
use crate::{hosts, talk};

#[rstest]
#[case::v0_28(HEADSCALES[1])]
#[case::v0_27(HEADSCALES[2])]
#[case::v0_26(HEADSCALES[3])]
fn an_older_server_is_joined_serves_pods_and_is_left(#[case] version: GoModule) {
    let scene = Scene::new(&[Site::Open, Site::Open]);
    let mut cluster = Cluster::with_server(&scene.grounds, &version).unwrap();
    for member in &cluster.members {
        let config = member.config(&cluster.headscale.url());
        // Only 0.28 makes keys for nobody.
        let of_user = config.replace("headscale:\n", "headscale:\n  user: lab\n");
        member.configure(&of_user).unwrap();
    }
    cluster.start().unwrap();
    let members = cluster.members.iter();
    let pods: Vec<_> = members.map(|member| member.pod("p").unwrap()).collect();
    talk::check_all_to_all(&pods);

    for member in &mut cluster.members {
        member.stop_daemon().unwrap();
        hosts::uninstall(member);
    }
    let nodes = cluster.headscale.nodes().unwrap();
    assert!(nodes.is_empty(), "{nodes:?}");
}
