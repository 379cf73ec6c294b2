//! Headscale is away, and comes back.

use std::thread::sleep;
use std::time::Duration;

use lab::{Call, JOINED, Member, tools};

use super::{Talk, reaches, with_two_nodes};

const CONFLIST: &str = "/etc/cni/net.d/10-headcni.conflist";

/// Pods that runtimes start at boot may be so much earlier than the daemon.
const BEFORE_DAEMON: Duration = Duration::from_secs(2);

/// Pods come and go on both nodes, and reach those that are there.
fn pods_come_and_go(members: &[Member<'_>], talk: &Talk<'_>) {
    let [one, other] = [0, 1].map(|nth| members[nth].pod("new").unwrap());
    for ip in &other.ips {
        reaches(&one, *ip);
    }
    reaches(&one, talk.caller.ips[0]);
    reaches(&one, talk.other.ips[0]);
    for (member, pod) in members.iter().zip([&one, &other]) {
        member.detach(pod).unwrap();
    }
}

/// As after a reboot: nothing runs, and the kernel and `/run` know of nothing. Pods stay, unlike
/// after a real one, and so do their links.
fn reboot(member: &mut Member<'_>) {
    let pid = member.tailscaled_pid().unwrap();
    member.kill_daemon().unwrap();
    member
        .sh(&format!(
            "sysctl -q -w net.ipv4.ip_forward=0 net.ipv6.conf.all.forwarding=0
             kill -9 {pid}; rm -rf /run/headcni
             nft flush ruleset
             for family in -4 -6; do
                 ip $family rule flush; ip $family rule add lookup local priority 0
                 ip $family rule add lookup main priority 32766
                 ip $family route flush table 26723 || true
                 ip $family route flush table 52 || true
                 ip $family route flush proto 104 type unreachable || true
             done
             ip address flush dev lo scope global"
        ))
        .unwrap();
}

fn status(member: &Member<'_>) {
    let call = Call::new("STATUS")
        .path("/opt/cni/bin")
        .conf(&member.conf().unwrap());
    call.run(member.node, tools::headcni())
        .unwrap()
        .ok()
        .unwrap();
}

#[test]
fn pods_need_no_server() {
    with_two_nodes(|cluster, talk| {
        talk.loses_nothing("headscale killed, pods come and go", || {
            cluster.headscale.kill().unwrap();
            for member in &cluster.members {
                member
                    .await_condition("HeadscaleReachable", false, JOINED)
                    .unwrap();
                status(member);
            }
            pods_come_and_go(&cluster.members, talk);
        });
        // Headscale tells who comes first that the others are away, and that nobody serves their
        // networks, until they have come, too.
        talk.silence("headscale back", || {
            cluster.headscale.resume().unwrap();
            for member in &cluster.members {
                member
                    .await_condition("HeadscaleReachable", true, JOINED * 3)
                    .unwrap();
                member.await_ready(JOINED).unwrap();
            }
        });

        talk.silence("node rebooted while headscale is down for a while", || {
            cluster.headscale.kill().unwrap();
            let member = &mut cluster.members[0];
            reboot(member);
            assert!(member.file(CONFLIST).exists());
            status(member);
            // Pods may be first, and must not send anything in clear all the same.
            let one = member.pod("one").unwrap();
            sleep(BEFORE_DAEMON);
            member.launch().unwrap();
            for condition in ["NetworkReady", "CNIConfigWritten"] {
                member.await_condition(condition, true, JOINED).unwrap();
            }
            let other = member.pod("other").unwrap();
            for ip in other.ips.iter().chain(&talk.caller.ips) {
                reaches(&one, *ip);
            }
            status(member);
            assert!(!member.condition("NetworksServed").unwrap().0);
            assert!(member.file(CONFLIST).exists());
            cluster.headscale.resume().unwrap();
        });
        for member in &cluster.members {
            member.await_ready(JOINED * 3).unwrap();
        }
    });
}
