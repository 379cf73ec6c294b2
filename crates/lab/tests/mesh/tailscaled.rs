//! Real tailscaleds on a real Headscale.

use std::time::Duration;

use ipnet::IpNet;
use lab::{
    Headscale, Join, NatKind, Netns, Node, Tailscaled, Underlay, eventually, open_policy, tools,
};

const TAG: &str = "tag:k8s-node";

#[test]
fn two_tailscaleds_join_and_reach_each_other_with_one_behind_a_nat() {
    let pods: [IpNet; 2] = ["10.244.0.0/16", "fd00:10:244::/48"].map(|cidr| cidr.parse().unwrap());
    let underlay = Underlay::new().unwrap();
    let nat = underlay.nat(NatKind::Easy).unwrap();
    let [server, cloud, home] = ["headscale", "cloud", "home"].map(|name| Node::new(name).unwrap());
    let at = underlay.plug(&server).unwrap();
    underlay.plug(&cloud).unwrap();
    nat.plug(&home).unwrap();
    let sniffer = underlay.sniff(&pods).unwrap();

    let headscale = Headscale::start(&server, &tools::HEADSCALE, at.v4.into()).unwrap();
    headscale.set_policy(&open_policy(TAG, &pods)).unwrap();
    let peers = [(&cloud, "10.244.1.0/24"), (&home, "10.244.2.0/24")];
    let mut peers = peers.map(|(node, prefix)| {
        let tailscaled = Tailscaled::start(node, headscale.ca_file()).unwrap();
        let (url, key) = (&headscale.url(), &headscale.preauth_key(TAG).unwrap());
        let advertise = &[prefix];
        tailscaled
            .join(&Join {
                url,
                key,
                advertise,
            })
            .unwrap();
        assert!(!node.has("/run/tailscale/lab-auth-key"));
        tailscaled
    });

    let addresses = peers.each_ref().map(|peer| peer.tailnet_ip().unwrap());
    let reach = |node: &Node, address: &str| {
        let ping = ["ping", "-n", "-c", "1", "-W", "1", address];
        eventually(Duration::from_secs(30), "the peer answers", || {
            let output = node.attempt(ping).unwrap();
            output.status.success().then_some(())
        })
        .unwrap();
    };
    reach(&cloud, &addresses[1]);
    reach(&home, &addresses[0]);

    let approved = |name: &str| headscale.node_named(name).unwrap()["approved_routes"].clone();
    assert_eq!(approved("home"), serde_json::json!(["10.244.2.0/24"]));
    headscale.approve_routes("home", &[]).unwrap();
    assert_eq!(approved("home"), serde_json::Value::Null);

    // It keeps its identity over a restart.
    peers[1].kill().unwrap();
    assert!(!home.links().unwrap().contains(&"tailscale0".to_owned()));
    peers[1].restart().unwrap();
    // Before that, a ping would leave by the default route.
    eventually(Duration::from_secs(30), "the route is back", || {
        let route = home.run(["ip", "route", "get", &addresses[0]]).unwrap();
        route.stdout.contains("tailscale0").then_some(())
    })
    .unwrap();
    reach(&home, &addresses[0]);
    assert_eq!(peers[1].tailnet_ip().unwrap(), addresses[1]);

    headscale.expire_node("cloud").unwrap();
    let status = || peers[0].status().unwrap()["BackendState"].clone();
    eventually(Duration::from_secs(30), "the node needs a login", || {
        (status() == "NeedsLogin").then_some(())
    })
    .unwrap();
    headscale.delete_node("home").unwrap();
    assert_eq!(headscale.nodes().unwrap().len(), 1);

    let report = sniffer.finish().unwrap();
    report.check_nothing_in_clear().unwrap();
    report.check_no_strays().unwrap();
}
