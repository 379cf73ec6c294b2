//! What is wrong with a mesh is told with its remedy, and the remedy helps.

use std::sync::{Arc, Mutex};

use jiff::fmt::rfc2822::DateTimePrinter;
use jiff::{SignedDuration, Timestamp};
use lab::{
    AttachedPod, MeshCluster, Fake, JOIN_TIMEOUT, Netns, CLUSTER_CIDRS, Signal, Site, TAG, UPLINK, eventually,
    http_answer, open_policy,
};
use serde_json::{Value, json};

use crate::scene::Scene;
use crate::talk::{self, Pings};
use crate::told;

#[test]
fn a_policy_that_drops_pods_packets_is_found_with_the_rule_that_lacks() {
    let scene = Scene::new(&[Site::Open, Site::Open]);
    let mut cluster = MeshCluster::new(&scene.grounds).unwrap();
    cluster.start().unwrap();
    let members = cluster.members.iter();
    let pods: Vec<_> = members.map(|member| member.pod("p").unwrap()).collect();
    talk::check_all_to_all(&pods);

    // Nodes reach pods, and pods reach nobody.
    let mut policy = open_policy(TAG, &CLUSTER_CIDRS);
    policy["acls"][0]["src"] = json!([TAG]);
    cluster.headscale.set_policy(&policy).unwrap();
    let member = &cluster.members[0];
    let words = ["the policy drops packets from", "add to its acls"];
    let rule = rule_in(&told::await_failing(member, "PolicyAllowsPods", &words));
    assert!(talk::tcp(&pods[1].pod, &pods[0].pod, pods[0].ips[0]).is_err());
    policy["acls"].as_array_mut().unwrap().push(rule);
    cluster.headscale.set_policy(&policy).unwrap();
    told::await_holding(&cluster.members[0], "PolicyAllowsPods");
    eventually(JOIN_TIMEOUT, "pods talk again", || {
        talk::tcp(&pods[1].pod, &pods[0].pod, pods[0].ips[0]).ok()
    })
    .unwrap();

    a_policy_for_some_nodes_or_ports_is_told(&cluster, &policy);
    shields_are_lowered_again(&cluster, &pods);
    addresses_of_the_mesh_are_missed(&cluster);
    services_with_addresses_of_the_mesh_are_refused(&cluster);
    networks_are_approved_again(&mut cluster, policy);
    networks_that_are_not_known_are_not_withdrawn(&mut cluster, &pods);
    a_dead_server_is_told_of(&mut cluster);
    servers_that_no_real_one_can_be_are_told_of(&cluster);
    talk::await_all_to_all(&pods);
}

/// Who forgets a node is told, and who means some ports only is not held up.
fn a_policy_for_some_nodes_or_ports_is_told(cluster: &MeshCluster, right: &Value) {
    let member = &cluster.members[0];
    let mut policy = open_policy(TAG, &CLUSTER_CIDRS);
    policy["acls"][0]["src"] = json!([TAG, "10.244.1.0/24", CLUSTER_CIDRS[1].to_string()]);
    cluster.headscale.set_policy(&policy).unwrap();
    let words = ["from 10.244.2.0/24 to 10.244.1.0/24:", "add to its acls"];
    told::await_failing(member, "PolicyAllowsPods", &words);

    let mut policy = open_policy(TAG, &CLUSTER_CIDRS);
    policy["acls"][0]["dst"] = CLUSTER_CIDRS.map(|net| format!("{net}:80")).into();
    cluster.headscale.set_policy(&policy).unwrap();
    let says = |words: &str| {
        eventually(JOIN_TIMEOUT, words, || {
            let (holds, said) = member.condition("PolicyAllowsPods").ok()?;
            (holds && said.contains(words)).then_some(())
        })
        .unwrap_or_else(|error| panic!("{error:#}\n{}", member.told()));
    };
    says("those of 10.244.2.0/24");
    says(":80");
    cluster.headscale.set_policy(right).unwrap();
    eventually(JOIN_TIMEOUT, "all is let through again", || {
        let (holds, said) = member.condition("PolicyAllowsPods").ok()?;
        (holds && said == "the policy lets pods reach pods").then_some(())
    })
    .unwrap_or_else(|error| panic!("{error:#}\n{}", member.told()));
}

/// On a tailscaled of ours nobody has a reason to raise them.
fn shields_are_lowered_again(cluster: &MeshCluster, pods: &[AttachedPod]) {
    let member = &cluster.members[0];
    let tailscale = |what: &str| {
        let line = format!("{} {what}", member.tailscale_line());
        member.sh(&line).unwrap()
    };
    tailscale("set --shields-up=true");
    eventually(JOIN_TIMEOUT, "the shields are down again", || {
        let prefs: Value = serde_json::from_str(&tailscale("debug prefs")).ok()?;
        (prefs["ShieldsUp"] == false).then_some(())
    })
    .unwrap();
    talk::await_all_to_all(pods);
}

/// The rule that a person would copy out of the words.
fn rule_in(said: &str) -> Value {
    let (_, rule) = said.split_once("add to its acls ").unwrap();
    serde_json::from_str(rule).unwrap_or_else(|error| panic!("{error}: {rule}"))
}

