//! A real systemd-networkd, which takes away what it did not make itself, starts and starts again.

use std::fs;
use std::process::Stdio;

use lab::{JOINED, Member, Netns, Running, eventually};

use super::with_two_nodes;

const PROGRAM: &str = "/lib/systemd/systemd-networkd";
const LOG: &str = "/run/networkd.log";
/// It keeps the uplink's addresses, which the lab has set.
const NETWORK: &str = "[Match]\nName=eth0\n[Network]\nKeepConfiguration=yes\nIPv6AcceptRA=no\nLinkLocalAddressing=no\n";

/// Starts it, in charge of the uplink, and waits until it has done all it does.
fn networkd(member: &Member<'_>) -> Running {
    // Where there is no udev, it can be known by this that there is none to wait for.
    member
        .sh("mount -o remount,ro /sys
             mkdir -p /run/systemd/netif/links /run/systemd/netif/leases /run/systemd/netif/lldp
             chown -R systemd-network:systemd-network /run/systemd/netif")
        .unwrap();
    let before = configured(member);
    let mut command = member.node.command("sh");
    command
        .args(["-c", "exec \"$@\" >>\"$0\" 2>&1", LOG, PROGRAM])
        .env("SYSTEMD_LOG_LEVEL", "debug")
        .env("SYSTEMD_LOG_TARGET", "console")
        .stdin(Stdio::null());
    let running = Running::spawn(&mut command, b"").unwrap();
    eventually(JOINED, "networkd has configured the uplink", || {
        (configured(member) > before).then_some(())
    })
    .unwrap_or_else(|error| panic!("{error}: {}", log(member)));
    running
}

fn log(member: &Member<'_>) -> String {
    fs::read_to_string(member.file(LOG)).unwrap_or_default()
}

fn configured(member: &Member<'_>) -> usize {
    log(member).matches("-> configured").count()
}

#[test]
fn systemd_networkd_takes_nothing_away_for_long() {
    with_two_nodes(|cluster, talk| {
        let member = &cluster.members[0];
        let path = "/etc/systemd/network/10-uplink.network";
        member.node.write(path, NETWORK).unwrap();
        for what in ["systemd-networkd started", "systemd-networkd started again"] {
            talk.silence(what, || {
                let networkd = networkd(member);
                networkd.kill();
                networkd.wait(lab::DEADLINE).unwrap();
            });
            member.await_ready(JOINED).unwrap();
        }
    });
}
