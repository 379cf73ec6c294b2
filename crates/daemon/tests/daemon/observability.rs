//! Metrics and logs.

use std::collections::BTreeMap;
use std::time::Duration;

use lab::scenario::{Daemon, DaemonNode};
use lab::tools;
use serde_json::Value;

const JSON: &str = "network: {podCIDR: {nodeLocal: 10.244.1.0/24, base: 10.244.0.0/16}}
logging: {format: json}";
const LABELS: &str = "network: {podCIDR: {nodeLocal: 10.244.1.0/24, base: 10.244.0.0/16}}
monitoring: {podLabels: true}";
const POD: &str = "IgnoreUnknown=1;K8S_POD_NAMESPACE=shop;K8S_POD_NAME=cart-0;K8S_POD_UID=u";

/// An ADD that succeeds, one that fails, and a DEL.
fn three_calls(node: &DaemonNode) {
    let pod = node.pod("p1");
    let call = |verb: &str| node.call(verb).pod(&pod).args(POD).conf(&node.cni_conf());
    let run = |verb: &str| call(verb).run(&node.node, tools::headcni()).unwrap();
    run("ADD").ok().unwrap();
    let failing = call("ADD").container_id("p2").netns("/run/netns/absent");
    let failed = failing.run(&node.node, tools::headcni()).unwrap();
    assert!(!failed.status.success(), "{failed:?}");
    run("DEL").ok().unwrap();
}

/// Metric types by name.
fn types(body: &str) -> BTreeMap<&str, &str> {
    let lines = body.lines().filter_map(|line| line.strip_prefix("# TYPE "));
    lines.filter_map(|line| line.split_once(' ')).collect()
}

#[track_caller]
fn await_call(daemon: &Daemon<'_>) {
    let series = "headcni_cni_call_duration_seconds_count{verb=\"DEL\",outcome=\"ok\"}";
    daemon.await_metric(series, 1.0);
}

#[test]
fn every_documented_metric_exists_with_its_type() {
    let node = DaemonNode::new();
    let daemon = node.start_daemon();
    three_calls(&node);
    await_call(&daemon);
    let body = daemon.get("/metrics").unwrap().body;
    let types = types(&body);
    // The type line of a counter has `_total` or not, by format.
    for (name, kind) in [
        ("headcni_pod_network_setup_duration_seconds", "histogram"),
        ("headcni_ip_allocations_total", "counter"),
        ("headcni_network_errors_total", "counter"),
    ] {
        let found = types
            .get(name)
            .or_else(|| types.get(name.strip_suffix("_total").unwrap_or(name)));
        assert_eq!(found, Some(&kind), "{name}: {body}");
    }
    daemon.await_metric("headcni_ip_allocations_total{strategy=\"sequential\"}", 1.0);
    let setups: Vec<&str> = body
        .lines()
        .filter(|line| line.starts_with("headcni_pod_network_setup_duration_seconds_count"))
        .collect();
    // With or without empty braces.
    let [setup] = setups.as_slice() else {
        panic!("{body}");
    };
    let setup = setup.replace("{}", "");
    assert_eq!(setup, "headcni_pod_network_setup_duration_seconds_count 1");
    let errors: f64 = body
        .lines()
        .filter(|line| line.starts_with("headcni_network_errors_total{error_type="))
        .map(|line| line.rsplit(' ').next().unwrap().parse::<f64>().unwrap())
        .sum();
    assert!((errors - 1.0).abs() < 0.001, "{body}");
    assert!(!body.contains("cart-0") && !body.contains("shop"), "{body}");
    assert!(
        !body.contains("pod_name") && !body.contains("namespace="),
        "{body}"
    );
    assert!(
        !body.contains("10.244.1.2"),
        "no label has an address: {body}"
    );
}

#[test]
fn pod_labels_are_optional_and_removed_with_the_pod() {
    let node = DaemonNode::with_config(LABELS);
    let daemon = node.start_daemon();
    let pod = node.pod("p1");
    let call = |verb: &str| {
        let call = node.call(verb).pod(&pod).args(POD).conf(&node.cni_conf());
        let outcome = call.run(&node.node, tools::headcni()).unwrap();
        outcome.ok().unwrap();
    };
    call("ADD");
    let labels = "namespace=\"shop\",pod_name=\"cart-0\"";
    let series = format!("headcni_pod_network_setup_duration_seconds_count{{{labels}}}");
    daemon.await_metric(&series, 1.0);
    call("DEL");
    node.eventually("its series are removed", || {
        (!daemon.get("/metrics")?.body.contains("cart-0")).then_some(())
    });
}

#[test]
fn a_fatal_error_is_logged_as_json() {
    let node = DaemonNode::with_config(JSON);
    let _first = node.start_daemon();
    let second = node.command(&["run"]);
    assert!(!second.status.success(), "{second:?}");
    let mut lines = second.stderr.lines();
    let last: Value = serde_json::from_str(lines.next_back().unwrap()).unwrap();
    assert!(last.to_string().contains("stop it first"), "{last}");
    for line in lines {
        serde_json::from_str::<Value>(line).unwrap_or_else(|_| panic!("{line}"));
    }
}

#[test]
fn the_address_pool_is_measured() {
    let node = DaemonNode::new();
    let daemon = node.start_daemon();
    daemon.await_metric("headcni_ip_pool_size{family=\"ipv4\"}", 253.0);
    daemon.await_condition("IPsAvailable", "True");
    let pod = node.pod("p1");
    node.add(&pod);
    daemon.await_metric("headcni_pods", 1.0);
}

#[test]
fn profiles_are_off_by_default() {
    let node = DaemonNode::new();
    let daemon = node.start_daemon();
    for path in [
        "/debug/pprof",
        "/debug/pprof/",
        "/debug/pprof/profile?seconds=1",
    ] {
        assert_eq!(daemon.get(path).unwrap().status, 404, "{path}");
    }
}

#[test]
fn every_log_line_is_json_and_an_idle_daemon_logs_nothing() {
    let node = DaemonNode::with_config(JSON);
    let daemon = node.start_daemon();
    let pod = node.pod("p1");
    node.add(&pod);
    daemon.await_metric("headcni_pods", 1.0);
    // Silence can only be proved by waiting.
    std::thread::sleep(Duration::from_secs(20));
    let log = daemon.stop().stderr;
    let mut seen: BTreeMap<String, usize> = BTreeMap::new();
    for line in log.lines() {
        let mut event: Value = serde_json::from_str(line).unwrap_or_else(|_| panic!("{line}"));
        let object = event.as_object_mut().unwrap();
        let times: Vec<String> = object
            .keys()
            .filter(|key| key.starts_with("time") || *key == "ts")
            .cloned()
            .collect();
        assert_eq!(times.len(), 1, "{line}");
        object.remove(&times[0]);
        *seen.entry(event.to_string()).or_default() += 1;
    }
    let again: Vec<_> = seen.iter().filter(|(_, count)| **count > 1).collect();
    assert!(again.is_empty(), "{again:#?}");
    assert!(
        !log.contains("condition is False"),
        "a start logs no False condition: {log}"
    );
    let holds = |name: &str| {
        let is_it = |line: &&str| line.contains("condition is True") && line.contains(name);
        log.lines().filter(is_it).count()
    };
    for name in [
        "PodCIDRKnown",
        "CNIConfigWritten",
        "NetworkReady",
        "SocketOpen",
    ] {
        assert_eq!(holds(name), 1, "{name}: {log}");
    }
}
