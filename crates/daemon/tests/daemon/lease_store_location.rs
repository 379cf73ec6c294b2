//! The location of the lease store changes only when no pod has a lease, also by a restart.

use lab::scenario::{CONFLIST, DaemonNode};
use lab::{Netns, Pod};
use serde_json::Value;

use crate::client;

const NETWORK: &str = "network: {podCIDR: {nodeLocal: 10.244.1.0/24, base: 10.244.0.0/16}}";

fn configuration(more: &str) -> String {
    format!("{NETWORK}\n{more}")
}

/// Runs cnitool with the node's conflist.
#[track_caller]
fn cnitool(node: &DaemonNode, verb: &str, pod: &Pod) -> Value {
    let tool = node
        .node
        .cnitool("/etc/cni/net.d", verb, "headcni", pod.netns_path())
        .path("/opt/cni/bin");
    let outcome = tool.run().unwrap();
    outcome.ok().unwrap();
    outcome.json.unwrap_or_default()
}

/// Restarts the daemon with a configuration that moves the lease store while a pod runs. New pods use the
/// old store until all pods are deleted.
#[track_caller]
fn assert_deferred(before: &str, after: &str, is_new: impl Fn(&Value) -> bool) {
    let node = DaemonNode::with_config(&configuration(before));
    let (one, two) = (node.pod("p1"), node.pod("p2"));
    let daemon = node.start_daemon();
    let old_conf = node.cni_conf();
    let first = node.add(&one);
    daemon.stop();

    node.configure(&configuration(after));
    let daemon = node.spawn_daemon();
    let message = daemon.await_condition("CNIConfigWritten", "False");
    assert!(message.contains("1 running pods"), "{message}");
    assert!(message.contains("drain the node"), "{message}");
    assert_eq!(node.cni_conf(), old_conf, "nothing is changed");
    let second = node.add(&two);
    assert_ne!(first["ips"], second["ips"]);
    two.ping("10.244.1.2").unwrap();

    for pod in [&one, &two] {
        let call = node.call("DEL").pod(pod).conf(&old_conf);
        let deleted = call.run(&node.node, lab::tools::headcni()).unwrap();
        deleted.ok().unwrap();
    }
    let message = daemon.await_condition("CNIConfigWritten", "True");
    assert!(is_new(&node.cni_conf()), "{message}");
    daemon.stop();
    let state = node.read("/var/lib/headcni/leases.json").unwrap();
    assert_eq!(state.matches("\"network\"").count(), 1, "{state}");
}

#[test]
fn a_new_network_name_takes_effect_when_no_pods_run() {
    assert_deferred("", "cni: {name: other}", |conf| conf["name"] == "other");
}

#[test]
fn a_new_data_dir_takes_effect_when_no_pods_run() {
    assert_deferred("", "ipam: {dataDir: /var/lib/leases}", |conf| {
        conf["ipam"]["dataDir"] == "/var/lib/leases"
    });
}

#[test]
fn a_new_ipam_type_takes_effect_when_no_pods_run() {
    assert_deferred(
        "ipam: {dataDir: /var/lib/headcni-leases/headcni}",
        "ipam: {type: host-local, dataDir: /var/lib/headcni-leases/headcni}",
        |conf| conf["ipam"]["type"] == "host-local",
    );
}

#[test]
fn a_lost_or_truncated_state_file_is_recovered_from_the_conflist() {
    for spoil in [
        "rm /var/lib/headcni/leases.json",
        "truncate -s 20 /var/lib/headcni/leases.json",
    ] {
        let node = DaemonNode::new();
        let pod = node.pod("p1");
        let daemon = node.start_daemon();
        node.add(&pod);
        daemon.stop();
        node.sh(spoil);
        node.configure(&configuration("cni: {name: other}"));
        let daemon = node.spawn_daemon();
        daemon.await_condition("CNIConfigWritten", "False");
        // The proposed remedy.
        node.configure(&configuration(""));
        daemon.reload();
        daemon.await_condition("CNIConfigWritten", "True");
        assert_eq!(node.cni_conf()["name"], "headcni");
    }
}

#[test]
fn leases_without_a_running_pod_do_not_defer_the_change() {
    let node = DaemonNode::new();
    let pod = node.pod("p1");
    let daemon = node.start_daemon();
    node.add(&pod);
    daemon.stop();
    // As after a reboot: only lease and record remain.
    pod.delete().unwrap();
    node.eventually("the link is gone", || {
        node.pod_links().is_empty().then_some(())
    });
    assert_eq!(node.leases().len(), 1);
    node.configure(&configuration("cni: {name: other}"));
    let daemon = node.start_daemon();
    assert_eq!(node.cni_conf()["name"], "other");
    daemon.stop();
}

#[test]
fn bridged_pods_without_a_record_defer_the_change() {
    let node = DaemonNode::with_config(&configuration("cni: {mode: bridge}"));
    let pod = node.pod("p1");
    let daemon = node.start_daemon();
    cnitool(&node, "add", &pod);
    daemon.stop();
    node.configure(&configuration(
        "cni: {mode: bridge}\nipam: {dataDir: /var/lib/leases}",
    ));
    let daemon = node.spawn_daemon();
    let message = daemon.await_condition("CNIConfigWritten", "False");
    assert!(message.contains("1 running pods"), "{message}");
    assert!(!node.read(CONFLIST).unwrap().contains("/var/lib/leases"));
    // A reload is refused with the same message.
    node.configure(&configuration(
        "cni: {mode: bridge}\nipam: {dataDir: /var/lib/others}",
    ));
    daemon.reload();
    let refused = daemon.await_condition("ConfigurationLoaded", "False");
    assert!(refused.contains("1 running pods"), "{refused}");
    cnitool(&node, "del", &pod);
    daemon.await_condition("CNIConfigWritten", "True");
    assert!(node.read(CONFLIST).unwrap().contains("/var/lib/leases"));
    daemon.stop();
    let done = node.command(&["uninstall"]);
    assert!(done.status.success(), "{done:?}");
    assert!(node.read("/var/lib/headcni/leases.json").is_none());
}

#[test]
fn leases_are_listed_for_every_ipam_type_and_data_dir() {
    for ipam in [
        "{dataDir: /var/lib/leases}",
        "{dataDir: /var/lib/leases/headcni}",
        "{type: host-local, dataDir: /var/lib/leases}",
        "{type: host-local, dataDir: /var/lib/leases/headcni}",
    ] {
        let node = DaemonNode::with_config(&configuration(&format!("ipam: {ipam}")));
        let pod = node.pod("p1");
        let daemon = node.start_daemon();
        node.add(&pod);
        node.eventually("the pod is listed", || {
            (client(&node).pods().unwrap().len() == 1).then_some(())
        });
        let leases = client(&node).leases().unwrap();
        assert_eq!(leases.len(), 1, "{ipam}: {leases:?}");
        assert_eq!(leases[0].container, "p1", "{ipam}");
        daemon.stop();
        let daemon = node.start_daemon();
        daemon.await_metric("headcni_ip_pool_used{family=\"ipv4\"}", 1.0);
        daemon.stop();
    }
}