/// Only members may have them; a node whose own address is its address in the mesh is one.
fn addresses_of_the_mesh_are_missed(cluster: &MeshCluster) {
    let member = &cluster.members[0];
    let listed = cluster.headscale.node_named("node-1").unwrap();
    let own = listed["ip_addresses"][0].as_str().unwrap();
    let address = |verb: &str, address: &str, link: &str| {
        let line = ["ip", "address", verb, address, "dev", link];
        member.node.run(line).unwrap();
        member.signal(Signal::HUP);
    };
    address("add", &format!("{own}/32"), "lo");
    address("add", "100.99.0.1/24", UPLINK);
    let stranger = format!("{UPLINK} has 100.99.0.1,");
    let words = [stranger.as_str(), "give the link another address"];
    let said = told::await_failing(member, "AddressesApart", &words);
    assert!(!said.contains("lo has"), "{said}");
    address("delete", "100.99.0.1/24", UPLINK);
    told::await_holding(member, "AddressesApart");
    address("delete", &format!("{own}/32"), "lo");
}

/// A file that would do harm does not come into force.
fn services_with_addresses_of_the_mesh_are_refused(cluster: &MeshCluster) {
    let member = &cluster.members[0];
    let right = member.config(&cluster.headscale.url());
    let wrong = right.replace("network:\n", "network:\n  serviceCIDR: 100.96.0.0/16\n");
    assert_ne!(wrong, right);
    member.configure(&wrong).unwrap();
    member.signal(Signal::HUP);
    let words = [
        "network.serviceCIDR",
        "100.64.0.0/10 is the tailnet's own",
        "take a private one",
    ];
    told::await_failing(member, "ConfigurationLoaded", &words);
    member.await_ready(JOIN_TIMEOUT).unwrap();
    member.configure(&right).unwrap();
    member.signal(Signal::HUP);
    told::await_holding(member, "ConfigurationLoaded");
}

/// Somebody takes the approval away, and no policy gives it back.
fn networks_are_approved_again(cluster: &mut MeshCluster, mut policy: Value) {
    policy["autoApprovers"] = json!({"routes": {}});
    cluster.headscale.set_policy(&policy).unwrap();
    cluster.headscale.approve("node-1", &[]).unwrap();
    eventually(JOIN_TIMEOUT, "both networks are approved again", || {
        let node = cluster.headscale.node_named("node-1").ok()?;
        (node["approved_routes"].as_array()?.len() == 2).then_some(())
    })
    .unwrap();
    let member = &cluster.members[0];
    member
        .await_condition("NetworksServed", true, JOIN_TIMEOUT)
        .unwrap();
}

/// The daemon starts, and whoever knew this node's networks says nothing any more.
fn networks_that_are_not_known_are_not_withdrawn(cluster: &mut MeshCluster, pods: &[AttachedPod]) {
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
        .await_condition("PodCIDRKnown", false, JOIN_TIMEOUT)
        .unwrap();
    // Then a whole pass was made.
    member.await_condition("MeshJoined", true, JOIN_TIMEOUT).unwrap();
    let node = cluster.headscale.node_named("node-1").unwrap();
    for kind in ["available_routes", "approved_routes", "subnet_routes"] {
        let count = node[kind].as_array().map_or(0, Vec::len);
        assert_eq!(count, 2, "{kind}: {node}");
    }
    talk::check_all_to_all(pods);
    member.configure(&right).unwrap();
    member.signal(Signal::HUP);
    member.await_ready(JOIN_TIMEOUT).unwrap();
}

fn a_dead_server_is_told_of(cluster: &mut MeshCluster) {
    cluster.headscale.kill().unwrap();
    let url = cluster.headscale.url();
    let words = [url.as_str(), "nobody listens"];
    told::await_failing(&cluster.members[0], "HeadscaleReachable", &words);
    cluster.headscale.resume().unwrap();
    told::await_holding(&cluster.members[0], "HeadscaleReachable");
}

/// What a server says of itself.
#[derive(Clone, Copy)]
struct Says {
    version: &'static str,
    /// How far its clock is ahead.
    ahead: SignedDuration,
}

