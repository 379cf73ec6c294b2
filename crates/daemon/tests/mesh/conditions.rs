//! What is wrong with a mesh is told with its remedy, and the remedy helps.

use lab::{
    Attached, Cluster, Grounds, JOINED, Member, Netns, POD_NETWORKS, Pulse, Signal, Site, TAG,
    UPLINK, eventually, open_policy,
};
use serde_json::{Value, json};

use crate::{talk, turn};

#[test]
fn a_policy_that_drops_pods_packets_is_found_with_the_rule_that_lacks() {
    let _turn = turn::take();
    let grounds = Grounds::new(&[Site::Open, Site::Open]).unwrap();
    let mut cluster = Cluster::new(&grounds).unwrap();
    cluster.start().unwrap();
    let members = cluster.members.iter();
    let pods: Vec<_> = members.map(|member| member.pod("p").unwrap()).collect();
    talk::check_all_to_all(&pods);

    // Nodes reach pods, and pods reach nobody.
    let mut policy = open_policy(TAG, &POD_NETWORKS);
    policy["acls"][0]["src"] = json!([TAG]);
    cluster.headscale.set_policy(&policy).unwrap();
    let member = &cluster.members[0];
    let failed = member.await_condition("PolicyAllowsPods", false, JOINED);
    let rule = rule_in(&failed.unwrap());
    assert!(talk::tcp(&pods[1].pod, &pods[0].pod, pods[0].ips[0]).is_err());
    policy["acls"].as_array_mut().unwrap().push(rule);
    cluster.headscale.set_policy(&policy).unwrap();
    let member = &cluster.members[0];
    member
        .await_condition("PolicyAllowsPods", true, JOINED)
        .unwrap();
    eventually(JOINED, "pods talk again", || {
        talk::tcp(&pods[1].pod, &pods[0].pod, pods[0].ips[0]).ok()
    })
    .unwrap();

    addresses_of_the_mesh_are_missed(&cluster.members[0]);
    networks_are_approved_again(&mut cluster, policy);
    networks_that_are_not_known_are_not_withdrawn(&mut cluster, &pods);
    a_dead_server_is_told_of(&mut cluster);
}

/// The rule that a person would copy out of the words.
fn rule_in(said: &str) -> Value {
    let (_, rule) = said.split_once("add to its acls ").unwrap();
    serde_json::from_str(rule).unwrap_or_else(|error| panic!("{error}: {rule}"))
}

fn addresses_of_the_mesh_are_missed(member: &Member<'_>) {
    let address = |verb: &str| {
        let line = ["ip", "address", verb, "100.99.0.1/24", "dev", UPLINK];
        member.node.run(line).unwrap();
        member.signal(Signal::HUP);
    };
    address("add");
    let failed = member.await_condition("AddressesApart", false, JOINED);
    let said = failed.unwrap();
    assert!(
        said.contains("100.99.0.1") && said.contains(UPLINK),
        "{said}"
    );
    address("delete");
    member
        .await_condition("AddressesApart", true, JOINED)
        .unwrap();
}

/// Somebody takes the approval away, and no policy gives it back.
fn networks_are_approved_again(cluster: &mut Cluster<'_>, mut policy: Value) {
    policy["autoApprovers"] = json!({"routes": {}});
    cluster.headscale.set_policy(&policy).unwrap();
    cluster.headscale.approve("node-1", &[]).unwrap();
    eventually(JOINED, "both networks are approved again", || {
        let node = cluster.headscale.node_named("node-1").ok()?;
        (node["approved_routes"].as_array()?.len() == 2).then_some(())
    })
    .unwrap();
    let member = &cluster.members[0];
    member
        .await_condition("NetworksServed", true, JOINED)
        .unwrap();
}

