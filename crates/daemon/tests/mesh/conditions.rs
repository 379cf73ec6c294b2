//! Conditions of the mesh have a remedy, and the remedy works.

use std::sync::{Arc, Mutex};

use jiff::fmt::rfc2822::DateTimePrinter;
use jiff::{SignedDuration, Timestamp};
use lab::scenario::connectivity::{self, Pings};
use lab::scenario::{AttachedPod, CLUSTER_CIDRS, JOIN_TIMEOUT, MeshCluster, NODE_TAG};
use lab::{Fake, Netns, Signal, UPLINK, eventually, http_answer, open_policy};
use serde_json::{Value, json};

#[test]
fn each_mesh_condition_turns_false_with_its_remedy_and_true_again() {
    let mut cluster = MeshCluster::start(2);
    let pods = cluster.pod_on_each("p");
    connectivity::assert_all_to_all(&pods);

    // Only nodes are sources.
    let mut policy = open_policy(NODE_TAG, &CLUSTER_CIDRS);
    policy["acls"][0]["src"] = json!([NODE_TAG]);
    cluster.headscale.set_policy(&policy).unwrap();
    let node = &cluster.nodes[0];
    let texts = ["the policy drops packets from", "add to its acls"];
    let rule = rule_of(&node.await_reported_false("PolicyAllowsPods", &texts));
    assert!(connectivity::tcp(&pods[1].pod, &pods[0].pod, pods[0].ips[0]).is_err());
    policy["acls"].as_array_mut().unwrap().push(rule);
    cluster.headscale.set_policy(&policy).unwrap();
    cluster.nodes[0].await_reported_true("PolicyAllowsPods");
    eventually(JOIN_TIMEOUT, "pods reach each other again", || {
        connectivity::tcp(&pods[1].pod, &pods[0].pod, pods[0].ips[0]).ok()
    })
    .unwrap();

    a_policy_for_some_nodes_or_ports_is_reported(&cluster, &policy);
    shields_up_is_reset_on_a_managed_tailscaled(&cluster, &pods);
    a_tailnet_address_on_another_interface_is_an_overlap(&cluster);
    a_service_cidr_in_the_tailnet_range_is_refused(&cluster);
    withdrawn_routes_are_approved_again(&mut cluster, policy);
    routes_stay_advertised_while_the_pod_cidr_is_unknown(&mut cluster, &pods);
    an_unreachable_headscale_is_reported(&mut cluster);
    an_old_headscale_and_clock_skew_are_reported(&cluster);
    connectivity::await_all_to_all(&pods);
}

/// A node that the policy omits is reported; a policy for some ports is not an error.
fn a_policy_for_some_nodes_or_ports_is_reported(cluster: &MeshCluster, right: &Value) {
    let node = &cluster.nodes[0];
    let mut policy = open_policy(NODE_TAG, &CLUSTER_CIDRS);
    policy["acls"][0]["src"] = json!([NODE_TAG, "10.244.1.0/24", CLUSTER_CIDRS[1].to_string()]);
    cluster.headscale.set_policy(&policy).unwrap();
    let texts = ["from 10.244.2.0/24 to 10.244.1.0/24:", "add to its acls"];
    node.await_reported_false("PolicyAllowsPods", &texts);

    let mut policy = open_policy(NODE_TAG, &CLUSTER_CIDRS);
    policy["acls"][0]["dst"] = CLUSTER_CIDRS.map(|net| format!("{net}:80")).into();
    cluster.headscale.set_policy(&policy).unwrap();
    let await_message = |text: &str| {
        eventually(JOIN_TIMEOUT, text, || {
            let (is_true, message) = node.condition("PolicyAllowsPods").ok()?;
            (is_true && message.contains(text)).then_some(())
        })
        .unwrap_or_else(|error| panic!("{error:#}\n{}", node.diagnostics()));
    };
    await_message("from 10.244.2.0/24, fd00:10:244:2::/64 only in part: 10.244.0.0/16 to");
    await_message(":80");
    cluster.headscale.set_policy(right).unwrap();
    eventually(JOIN_TIMEOUT, "the policy allows all again", || {
        let (is_true, message) = node.condition("PolicyAllowsPods").ok()?;
        (is_true && message == "the policy allows pod traffic").then_some(())
    })
    .unwrap_or_else(|error| panic!("{error:#}\n{}", node.diagnostics()));
}

fn shields_up_is_reset_on_a_managed_tailscaled(cluster: &MeshCluster, pods: &[AttachedPod]) {
    let node = &cluster.nodes[0];
    let tailscale = |what: &str| {
        let line = format!("{} {what}", node.tailscale_cli());
        node.sh(&line).unwrap()
    };
    tailscale("set --shields-up=true");
    eventually(JOIN_TIMEOUT, "ShieldsUp is false again", || {
        let prefs: Value = serde_json::from_str(&tailscale("debug prefs")).ok()?;
        (prefs["ShieldsUp"] == false).then_some(())
    })
    .unwrap();
    connectivity::await_all_to_all(pods);
}

