//! Files and kernel state that others damage are repaired, and failed writes are retried.

use std::time::Duration;

use lab::scenario::{CONFLIST, DaemonNode};
use lab::{Netns, eventually};

/// Repairs take less than a second on an idle machine.
const REPAIR_TIMEOUT: Duration = Duration::from_secs(5);

#[track_caller]
fn await_repaired(what: &str, probe: impl FnMut() -> Option<()>) {
    eventually(REPAIR_TIMEOUT, what, probe).unwrap();
}

/// A lost ping must not use up the timeout.
fn quick_ping(address: &str) -> [&str; 7] {
    ["ping", "-n", "-c", "1", "-W", "1", address]
}

#[test]
fn a_deleted_or_edited_conflist_is_restored_within_5_seconds() {
    let node = DaemonNode::new();
    let _daemon = node.start_daemon();
    let right = node.read(CONFLIST).unwrap();
    for damage in [
        format!("rm {CONFLIST}"),
        format!("echo nonsense > {CONFLIST}"),
        "rm -rf /etc/cni".to_owned(),
        format!("rm {CONFLIST}; mkdir {CONFLIST}; rmdir {CONFLIST}"),
    ] {
        node.sh(&damage);
        await_repaired(&damage, || (node.read(CONFLIST)? == right).then_some(()));
    }
    node.sh("rm /run/headcni/subnet.env");
    await_repaired("subnet.env", || {
        node.read("/run/headcni/subnet.env").map(drop)
    });
}

#[test]
fn deleted_kernel_state_is_restored_within_5_seconds_and_pods_stay_connected() {
    let node = DaemonNode::with_config(
        "network: {podCIDR: {nodeLocal: \"10.244.1.0/24,fd00:1::/64\", base: \"10.244.0.0/16,fd00::/16\"}}",
    );
    let _daemon = node.start_daemon();
    let (one, two) = (node.pod("p1"), node.pod("p2"));
    node.add(&one);
    let result = node.add(&two);
    let addresses: Vec<String> = result["ips"]
        .as_array()
        .unwrap()
        .iter()
        .map(|ip| {
            ip["address"]
                .as_str()
                .unwrap()
                .split('/')
                .next()
                .unwrap()
                .to_owned()
        })
        .collect();
    let link = node.pod_links()[0].clone();
    for damage in [
        "nft flush ruleset".to_owned(),
        "nft delete table inet headcni".to_owned(),
        "ip rule del priority 5190; ip -6 rule del priority 5190".to_owned(),
        "ip route del unreachable 10.244.1.0/24 metric 4000000".to_owned(),
        "ip address del 10.244.1.1/32 dev lo".to_owned(),
        "sysctl -qw net.ipv4.ip_forward=0".to_owned(),
        format!("ip link set {link} down; ip link set {link} up"),
    ] {
        node.sh(&damage);
        let is_complete = || {
            let tables = node.sh("nft list tables");
            let rules = node.sh("ip rule; ip -6 rule");
            let routes = node.sh("ip route show table main type unreachable");
            let forward = node.sh("cat /proc/sys/net/ipv4/ip_forward");
            (tables.lines().any(|line| line == "table inet headcni")
                && tables.contains("headcni-ports")
                && rules.matches("5190:").count() == 2
                && routes.contains("10.244.1.0/24")
                && forward.trim() == "1"
                && node.sh("ip address show lo").contains("10.244.1.1/32"))
            .then_some(())
        };
        await_repaired(&damage, is_complete);
        await_repaired(&format!("traffic after: {damage}"), || {
            addresses
                .iter()
                .all(|address| one.run(quick_ping(address)).is_ok())
                .then_some(())
        });
    }
}

#[test]
fn a_failed_write_is_reported_and_retried_until_it_succeeds() {
    let node = DaemonNode::new();
    node.sh("mount -t tmpfs -o size=64k tmpfs /etc/cni/net.d; head -c 1M /dev/zero > /etc/cni/net.d/filler || true");
    let daemon = node.spawn_daemon();
    let message = daemon.await_condition("CNIConfigWritten", "False");
    assert!(message.contains("10-headcni.conflist"), "{message}");
    assert_eq!(daemon.get("/healthz").unwrap().status, 200);
    node.sh("rm /etc/cni/net.d/filler");
    daemon.await_condition("CNIConfigWritten", "True");
    node.sh("mount -o remount,ro /etc/cni/net.d");
    node.configure(
        "network: {podCIDR: {nodeLocal: 10.244.1.0/24, base: 10.244.0.0/16}, mtu: 1400}",
    );
    daemon.reload();
    let message = daemon.await_condition("CNIConfigWritten", "False");
    assert!(message.to_lowercase().contains("read-only"), "{message}");
    node.sh("mount -o remount,rw /etc/cni/net.d");
    node.eventually("it is written", || {
        node.read(CONFLIST)?.contains("1400").then_some(())
    });
    daemon.await_ready();
}