/// The daemon starts, and whoever knew this node's networks says nothing any more.
fn networks_that_are_not_known_are_not_withdrawn(cluster: &mut Cluster<'_>, pods: &[Attached<'_>]) {
    talk::await_all_to_all(pods);
    let url = cluster.headscale.url();
    let member = &mut cluster.members[0];
    let right = member.config(&url);
    let said = format!("nodeLocal: {:?}, ", member.networks());
    let silent = right.replace(&said, "");
    assert_ne!(silent, right);
    member.stop_daemon().unwrap();
    member.configure(&silent).unwrap();
    member.launch().unwrap();
    member
        .await_condition("PodCIDRKnown", false, JOINED)
        .unwrap();
    // Then a whole pass was made.
    member.await_condition("MeshJoined", true, JOINED).unwrap();
    let node = cluster.headscale.node_named("node-1").unwrap();
    for kind in ["available_routes", "approved_routes", "subnet_routes"] {
        let count = node[kind].as_array().map_or(0, Vec::len);
        assert_eq!(count, 2, "{kind}: {node}");
    }
    talk::check_all_to_all(pods);
    member.configure(&right).unwrap();
    member.signal(Signal::HUP);
    member.await_ready(JOINED).unwrap();
}

fn a_dead_server_is_told_of(cluster: &mut Cluster<'_>) {
    cluster.headscale.kill().unwrap();
    let member = &cluster.members[0];
    let failed = member.await_condition("HeadscaleReachable", false, JOINED);
    let said = failed.unwrap();
    assert!(said.contains(&cluster.headscale.url()), "of whom? {said}");
    cluster.headscale.resume().unwrap();
    let member = &cluster.members[0];
    member
        .await_condition("HeadscaleReachable", true, JOINED)
        .unwrap();
}

#[test]
fn a_second_node_with_the_same_networks_is_refused_and_the_first_goes_on() {
    let _turn = turn::take();
    let grounds = Grounds::new(&[Site::Open, Site::Open, Site::Open]).unwrap();
    let mut cluster = Cluster::new(&grounds).unwrap();
    let url = cluster.headscale.url();
    for member in &mut cluster.members[..2] {
        member.launch().unwrap();
    }
    for member in &cluster.members[..2] {
        member.await_ready(JOINED).unwrap();
    }
    let pods = [0, 1].map(|index: usize| cluster.members[index].pod("p").unwrap());
    eventually(JOINED, "pods talk", || {
        talk::tcp(&pods[1].pod, &pods[0].pod, pods[0].ips[0]).ok()
    })
    .unwrap();
    let pulse = Pulse::ping(&pods[1].pod, pods[0].ips[0]).unwrap();
    pulse.await_answer(JOINED).unwrap();

    let third = &mut cluster.members[2];
    let right = third.config(&url);
    let wrong = right.replace("10.244.3.0/24", "10.244.1.0/24");
    third.configure(&wrong).unwrap();
    third.launch().unwrap();
    let said = third
        .await_condition("NetworksUnique", false, JOINED)
        .unwrap();
    assert!(
        said.contains("node-1") && said.contains("podCIDR"),
        "{said}"
    );
    let (is_served, said) = third.condition("NetworksServed").unwrap();
    assert!(!is_served, "{said}");
    assert_ne!(third.get("/ready").unwrap().status, 200);
    let node = cluster.headscale.node_named("node-3");
    if let Ok(node) = node {
        assert!(!node.to_string().contains("10.244.1.0/24"), "{node}");
    }
    // The first does not know of it, and is not to.
    cluster.members[0].await_ready(JOINED).unwrap();
    pulse.await_answer(JOINED).unwrap();

    let third = &cluster.members[2];
    third.configure(&right).unwrap();
    third.signal(Signal::HUP);
    third.await_ready(JOINED).unwrap();
    cluster.await_mesh().unwrap();
    let newcomer = cluster.members[2].pod("p").unwrap();
    let all: Vec<_> = pods.into_iter().chain([newcomer]).collect();
    talk::check_all_to_all(&all);
    drop(pulse);
}
