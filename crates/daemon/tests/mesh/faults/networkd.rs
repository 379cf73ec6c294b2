//! A real systemd-networkd, which deletes foreign ip rules.

use std::fs;
use std::path::Path;
use std::process::Stdio;

use lab::scenario::{JOIN_TIMEOUT, MeshNode};
use lab::{Netns, Running, eventually};

use super::{KERNEL_RESTORE, ip_rules, with_two_nodes};

const PROGRAM: &str = "/lib/systemd/systemd-networkd";
const LOG: &str = "/run/networkd.log";
/// The drop-in that the daemon writes.
const DROP_IN: &str = "/etc/systemd/networkd.conf.d/90-headcni.conf";
/// It manages the uplink, whose addresses the lab has set, and links that are added later.
const NETWORKS: [(&str, &str); 2] = [
    (
        "/etc/systemd/network/10-uplink.network",
        "[Match]\nName=eth0\n[Network]\nKeepConfiguration=yes\nIPv6AcceptRA=no\nLinkLocalAddressing=no\n",
    ),
    (
        "/etc/systemd/network/20-later.network",
        "[Match]\nName=later*\n[Network]\nIPv6AcceptRA=no\nLinkLocalAddressing=no\n",
    ),
];
/// Its log message for a deleted rule.
const REMOVING: &str = "Removing foreign routing policy rule";

/// Runs networkd until it has configured a new link; returns its log. With a link it deletes foreign rules.
/// With udev it also does so at start; without, it has its first links before it has read the rules.
fn run_networkd(node: &MeshNode, link: &str) -> String {
    let before = log(node).len();
    let since = || log(node).split_off(before);
    let mut command = node.node.command("sh");
    command
        .args(["-c", "exec \"$@\" >>\"$0\" 2>&1", LOG, PROGRAM])
        .env("SYSTEMD_LOG_LEVEL", "debug")
        .env("SYSTEMD_LOG_TARGET", "console")
        .stdin(Stdio::null());
    let networkd = Running::spawn(&mut command, b"").unwrap();
    let await_configured = |link: &str| {
        let end = format!("{link}: State changed: configuring -> configured");
        eventually(
            JOIN_TIMEOUT,
            &format!("networkd has configured {link}"),
            || since().contains(&end).then_some(()),
        )
        .unwrap_or_else(|error| panic!("{error}: {}", since()));
    };
    await_configured("eth0");
    node
        .sh(&format!("ip link add {link} type veth peer name {link}p; ip link set {link} up; ip link set {link}p up"))
        .unwrap();
    await_configured(link);
    networkd.kill();
    networkd.wait(lab::DEADLINE).unwrap();
    since()
}

fn log(node: &MeshNode) -> String {
    fs::read_to_string(node.file(LOG)).unwrap_or_default()
}

fn await_file(node: &MeshNode, is_there: bool) {
    node.reload();
    eventually(JOIN_TIMEOUT, "the drop-in is written or removed", || {
        (node.file(DROP_IN).exists() == is_there).then_some(())
    })
    .unwrap_or_else(|error| panic!("{error:#}\n{}", node.diagnostics()));
}

#[test]
fn networkd_leaves_our_rules_alone_or_they_are_restored() {
    assert!(
        Path::new(PROGRAM).is_file(),
        "no {PROGRAM}: run \"make tools\", which installs Debian's package of systemd"
    );
    with_two_nodes(|cluster, traffic| {
        let node = &cluster.nodes[0];
        for (path, text) in NETWORKS {
            node.node.write(path, text).unwrap();
        }
        // A read-only /sys tells networkd that there is no udev to wait for.
        node.sh("mount -o remount,ro /sys
                 mkdir -p /run/systemd/netif/links /run/systemd/netif/leases /run/systemd/netif/lldp
                 chown -R systemd-network:systemd-network /run/systemd/netif")
            .unwrap();
        let ours = ip_rules(node);
        assert_eq!(ours.lines().count(), 6, "{ours}");

        await_file(node, true);
        traffic.assert_outage("systemd-networkd with the drop-in", KERNEL_RESTORE, || {
            let log = run_networkd(node, "later1");
            assert!(!log.contains(REMOVING), "{log}");
        });
        assert_eq!(ip_rules(node), ours);

        let config = node.config(&cluster.headscale.url());
        let config = config.replace("network:\n", "network:\n  unmanagedLinks: off\n");
        node.configure(&config).unwrap();
        await_file(node, false);
        traffic.assert_outage("rules deleted by systemd-networkd", KERNEL_RESTORE, || {
            let log = run_networkd(node, "later2");
            let removed = log.lines().filter(|line| line.contains(REMOVING));
            let removed: Vec<&str> = removed.collect();
            for priority in ["5190", "5195", "5200"] {
                let of = format!("priority: {priority},");
                let count = removed.iter().filter(|line| line.contains(&of)).count();
                assert!(count >= 2, "both families of {priority}: {removed:#?}");
            }
            eventually(JOIN_TIMEOUT, "our rules are back", || {
                (ip_rules(node) == ours).then_some(())
            })
            .unwrap_or_else(|error| panic!("{error:#}\n{}", ip_rules(node)));
        });
        node.await_ready(JOIN_TIMEOUT).unwrap();
    });
}