/// The ACL rule that the message proposes.
fn rule_of(message: &str) -> Value {
    let (_, rule) = message.split_once("add to its acls ").unwrap();
    serde_json::from_str(rule).unwrap_or_else(|error| panic!("{error}: {rule}"))
}

/// The node's own tailnet address is not an overlap, wherever it is.
fn a_tailnet_address_on_another_interface_is_an_overlap(cluster: &MeshCluster) {
    let node = &cluster.nodes[0];
    let listed = cluster.headscale.node_named("node-1").unwrap();
    let own = listed["ip_addresses"][0].as_str().unwrap();
    let address = |verb: &str, address: &str, link: &str| {
        let line = ["ip", "address", verb, address, "dev", link];
        node.node.run(line).unwrap();
        node.reload();
    };
    address("add", &format!("{own}/32"), "lo");
    address("add", "100.99.0.1/24", UPLINK);
    let foreign = format!("{UPLINK} has 100.99.0.1,");
    let texts = [foreign.as_str(), "give the link another address"];
    let message = node.await_reported_false("NoAddressOverlap", &texts);
    assert!(!message.contains("lo has"), "{message}");
    address("delete", "100.99.0.1/24", UPLINK);
    node.await_reported_true("NoAddressOverlap");
    address("delete", &format!("{own}/32"), "lo");
}

/// The daemon keeps its configuration.
fn a_service_cidr_in_the_tailnet_range_is_refused(cluster: &MeshCluster) {
    let node = &cluster.nodes[0];
    let right = node.config(&cluster.headscale.url());
    let wrong = right.replace("network:\n", "network:\n  serviceCIDR: 100.96.0.0/16\n");
    assert_ne!(wrong, right);
    node.configure(&wrong).unwrap();
    node.reload();
    let texts = [
        "network.serviceCIDR",
        "100.64.0.0/10 is the tailnet's own",
        "use a private one",
    ];
    node.await_reported_false("ConfigurationLoaded", &texts);
    node.await_ready(JOIN_TIMEOUT).unwrap();
    node.configure(&right).unwrap();
    node.reload();
    node.await_reported_true("ConfigurationLoaded");
}

/// An administrator withdraws the approval, and the policy has no autoApprovers.
fn withdrawn_routes_are_approved_again(cluster: &mut MeshCluster, mut policy: Value) {
    policy["autoApprovers"] = json!({"routes": {}});
    cluster.headscale.set_policy(&policy).unwrap();
    cluster.headscale.approve_routes("node-1", &[]).unwrap();
    eventually(JOIN_TIMEOUT, "both routes are approved again", || {
        let listed = cluster.headscale.node_named("node-1").ok()?;
        (listed["approved_routes"].as_array()?.len() == 2).then_some(())
    })
    .unwrap();
    let node = &cluster.nodes[0];
    node.await_condition("RoutesServed", true, JOIN_TIMEOUT)
        .unwrap();
}

/// The daemon starts without a source for its pod CIDR.
fn routes_stay_advertised_while_the_pod_cidr_is_unknown(
    cluster: &mut MeshCluster,
    pods: &[AttachedPod],
) {
    connectivity::await_all_to_all(pods);
    let url = cluster.headscale.url();
    let node = &mut cluster.nodes[0];
    let right = node.config(&url);
    let node_local = format!("nodeLocal: {:?}, ", node.pod_cidrs());
    let unknown = right.replace(&node_local, "");
    assert_ne!(unknown, right);
    node.stop_daemon().unwrap();
    node.configure(&unknown).unwrap();
    node.start_daemon().unwrap();
    node.await_condition("PodCIDRKnown", false, JOIN_TIMEOUT)
        .unwrap();
    // By then it has reconciled the mesh once.
    node.await_condition("MeshJoined", true, JOIN_TIMEOUT)
        .unwrap();
    let listed = cluster.headscale.node_named("node-1").unwrap();
    for kind in ["available_routes", "approved_routes", "subnet_routes"] {
        let count = listed[kind].as_array().map_or(0, Vec::len);
        assert_eq!(count, 2, "{kind}: {listed}");
    }
    connectivity::assert_all_to_all(pods);
    node.configure(&right).unwrap();
    node.reload();
    node.await_ready(JOIN_TIMEOUT).unwrap();
}

fn an_unreachable_headscale_is_reported(cluster: &mut MeshCluster) {
    cluster.headscale.kill().unwrap();
    let url = cluster.headscale.url();
    let texts = [url.as_str(), "connection refused"];
    cluster.nodes[0].await_reported_false("HeadscaleReachable", &texts);
    cluster.headscale.restart().unwrap();
    cluster.nodes[0].await_reported_true("HeadscaleReachable");
}

/// What the fake Headscale answers.
#[derive(Clone, Copy)]
struct Answers {
    version: &'static str,
    /// Of its clock.
    skew: SignedDuration,
}

