//! Headscale goes down and comes back.

use std::thread::sleep;
use std::time::{Duration, Instant};

use lab::scenario::connectivity::Pings;
use lab::scenario::{JOIN_TIMEOUT, MeshNode};
use lab::{Call, eventually_slowly, tools};
use serde_json::{Value, json};

use super::{REJOIN, Traffic, await_path, await_ping, with_two_nodes};

const CONFLIST: &str = "/etc/cni/net.d/10-headcni.conflist";

/// At boot the runtime may start pods before the daemon runs.
const BEFORE_DAEMON: Duration = Duration::from_secs(2);

/// WireGuard renews a session after 120 s and rejects one older than 180 s:
/// `REKEY_AFTER_TIME` and `REJECT_AFTER_TIME` of <https://www.wireguard.com/papers/wireguard.pdf>, 6.1.
const LONGER_THAN_A_SESSION: Duration = Duration::from_secs(200);
const REJECT_AFTER_TIME: f64 = 180.0;

/// Adds a pod on each node, checks that they reach each other and older pods, and deletes them after so
/// many pings without loss.
fn pods_come_and_go(nodes: &[MeshNode], traffic: &Traffic, answers: u64) {
    let [one, other] = [0, 1].map(|nth| nodes[nth].pod("new").unwrap());
    for ip in &other.ips {
        await_ping(&one, *ip);
    }
    await_ping(&one, traffic.client.ips[0]);
    await_ping(&one, traffic.server.ips[0]);
    let pings = Pings::start(&one, &other).unwrap();
    pings.await_more_answers(answers).unwrap();
    pings.assert_none_lost("pods added while Headscale was down");
    drop(pings);
    for (node, pod) in nodes.iter().zip([&one, &other]) {
        node.detach(pod).unwrap();
        pod.pod.delete().unwrap();
    }
}

