//! Pods that the reference plugins have made reach pods of other nodes all the same.

use std::net::IpAddr;

use lab::{Cluster, Grounds, Member, POD_NETWORKS, Pod, Site};

use crate::{talk, turn};

#[test]
fn pods_on_a_bridge_reach_pods_of_other_nodes() {
    let _turn = turn::take();
    let grounds = Grounds::new(&[Site::Open, Site::Open]).unwrap();
    let sniffer = grounds.underlay.watch(&POD_NETWORKS).unwrap();
    let mut cluster = Cluster::new(&grounds).unwrap();
    let url = cluster.headscale.url();
    // One of them is native: what a node does is no other's business.
    let member = &cluster.members[0];
    let config = member.config(&url);
    member
        .configure(&format!("{config}cni: {{mode: bridge}}\n"))
        .unwrap();
    cluster.start().unwrap();
    let bridged = attach(&cluster.members[0]);
    let native = cluster.members[1].pod("p").unwrap();
    for ip in &native.ips {
        talk::check_pair((&bridged.0, &bridged.1), &native.pod, *ip);
    }
    for ip in &bridged.1 {
        talk::check_pair((&native.pod, &native.ips), &bridged.0, *ip);
    }
    let account = sniffer.end().unwrap();
    account.check_nothing_in_clear().unwrap();
}

/// By the real cnitool, as by the document that is there.
fn attach<'a>(member: &Member<'a>) -> (Pod<'a>, Vec<IpAddr>) {
    let pod = member.node.pod("b").unwrap();
    let tool = member
        .node
        .cnitool("/etc/cni/net.d", "add", "headcni", pod.netns_path())
        .path("/opt/cni/bin");
    let outcome = tool.run().unwrap();
    outcome.ok().unwrap();
    let result = outcome.json.unwrap();
    let ips = result["ips"].as_array().unwrap().iter();
    let ips = ips.map(|ip| ip["address"].as_str().unwrap().split('/').next().unwrap());
    let ips: Vec<IpAddr> = ips.map(|ip| ip.parse().unwrap()).collect();
    assert_eq!(ips.len(), 2, "{result}");
    (pod, ips)
}