/// The node stays joined where it is: a server that is too old is never joined, and the fake gives no key.
fn an_old_headscale_and_clock_skew_are_reported(cluster: &MeshCluster) {
    let answers = Arc::new(Mutex::new(Answers {
        version: "v0.25.1",
        skew: SignedDuration::ZERO,
    }));
    let current = Arc::clone(&answers);
    let fake = Fake::start(&cluster.nodes[0].node, move |request| {
        let Answers { version, skew } = *current.lock().unwrap();
        let time = Timestamp::now() + skew;
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
    let node = &cluster.nodes[0];
    // Not even with a valid pre-auth key.
    let key = cluster.headscale.preauth_key(NODE_TAG).unwrap();
    node.sh("umask 077; touch /etc/headcni/auth-key").unwrap();
    node.node.write("/etc/headcni/auth-key", &key).unwrap();
    let with_key = "headscale:\n  preAuthKeyFile: /etc/headcni/auth-key\n";
    let with_key = node.config(&url).replace("headscale:\n", with_key);
    node.configure(&with_key).unwrap();
    node.reload();
    let texts = [url.as_str(), "0.25.1", "upgrade it to 0.26 or newer"];
    for condition in ["HeadscaleReachable", "MeshJoined"] {
        node.await_reported_false(condition, &texts);
    }
    let prefs = format!("{} debug prefs", node.tailscale_cli());
    let prefs = node.sh(&prefs).unwrap();
    assert!(prefs.contains(&cluster.headscale.url()), "{prefs}");
    node.configure(&node.config(&url)).unwrap();
    node.reload();

    let set_skew = |hours: i32| {
        *answers.lock().unwrap() = Answers {
            version: "v0.29.3",
            skew: SignedDuration::from_hours(hours.into()),
        };
    };
    let skew = || {
        let metrics = node.scrape().unwrap();
        metrics.sum("headcni_clock_skew_seconds", &[]).unwrap()
    };
    for (hours, side) in [(1, "seconds behind Headscale's"), (-1, "ahead of")] {
        set_skew(hours);
        node.await_reported_false("ClockInSync", &[side, "run NTP on both"]);
        let off = skew() + 3600.0 * f64::from(hours);
        assert!(off.abs() < 60.0, "{hours} h: {}", skew());
    }
    set_skew(0);
    node.await_reported_true("ClockInSync");
    assert!(skew().abs() < 30.0, "{}", skew());

    let right = node.config(&cluster.headscale.url());
    node.configure(&right).unwrap();
    node.reload();
    node.await_ready(JOIN_TIMEOUT).unwrap();
}

#[test]
fn a_node_with_an_overlapping_pod_cidr_is_refused_without_harm_to_the_first() {
    let mut cluster = MeshCluster::prepare(3);
    let url = cluster.headscale.url();
    for node in &mut cluster.nodes[..2] {
        node.start_daemon().unwrap();
    }
    for node in &cluster.nodes[..2] {
        node.await_ready(JOIN_TIMEOUT).unwrap();
    }
    let pods = [0, 1].map(|index: usize| cluster.nodes[index].pod("p").unwrap());
    eventually(JOIN_TIMEOUT, "pods reach each other", || {
        connectivity::tcp(&pods[1].pod, &pods[0].pod, pods[0].ips[0]).ok()
    })
    .unwrap();
    let [first, second] = &pods;
    let pings = [
        Pings::start(second, first).unwrap(),
        Pings::start(first, second).unwrap(),
    ];
    connectivity::await_direct(&cluster.nodes[..2]).unwrap();
    pings.iter().for_each(Pings::reset);

    let right = cluster.nodes[2].config(&url);
    // Equal, part of it, and a superset of both nodes' CIDRs.
    for network in ["10.244.1.0/24", "10.244.1.0/25", "10.244.0.0/22"] {
        let third = &mut cluster.nodes[2];
        let wrong = right.replace("10.244.3.0/24", network);
        third.configure(&wrong).unwrap();
        match third.daemon_pid() {
            Some(_) => third.signal(Signal::HUP),
            None => third.start_daemon().unwrap(),
        }
        let overlaps = match network {
            "10.244.1.0/24" => "node-1 also advertises 10.244.1.0/24".to_owned(),
            other => format!("node-1 advertises 10.244.1.0/24, which overlaps this node's {other}"),
        };
        let texts = [overlaps.as_str(), "its own pod CIDR (network.podCIDR"];
        third.await_reported_false("PodCIDRUnique", &texts);
        let (is_served, message) = third.condition("RoutesServed").unwrap();
        assert!(!is_served, "{message}");
        assert_ne!(third.get("/ready").unwrap().status, 200);
        if let Ok(node) = cluster.headscale.node_named("node-3") {
            assert!(!node.to_string().contains(network), "{node}");
        }
    }
    // The first node is not affected.
    cluster.nodes[0].await_ready(JOIN_TIMEOUT).unwrap();
    for pings in &pings {
        pings.assert_none_lost("another node claims the first node's pod CIDR");
    }
    drop(pings);

    let third = &cluster.nodes[2];
    third.configure(&right).unwrap();
    third.signal(Signal::HUP);
    third.await_ready(JOIN_TIMEOUT).unwrap();
    cluster.await_routes().unwrap();
    let third_pod = cluster.nodes[2].pod("p").unwrap();
    let all: Vec<_> = pods.into_iter().chain([third_pod]).collect();
    connectivity::assert_all_to_all(&all);
}