/// No process runs, and kernel state and `/run` are gone. Unlike after a real reboot, pods stay.
fn reboot(node: &mut MeshNode) {
    let pid = node.tailscaled_pid().unwrap();
    node.kill_daemon().unwrap();
    node.sh(&format!(
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

fn assert_status_ok(node: &MeshNode) {
    let call = Call::new("STATUS")
        .path("/opt/cni/bin")
        .conf(&node.cni_conf().unwrap());
    call.run(&node.node, tools::headcni())
        .unwrap()
        .ok()
        .unwrap();
}

#[test]
fn pods_work_without_headscale_also_after_a_reboot() {
    with_two_nodes(|cluster, traffic| {
        traffic.assert_no_loss("Headscale killed, pods added and deleted", || {
            cluster.headscale.kill().unwrap();
            for node in &cluster.nodes {
                node.await_condition("HeadscaleReachable", false, JOIN_TIMEOUT)
                    .unwrap();
                assert_status_ok(node);
            }
            pods_come_and_go(&cluster.nodes, traffic, 1);
        });
        // Headscale reports peers that have not reconnected yet as offline and withdraws their routes.
        traffic.assert_outage("Headscale back", REJOIN, || {
            cluster.headscale.restart().unwrap();
            for node in &cluster.nodes {
                node.await_condition("HeadscaleReachable", true, JOIN_TIMEOUT * 3)
                    .unwrap();
                node.await_ready(JOIN_TIMEOUT).unwrap();
            }
        });

        traffic.assert_outage("node rebooted while Headscale is down", REJOIN, || {
            cluster.headscale.kill().unwrap();
            let node = &mut cluster.nodes[0];
            reboot(node);
            assert!(node.file(CONFLIST).exists());
            assert_status_ok(node);
            // A pod before the daemon must not send in clear either.
            let one = node.pod("one").unwrap();
            sleep(BEFORE_DAEMON);
            node.start_daemon().unwrap();
            for condition in ["NetworkReady", "CNIConfigWritten"] {
                node.await_condition(condition, true, JOIN_TIMEOUT).unwrap();
            }
            let other = node.pod("other").unwrap();
            for ip in other.ips.iter().chain(&traffic.client.ips) {
                await_ping(&one, *ip);
            }
            assert_status_ok(node);
            assert!(!node.condition("RoutesServed").unwrap().0);
            assert!(node.file(CONFLIST).exists());
            cluster.headscale.restart().unwrap();
        });
        for node in &cluster.nodes {
            node.await_ready(JOIN_TIMEOUT * 3).unwrap();
        }
    });
}

#[test]
fn pods_work_without_headscale_for_longer_than_a_wireguard_session() {
    with_two_nodes(|cluster, traffic| {
        for node in &cluster.nodes {
            await_path(node, "direct");
        }
        let before: Vec<_> = cluster.nodes.iter().map(MeshMetrics::of).collect();
        let ready: Vec<_> = cluster.nodes.iter().map(required).collect();
        traffic.assert_no_loss("Headscale down for 200 s, pods added and deleted", || {
            cluster.headscale.kill().unwrap();
            let start = Instant::now();
            while start.elapsed() < LONGER_THAN_A_SESSION {
                pods_come_and_go(&cluster.nodes, traffic, 400);
                cluster.nodes.iter().for_each(assert_status_ok);
            }
        });
        for ((node, before), ready) in cluster.nodes.iter().zip(before).zip(ready) {
            // No required condition has changed.
            assert_eq!(required(node), ready, "{}", node.diagnostics());
            let after = MeshMetrics::of(node);
            before.assert_with_headscale();
            after.assert_without_headscale(&before);
        }
        traffic.assert_outage("Headscale back after 200 s", REJOIN, || {
            cluster.headscale.restart().unwrap();
            // tailscaled retries every 30 s by then.
            eventually_slowly(JOIN_TIMEOUT, "both nodes are connected", || {
                let nodes = cluster.headscale.nodes().ok()?;
                let is_online = |listed: &Value| listed["online"] == true;
                nodes.iter().all(is_online).then_some(())
            })
            .unwrap();
            for node in &cluster.nodes {
                node.await_ready(JOIN_TIMEOUT).unwrap();
            }
        });
    });
}

/// Name, status and transition time of the required conditions.
fn required(node: &MeshNode) -> Vec<Value> {
    let ready = node.ready().unwrap();
    assert_eq!(ready["ready"], true, "{ready:#}");
    let all = ready["conditions"].as_array().unwrap().iter();
    let required = all.filter(|one| one["required"] == true);
    required
        .map(|one| json!([one["name"], one["status"], one["since"]]))
        .collect()
}

/// A node's metrics of the mesh.
#[derive(Debug)]
struct MeshMetrics {
    /// Peers: direct, all.
    peers: [f64; 2],
    /// Routes: advertised, approved, serving.
    networks: [f64; 3],
    pings: f64,
    handshake_age: f64,
    /// Bytes: sent, received.
    bytes: [f64; 2],
    /// Requests to Headscale: ok, unreachable.
    calls: [f64; 2],
}

impl MeshMetrics {
    fn of(node: &MeshNode) -> Self {
        let peers = "headcni_mesh_peers";
        let by = |name: &str, label: &str, value: &str| node.metric(name, &[(label, value)]);
        let networks = |state| by("headcni_mesh_routes", "state", state);
        let bytes = |direction| by("headcni_mesh_bytes_total", "direction", direction);
        let calls = |outcome| {
            let count = "headcni_headscale_request_duration_seconds_count";
            by(count, "outcome", outcome)
        };
        Self {
            peers: [by(peers, "path", "direct"), node.metric(peers, &[])],
            networks: ["advertised", "approved", "primary"].map(networks),
            pings: node.metric("headcni_mesh_latency_seconds_count", &[]),
            handshake_age: node.metric("headcni_mesh_handshake_age_seconds", &[]),
            bytes: ["sent", "received"].map(bytes),
            calls: ["ok", "unreachable"].map(calls),
        }
    }

    fn assert_with_headscale(&self) {
        self.assert_healthy();
        let [reached, unreached] = self.calls;
        assert!(reached > 0.0 && unreached == 0.0, "{self:?}");
    }

    fn assert_without_headscale(&self, before: &Self) {
        self.assert_healthy();
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

    fn assert_healthy(&self) {
        let are = |counts: &[f64], all: f64| counts.iter().all(|one| (one - all).abs() < 0.1);
        assert!(are(&self.peers, 1.0), "{self:?}");
        assert!(are(&self.networks, 2.0), "{self:?}");
        // The session was renewed in time.
        let age = self.handshake_age;
        assert!(age > 0.0 && age < REJECT_AFTER_TIME, "{self:?}");
    }
}
