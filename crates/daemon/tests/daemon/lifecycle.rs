//! Start, stop, restart and reload, without effect on running pods.

use std::time::{Duration, Instant};

use lab::Netns;
use lab::scenario::{CONFLIST, DaemonNode};

use crate::client;

#[test]
fn a_node_becomes_ready_and_pods_get_their_network() {
    let node = DaemonNode::new();
    let daemon = node.start_daemon();
    let pod = node.pod("p1");
    let result = node.add(&pod);
    assert_eq!(result["ips"][0]["address"], "10.244.1.2/24");
    pod.ping("10.244.1.1").unwrap();
    daemon.await_metric("headcni_ip_allocations_total{strategy=\"sequential\"}", 1.0);
    let pods = client(&node).pods().unwrap();
    assert_eq!(pods.len(), 1, "{pods:?}");
    assert_eq!(
        pods[0].ips,
        ["10.244.1.2".parse::<std::net::IpAddr>().unwrap()]
    );
    node.del(&pod);
    node.eventually("the pod is no longer listed", || {
        client(&node).pods().unwrap().is_empty().then_some(())
    });
    assert!(node.pod_links().is_empty());
}

#[test]
fn the_daemon_stops_in_time_and_pods_stay_connected() {
    let node = DaemonNode::new();
    let daemon = node.start_daemon();
    let (one, two) = (node.pod("p1"), node.pod("p2"));
    node.add(&one);
    node.add(&two);
    let start = Instant::now();
    let output = daemon.stop();
    assert!(output.status.success(), "{output:?}");
    assert!(
        start.elapsed() < Duration::from_secs(5),
        "{:?}",
        start.elapsed()
    );
    one.ping("10.244.1.3").unwrap();
    let three = node.pod("p3");
    node.add(&three);
    three.ping("10.244.1.2").unwrap();
    assert!(node.read(CONFLIST).is_some());
}

#[test]
fn a_second_daemon_refuses_to_start() {
    let node = DaemonNode::new();
    let daemon = node.start_daemon();
    let second = node.command(&["run"]);
    assert!(!second.status.success());
    let pid = daemon.running.pid().to_string();
    assert!(second.stderr.contains(&pid), "{second:?}");
    assert!(daemon.condition("SocketOpen").is_some());
}

#[test]
fn a_killed_daemon_lists_the_same_pods_after_a_restart() {
    let node = DaemonNode::new();
    let pods: Vec<_> = (0..5).map(|nth| node.pod(&format!("p{nth}"))).collect();
    let daemon = node.start_daemon();
    for pod in &pods {
        node.add(pod);
    }
    node.eventually("five pods are listed", || {
        (client(&node).pods().unwrap().len() == 5).then_some(())
    });
    let before = client(&node).pods().unwrap();
    daemon.kill();
    let daemon = node.start_daemon();
    let after = client(&node).pods().unwrap();
    assert_eq!(after, before);
    daemon.await_metric("headcni_pods", 5.0);
}

#[test]
fn a_pod_added_while_the_daemon_is_down_is_listed_after_its_start() {
    let node = DaemonNode::new();
    node.start_daemon().stop();
    let pod = node.pod("p1");
    node.add(&pod);
    let daemon = node.start_daemon();
    daemon.await_metric("headcni_pods", 1.0);
    let listed = client(&node).pods().unwrap();
    assert_eq!(listed.len(), 1, "{listed:?}");
    assert_eq!(listed[0].container, "p1");
}

#[test]
fn a_reload_applies_a_valid_configuration_and_refuses_an_invalid_one() {
    let node = DaemonNode::new();
    let daemon = node.start_daemon();
    node.configure(
        "network: {podCIDR: {nodeLocal: 10.244.1.0/24, base: 10.244.0.0/16}, mtu: 1400}",
    );
    daemon.reload();
    node.eventually("the MTU is in the configuration", || {
        node.read(CONFLIST)?.contains("1400").then_some(())
    });
    node.configure("network: {podCIDR: {nodeLocal: 10.244.1.0/24}, mtuu: 1300}");
    daemon.reload();
    let message = daemon.await_condition("ConfigurationLoaded", "False");
    assert!(message.contains("daemon.yaml:1:"), "{message}");
    assert!(node.read(CONFLIST).unwrap().contains("1400"));
    assert_eq!(
        daemon.get("/ready").unwrap().status,
        200,
        "the daemon keeps its configuration"
    );
    node.configure("network: {podCIDR: {nodeLocal: 10.244.1.0/24}}");
    daemon.reload();
    daemon.await_condition("ConfigurationLoaded", "True");
}

#[test]
fn a_reload_that_moves_the_lease_store_is_refused_while_pods_run() {
    let node = DaemonNode::new();
    let daemon = node.start_daemon();
    let pod = node.pod("p1");
    node.add(&pod);
    node.eventually("the pod is listed", || {
        (client(&node).pods().unwrap().len() == 1).then_some(())
    });
    let renamed =
        "{network: {podCIDR: {nodeLocal: 10.244.1.0/24, base: 10.244.0.0/16}}, cni: {name: other}}";
    node.configure(renamed);
    daemon.reload();
    let message = daemon.await_condition("ConfigurationLoaded", "False");
    assert!(message.contains("drain the node"), "{message}");
    assert_eq!(node.cni_conf()["name"], "headcni");
    node.del(&pod);
    node.eventually("the pod is no longer listed", || {
        client(&node).pods().unwrap().is_empty().then_some(())
    });
    daemon.reload();
    node.eventually("the network has its new name", || {
        (node.cni_conf()["name"] == "other").then_some(())
    });
}

#[test]
fn a_daemon_without_a_pod_cidr_is_healthy_and_not_ready() {
    let node = DaemonNode::with_config("network: {mtu: 1280}");
    let daemon = node.spawn_daemon();
    let message = daemon.await_condition("PodCIDRKnown", "False");
    assert!(message.contains("nodeLocal"), "{message}");
    assert_eq!(daemon.get("/healthz").unwrap().status, 200);
    assert_eq!(daemon.get("/ready").unwrap().status, 503);
    assert!(node.read(CONFLIST).is_none(), "no pod CIDR is guessed");
    // A kubelet configuration appears.
    node.sh(
        "mkdir -p /var/lib/kubelet; echo 'podCIDR: 10.9.9.0/24' > /var/lib/kubelet/config.yaml",
    );
    node.eventually("the node is ready", || {
        (daemon.get("/ready")?.status == 200).then_some(())
    });
    assert!(node.read(CONFLIST).unwrap().contains("10.9.9.0/24"));
}

#[test]
fn node_pod_cidr_is_used_unless_the_configuration_has_one() {
    let node = DaemonNode::with_config("network: {mtu: 1280}");
    let daemon = node.spawn_daemon_with_env(&[("NODE_POD_CIDR", "10.7.7.0/24")]);
    daemon.await_ready();
    let known = client(&node).pod_cidr().unwrap();
    assert_eq!(known.source.as_deref(), Some("NODE_POD_CIDR"));
    node.configure("network: {podCIDR: {nodeLocal: 10.244.1.0/24}}");
    daemon.reload();
    node.eventually("the configuration takes precedence", || {
        node.read(CONFLIST)?.contains("10.244.1.0/24").then_some(())
    });
}
