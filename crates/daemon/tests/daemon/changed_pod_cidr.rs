//! The pod CIDR of a node changes.

use lab::Netns;
use lab::scenario::{CONFLIST, DaemonNode};

use crate::client;

#[test]
fn new_pods_use_the_new_pod_cidr_and_old_pods_stay_reachable() {
    let node = DaemonNode::new();
    let daemon = node.start_daemon();
    let old = node.pod("p1");
    node.add(&old);
    node.configure("network: {podCIDR: {nodeLocal: 10.244.2.0/24, base: 10.244.0.0/16}}");
    daemon.reload();
    node.eventually("the conflist has the new pod CIDR", || {
        node.read(CONFLIST)?.contains("10.244.2.0/24").then_some(())
    });
    daemon.await_ready();
    node.eventually("the old pod CIDR is removed", || {
        let all = node.sh("ip rule; ip route show table all; ip address show lo");
        let is_gone = !all.contains("10.244.1.0/24") && !all.contains("10.244.1.1/32");
        (is_gone && all.contains("10.244.2.0/24") && all.contains("10.244.2.1/32")).then_some(())
    });
    let new = node.pod("p2");
    let result = node.add(&new);
    assert_eq!(result["ips"][0]["address"], "10.244.2.2/24");
    new.ping("10.244.1.2").unwrap();
    old.ping("10.244.2.2").unwrap();
    node.node.ping("10.244.1.2").unwrap();
    // Both survive a link flap.
    for link in node.pod_links() {
        node.sh(&format!("ip link set {link} down; ip link set {link} up"));
    }
    let quick_ping = ["ping", "-n", "-c", "1", "-W", "1", "10.244.1.2"];
    node.eventually("they reach each other again", || new.run(quick_ping).ok());
    let known = client(&node).pod_cidr().unwrap();
    assert_eq!(known.local, ["10.244.2.0/24".parse().unwrap()]);
    node.del(&old);
    node.del(&new);
    assert!(node.leases().is_empty(), "{:?}", node.leases());
    assert!(node.pod_links().is_empty());
    daemon.stop();
    let done = node.command(&["uninstall"]);
    assert!(done.status.success(), "{done:?}");
}

#[test]
fn of_many_changes_in_a_row_the_last_one_takes_effect() {
    let node = DaemonNode::new();
    let daemon = node.start_daemon();
    for nth in 2..30 {
        node.configure(&format!(
            "network: {{podCIDR: {{nodeLocal: 10.244.{nth}.0/24, base: 10.244.0.0/16}}, mtu: 13{nth:02}}}"
        ));
        daemon.reload();
    }
    node.eventually("the last one is written", || {
        let conflist = node.read(CONFLIST)?;
        (conflist.contains("10.244.29.0/24") && conflist.contains("1329")).then_some(())
    });
    node.eventually("and nothing else remains", || {
        let all = node.sh("ip rule; ip route show table all; ip address show lo");
        let mut networks: Vec<&str> = all
            .split_whitespace()
            .filter(|word| word.starts_with("10.244."))
            .collect();
        networks.sort_unstable();
        networks.dedup();
        let wanted = ["10.244.29.0/24", "10.244.29.1", "10.244.29.1/32"];
        networks
            .iter()
            .all(|word| wanted.contains(word))
            .then_some(())
    });
    daemon.await_ready();
}

#[test]
fn a_gateway_can_change_together_with_the_pod_cidr() {
    let configuration = |nth: u8| {
        format!(
            "network: {{podCIDR: {{nodeLocal: 10.244.{nth}.0/24, base: 10.244.0.0/16}}}}
ipam: {{gateway: 10.244.{nth}.254}}"
        )
    };
    let node = DaemonNode::with_config(&configuration(1));
    let daemon = node.start_daemon();
    for nth in 2..12 {
        node.configure(&configuration(nth));
        daemon.reload();
        node.eventually("conflist and gateway are updated", || {
            let conflist = node.read(CONFLIST)?;
            let is_written = conflist.contains(&format!("10.244.{nth}.0/24"))
                && conflist.contains(&format!("10.244.{nth}.254"));
            let gateway = format!("10.244.{nth}.254/32");
            (is_written && node.sh("ip address show lo").contains(&gateway)).then_some(())
        });
        daemon.await_ready();
        let errors = daemon.metric("headcni_reconcile_errors_total{controller=\"cniconf\"}");
        assert_eq!(errors, None, "no reconcile failed");
    }
    let log = daemon.stop().stderr;
    assert!(
        !log.contains("condition is False"),
        "no condition was False: {log}"
    );
}
