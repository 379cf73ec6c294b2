//! A real systemd-networkd, which takes away what it did not make itself.

use std::fs;
use std::path::Path;
use std::process::Stdio;

use lab::{JOIN_TIMEOUT, MeshNode, Netns, Running, Signal, eventually};

use super::{PUT_BACK, our_rules, with_two_nodes};

const PROGRAM: &str = "/lib/systemd/systemd-networkd";
const LOG: &str = "/run/networkd.log";
/// What the daemon tells it.
const KEEP_OFF: &str = "/etc/systemd/networkd.conf.d/90-headcni.conf";
/// What it is in charge of: the uplink, whose addresses the lab has set, and links that come later.
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
/// How it tells that it takes a rule away.
const REMOVING: &str = "Removing foreign routing policy rule";

/// Starts it and gives it a new link; what it said until it had configured that. With a link it takes
/// all rules away that it did not make. Where there is an udev it does so at its start, too; without one
/// it has its first links before it has asked for the rules.
fn live(member: &MeshNode, link: &str) -> String {
    let before = log(member).len();
    let since = || log(member).split_off(before);
    let mut command = member.node.command("sh");
    command
        .args(["-c", "exec \"$@\" >>\"$0\" 2>&1", LOG, PROGRAM])
        .env("SYSTEMD_LOG_LEVEL", "debug")
        .env("SYSTEMD_LOG_TARGET", "console")
        .stdin(Stdio::null());
    let networkd = Running::spawn(&mut command, b"").unwrap();
    let await_configured = |link: &str| {
        let end = format!("{link}: State changed: configuring -> configured");
        eventually(JOIN_TIMEOUT, &format!("networkd has configured {link}"), || {
            since().contains(&end).then_some(())
        })
        .unwrap_or_else(|error| panic!("{error}: {}", since()));
    };
    await_configured("eth0");
    member
        .sh(&format!("ip link add {link} type veth peer name {link}p; ip link set {link} up; ip link set {link}p up"))
        .unwrap();
    await_configured(link);
    networkd.kill();
    networkd.wait(lab::DEADLINE).unwrap();
    since()
}

fn log(member: &MeshNode) -> String {
    fs::read_to_string(member.file(LOG)).unwrap_or_default()
}

fn await_file(member: &MeshNode, is_there: bool) {
    member.signal(Signal::HUP);
    eventually(JOIN_TIMEOUT, "networkd is told otherwise", || {
        (member.file(KEEP_OFF).exists() == is_there).then_some(())
    })
    .unwrap_or_else(|error| panic!("{error:#}\n{}", member.told()));
}

#[test]
fn systemd_networkd_is_kept_off_or_what_it_takes_away_is_put_back() {
    assert!(
        Path::new(PROGRAM).is_file(),
        "no {PROGRAM}: run \"make tools\", which installs Debian's package of systemd"
    );
    with_two_nodes(|cluster, talk| {
        let member = &cluster.members[0];
        for (path, text) in NETWORKS {
            member.node.write(path, text).unwrap();
        }
        // Where there is no udev, it can be known by this that there is none to wait for.
        member
            .sh("mount -o remount,ro /sys
                 mkdir -p /run/systemd/netif/links /run/systemd/netif/leases /run/systemd/netif/lldp
                 chown -R systemd-network:systemd-network /run/systemd/netif")
            .unwrap();
        let ours = our_rules(member);
        assert_eq!(ours.lines().count(), 6, "{ours}");

        await_file(member, true);
        talk.silence("systemd-networkd told to keep off", PUT_BACK, || {
            let said = live(member, "later1");
            assert!(!said.contains(REMOVING), "{said}");
        });
        assert_eq!(our_rules(member), ours);

        let config = member.config(&cluster.headscale.url());
        let config = config.replace("network:\n", "network:\n  keepOff: off\n");
        member.configure(&config).unwrap();
        await_file(member, false);
        talk.silence("our rules taken away by systemd-networkd", PUT_BACK, || {
            let said = live(member, "later2");
            let removed = said.lines().filter(|line| line.contains(REMOVING));
            let removed: Vec<&str> = removed.collect();
            for priority in ["5190", "5195", "5200"] {
                let of = format!("priority: {priority},");
                let count = removed.iter().filter(|line| line.contains(&of)).count();
                assert!(count >= 2, "both families of {priority}: {removed:#?}");
            }
            eventually(JOIN_TIMEOUT, "our rules are back", || {
                (our_rules(member) == ours).then_some(())
            })
            .unwrap_or_else(|error| panic!("{error:#}\n{}", our_rules(member)));
        });
        member.await_ready(JOIN_TIMEOUT).unwrap();
    });
}
