//! Headscale is away, and comes back.

use std::thread::sleep;
use std::time::{Duration, Instant};

use lab::{Call, JOINED, Member, eventually_and_gently, tools};
use serde_json::{Value, json};

use super::{BACK_IN, Talk, await_path, reaches, reading, with_two_nodes};
use crate::talk::Pings;

const CONFLIST: &str = "/etc/cni/net.d/10-headcni.conflist";

/// Pods that runtimes start at boot may be so much earlier than the daemon.
const BEFORE_DAEMON: Duration = Duration::from_secs(2);

/// WireGuard makes another session after 120 s, and takes nothing by one that is older than 180 s:
/// `REKEY_AFTER_TIME` and `REJECT_AFTER_TIME` of <https://www.wireguard.com/papers/wireguard.pdf>, 6.1.
const LONGER_THAN_A_SESSION: Duration = Duration::from_secs(200);
const REJECT_AFTER_TIME: f64 = 180.0;

/// Pods come and go on both nodes, and reach those that are there. They live for so many answers to one of
/// them, of which none is lost.
fn pods_come_and_go(members: &[Member<'_>], talk: &Talk<'_>, answers: u64) {
    let [one, other] = [0, 1].map(|nth| members[nth].pod("new").unwrap());
    for ip in &other.ips {
        reaches(&one, *ip);
    }
    reaches(&one, talk.caller.ips[0]);
    reaches(&one, talk.other.ips[0]);
    let pings = Pings::start(&one, &other);
    pings.await_more_answers(answers);
    pings.check_none_lost("pods that came while headscale was away");
    drop(pings);
    for (member, pod) in members.iter().zip([&one, &other]) {
        member.detach(pod).unwrap();
        pod.pod.delete().unwrap();
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
            pods_come_and_go(&cluster.members, talk, 1);
        });
        // Headscale tells who comes first that the others are away, and that nobody serves their
        // networks, until they have come, too.
        talk.silence("headscale back", BACK_IN, || {
            cluster.headscale.resume().unwrap();
            for member in &cluster.members {
                member
                    .await_condition("HeadscaleReachable", true, JOINED * 3)
                    .unwrap();
                member.await_ready(JOINED).unwrap();
            }
        });

        talk.silence(
            "node rebooted while headscale is down for a while",
            BACK_IN,
            || {
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
                assert!(!member.condition("RoutesServed").unwrap().0);
                assert!(member.file(CONFLIST).exists());
                cluster.headscale.resume().unwrap();
            },
        );
        for member in &cluster.members {
            member.await_ready(JOINED * 3).unwrap();
        }
    });
}

#[test]
fn pods_need_no_server_for_longer_than_a_session_lasts() {
    with_two_nodes(|cluster, talk| {
        for member in &cluster.members {
            await_path(member, "direct");
        }
        let before: Vec<_> = cluster.members.iter().map(Measured::of).collect();
        let ready: Vec<_> = cluster.members.iter().map(required).collect();
        talk.loses_nothing("headscale killed for 200 s, pods come and go", || {
            cluster.headscale.kill().unwrap();
            let start = Instant::now();
            while start.elapsed() < LONGER_THAN_A_SESSION {
                pods_come_and_go(&cluster.members, talk, 400);
                cluster.members.iter().for_each(status);
            }
        });
        for ((member, before), ready) in cluster.members.iter().zip(before).zip(ready) {
            // Nothing that a node needs to be ready has changed since.
            assert_eq!(required(member), ready, "{}", member.told());
            let after = Measured::of(member);
            before.check_with_server();
            after.check_without(&before);
        }
        talk.silence("headscale back after 200 s", BACK_IN, || {
            cluster.headscale.resume().unwrap();
            // By then each tries again after half a minute only.
            eventually_and_gently(JOINED, "both nodes are connected", || {
                let nodes = cluster.headscale.nodes().ok()?;
                let is_online = |node: &Value| node["online"] == true;
                nodes.iter().all(is_online).then_some(())
            })
            .unwrap();
            for member in &cluster.members {
                member.await_ready(JOINED).unwrap();
            }
        });
    });
}

/// What a node is unready without: whether it holds, and since when.
fn required(member: &Member<'_>) -> Vec<Value> {
    let ready = member.ready().unwrap();
    assert_eq!(ready["ready"], true, "{ready:#}");
    let all = ready["conditions"].as_array().unwrap().iter();
    let required = all.filter(|one| one["required"] == true);
    required
        .map(|one| json!([one["name"], one["status"], one["since"]]))
        .collect()
}

/// What a node says about the mesh.
#[derive(Debug)]
struct Measured {
    /// Peers: by a direct way, and by any.
    peers: [f64; 2],
    /// Networks: advertised, approved, serving.
    networks: [f64; 3],
    pings: f64,
    handshake_age: f64,
    /// Bytes: sent, received.
    bytes: [f64; 2],
    /// Calls to the server: that went well, and that did not reach it.
    calls: [f64; 2],
}

impl Measured {
    fn of(member: &Member<'_>) -> Self {
        let peers = "headcni_mesh_peers";
        let by = |name: &str, label: &str, value: &str| reading(member, name, &[(label, value)]);
        let networks = |state| by("headcni_mesh_routes", "state", state);
        let bytes = |direction| by("headcni_mesh_bytes_total", "direction", direction);
        let calls = |outcome| {
            let count = "headcni_headscale_request_duration_seconds_count";
            by(count, "outcome", outcome)
        };
        Self {
            peers: [by(peers, "path", "direct"), reading(member, peers, &[])],
            networks: ["advertised", "approved", "primary"].map(networks),
            pings: reading(member, "headcni_mesh_latency_seconds_count", &[]),
            handshake_age: reading(member, "headcni_mesh_handshake_age_seconds", &[]),
            bytes: ["sent", "received"].map(bytes),
            calls: ["ok", "unreachable"].map(calls),
        }
    }

    fn check_with_server(&self) {
        self.check();
        let [reached, unreached] = self.calls;
        assert!(reached > 0.0 && unreached == 0.0, "{self:?}");
    }

    fn check_without(&self, before: &Self) {
        self.check();
        let grow = |before: &[f64; 2], after: &[f64; 2]| {
            let mut both = before.iter().zip(after);
            both.all(|(before, after)| after > before)
        };
        assert!(
            grow(&before.bytes, &self.bytes),
            "{before:?}, then {self:?}"
        );
        assert!(self.pings > 0.0, "{self:?}");
        assert!(self.calls[1] > 0.0, "{self:?}");
    }

    fn check(&self) {
        let are = |counts: &[f64], all: f64| counts.iter().all(|one| (one - all).abs() < 0.1);
        assert!(are(&self.peers, 1.0), "{self:?}");
        assert!(are(&self.networks, 2.0), "{self:?}");
        // Another session was made in time.
        let age = self.handshake_age;
        assert!(age > 0.0 && age < REJECT_AFTER_TIME, "{self:?}");
    }
}