/// One that is too old, and others whose clock is wrong. A node that is told to join them stays a member
/// where it is: the first is not joined by anybody, and the others give it no key.
fn servers_that_no_real_one_can_be_are_told_of(cluster: &MeshCluster) {
    let says = Arc::new(Mutex::new(Says {
        version: "v0.25.1",
        ahead: SignedDuration::ZERO,
    }));
    let says_now = Arc::clone(&says);
    let fake = Fake::start(cluster.members[0].node, move |request| {
        let Says { version, ahead } = *says_now.lock().unwrap();
        let time = Timestamp::now() + ahead;
        let time = DateTimePrinter::new().timestamp_to_rfc9110_string(&time);
        let (status, body) = match request.split(' ').nth(1) {
            Some("/version") => ("200 OK", format!(r#"{{"version":"{version}"}}"#)),
            Some("/api/v1/node") => ("200 OK", r#"{"nodes":[]}"#.to_owned()),
            _ => ("503 Service Unavailable", String::new()),
        };
        http_answer(status, &format!("Date: {}\r\n", time.unwrap()), &body)
    })
    .unwrap();
    let url = format!("http://127.0.0.1:{}", fake.port().unwrap());
    let member = &cluster.members[0];
    // Not even with a key that would do.
    let key = cluster.headscale.preauth_key(TAG).unwrap();
    member.sh("umask 077; touch /etc/headcni/auth-key").unwrap();
    member.node.write("/etc/headcni/auth-key", &key).unwrap();
    let with_key = "headscale:\n  preAuthKeyFile: /etc/headcni/auth-key\n";
    let with_key = member.config(&url).replace("headscale:\n", with_key);
    member.configure(&with_key).unwrap();
    member.signal(Signal::HUP);
    let words = [url.as_str(), "0.25.1", "upgrade it to 0.26 or newer"];
    for condition in ["HeadscaleReachable", "MeshJoined"] {
        told::await_failing(member, condition, &words);
    }
    let prefs = format!("{} debug prefs", member.tailscale_line());
    let prefs = member.sh(&prefs).unwrap();
    assert!(prefs.contains(&cluster.headscale.url()), "{prefs}");
    member.configure(&member.config(&url)).unwrap();
    member.signal(Signal::HUP);

    let say = |hours: i32| {
        *says.lock().unwrap() = Says {
            version: "v0.29.3",
            ahead: SignedDuration::from_hours(hours.into()),
        };
    };
    let skew = || {
        let readings = member.readings().unwrap();
        readings.sum("headcni_clock_skew_seconds", &[]).unwrap()
    };
    for (hours, side) in [(1, "seconds behind the server's"), (-1, "ahead of")] {
        say(hours);
        told::await_failing(member, "ClockRight", &[side, "set both by NTP"]);
        let off = skew() + 3600.0 * f64::from(hours);
        assert!(off.abs() < 60.0, "{hours} h: {}", skew());
    }
    say(0);
    told::await_holding(member, "ClockRight");
    assert!(skew().abs() < 30.0, "{}", skew());

    let right = member.config(&cluster.headscale.url());
    member.configure(&right).unwrap();
    member.signal(Signal::HUP);
    member.await_ready(JOIN_TIMEOUT).unwrap();
}

#[test]
fn a_second_node_with_the_same_networks_is_refused_and_the_first_goes_on() {
    let scene = Scene::new(&[Site::Open, Site::Open, Site::Open]);
    let mut cluster = MeshCluster::new(&scene.grounds).unwrap();
    let url = cluster.headscale.url();
    for member in &mut cluster.members[..2] {
        member.launch().unwrap();
    }
    for member in &cluster.members[..2] {
        member.await_ready(JOIN_TIMEOUT).unwrap();
    }
    let pods = [0, 1].map(|index: usize| cluster.members[index].pod("p").unwrap());
    eventually(JOIN_TIMEOUT, "pods talk", || {
        talk::tcp(&pods[1].pod, &pods[0].pod, pods[0].ips[0]).ok()
    })
    .unwrap();
    let [first, second] = &pods;
    let pings = [Pings::start(second, first), Pings::start(first, second)];
    talk::await_direct(&cluster.members[..2]);
    pings.iter().for_each(Pings::reset);

    let right = cluster.members[2].config(&url);
    // The same, a part of it, and more than both nodes have.
    for network in ["10.244.1.0/24", "10.244.1.0/25", "10.244.0.0/22"] {
        let third = &mut cluster.members[2];
        let wrong = right.replace("10.244.3.0/24", network);
        third.configure(&wrong).unwrap();
        match third.daemon_pid() {
            Some(_) => third.signal(Signal::HUP),
            None => third.launch().unwrap(),
        }
        let overlaps = match network {
            "10.244.1.0/24" => "node-1 has 10.244.1.0/24, too".to_owned(),
            other => format!("node-1 has 10.244.1.0/24, which overlaps this node's {other}"),
        };
        let words = [overlaps.as_str(), "networks of its own (network.podCIDR"];
        told::await_failing(third, "NetworksUnique", &words);
        let (is_served, said) = third.condition("NetworksServed").unwrap();
        assert!(!is_served, "{said}");
        assert_ne!(third.get("/ready").unwrap().status, 200);
        if let Ok(node) = cluster.headscale.node_named("node-3") {
            assert!(!node.to_string().contains(network), "{node}");
        }
    }
    // The first does not know of it, and is not to.
    cluster.members[0].await_ready(JOIN_TIMEOUT).unwrap();
    for pings in &pings {
        pings.check_none_lost("another node claims the first one's network");
    }
    drop(pings);

    let third = &cluster.members[2];
    third.configure(&right).unwrap();
    third.signal(Signal::HUP);
    third.await_ready(JOIN_TIMEOUT).unwrap();
    cluster.await_mesh().unwrap();
    let newcomer = cluster.members[2].pod("p").unwrap();
    let all: Vec<_> = pods.into_iter().chain([newcomer]).collect();
    talk::check_all_to_all(&all);
}
