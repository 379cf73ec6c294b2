//! Pods on different nodes reach each other under their own addresses.

use std::net::SocketAddr;

use lab::{Cluster, EchoServer, Family, Grounds, Netns, POD_NETWORKS, Site};

#[test]
fn every_pod_reaches_every_pod_under_its_own_address() {
    let grounds = Grounds::new(&[Site::Open, Site::Open, Site::BehindNat]).unwrap();
    let sniffer = grounds.underlay.watch(&POD_NETWORKS).unwrap();
    let mut cluster = Cluster::new(&grounds).unwrap();
    cluster.start().unwrap();
    let pods: Vec<_> = cluster
        .members
        .iter()
        .map(|member| member.pod("p").unwrap())
        .collect();
    for to in &pods {
        for ip in &to.ips {
            let family = if ip.is_ipv4() { Family::V4 } else { Family::V6 };
            let server = EchoServer::start(&to.pod, family, 0).unwrap();
            let address = SocketAddr::new(*ip, server.port().unwrap());
            for from in pods.iter().filter(|from| from.ips != to.ips) {
                let seen = from.pod.call_echo(address, "hello").unwrap();
                assert!(from.ips.contains(&seen), "{seen} is not {:?}", from.ips);
            }
        }
    }
    let account = sniffer.end().unwrap();
    account.check_nothing_in_clear().unwrap();
    account.check_no_strays().unwrap();
}
