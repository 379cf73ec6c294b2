//! The managed tailscaled in its own netns, beside a host tailscaled.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use lab::scenario::connectivity::{self, Pings};
use lab::scenario::{CLUSTER_CIDRS, JOIN_TIMEOUT, MeshCluster, MeshNode, NODE_TAG};
use lab::{EchoServer, Family, Join, Netns, Tailscaled, eventually, open_policy};
use serde_json::Value;

use crate::magic_dns;

/// A repair takes up to two seconds, and more on a busy machine.
const REPAIR_TIMEOUT: Duration = Duration::from_secs(10);
/// The tag of the host tailscaled, which is not a node of the cluster.
const HOST_TAG: &str = "tag:laptop";

#[test]
fn the_managed_and_the_host_tailscaled_do_not_interfere() {
    let mut cluster = MeshCluster::prepare(2);
    let mut host = start_host_tailscaled(&cluster);
    let before = host_tailscaled_rules(&cluster.nodes[0]);
    assert!(
        before.contains("5270:") && before.contains("ts-input"),
        "{before}"
    );
    // With systemd-resolved, this file has the upstream servers.
    let servers = format!("nameserver {}\n", cluster.topology.server_port.v4);
    cluster.nodes[0]
        .node
        .write("/run/systemd/resolve/resolv.conf", servers)
        .unwrap();
    cluster.start_daemons().unwrap();
    let node = &cluster.nodes[0];
    assert!(is_in_own_netns(node), "{}", node.diagnostics());
    assert!(node.sh("ip netns").unwrap().contains("headcni-mesh"));

    let pods = [
        cluster.nodes[0].pod("p").unwrap(),
        cluster.nodes[1].pod("p").unwrap(),
    ];
    connectivity::await_all_to_all(&pods);
    // A node's own packets have an address of its pod CIDR.
    for (from, to) in [(0, 1), (1, 0)] {
        let node = &cluster.nodes[from];
        let server = EchoServer::start(&pods[to].pod, Family::V4, 0).unwrap();
        let address = SocketAddr::new(pods[to].ips[0], server.port().unwrap());
        let seen = node.node.call_echo(address, "hello").unwrap();
        assert_eq!(seen.to_string(), format!("10.244.{}.1", node.number));
    }
    // A tailnet source address, which belongs to the host tailscaled's table on the other node.
    let address = address_of(&host, "node-2");
    let to = pods[0].ips[0];
    let line = format!("ping -c 1 -W 10 -I {address} {to}");
    cluster.nodes[1].sh(&line).unwrap();
    await_reached_by_host_tailscaled(&cluster.nodes[0], &address);
    assert_eq!(host_tailscaled_rules(&cluster.nodes[0]), before);
    await_direct(&cluster.nodes[1]);
    // The host tailscaled has routes to all pod CIDRs, also to this node's.
    let known = host_tailscaled_routes(&cluster.nodes[0]);
    for number in [1, 2] {
        assert!(
            known.contains(&format!("10.244.{number}.0/24 dev tailscale0")),
            "{known}"
        );
    }
    // A resolver on the host's loopback is not reachable from the netns.
    let resolver = EchoServer::start(&cluster.topology.server, Family::V4, 53).unwrap();
    let ask =
        "exec 3<>/dev/tcp/127.0.0.53/53; echo name >&3; read -r -t 20 -u 3 answer; echo $answer";
    let line = format!("ip netns exec headcni-mesh bash -c '{ask}'");
    assert!(!cluster.nodes[0].sh(&line).unwrap().trim().is_empty());
    drop(resolver);

    let pings = Pings::start(&pods[0], &pods[1]).unwrap();
    let pid = cluster.nodes[0].tailscaled_pid().unwrap();

    // The daemon is killed and finds everything in place.
    pings.reset();
    cluster.nodes[0].kill_daemon().unwrap();
    cluster.nodes[0].start_daemon().unwrap();
    cluster.nodes[0].await_ready(JOIN_TIMEOUT).unwrap();
    assert_eq!(cluster.nodes[0].tailscaled_pid().unwrap(), pid);
    pings.assert_none_lost("daemon killed and started");

    // The host tailscaled is down while the daemon starts: ours stays in its netns.
    host.kill().unwrap();
    cluster.nodes[0].stop_daemon().unwrap();
    cluster.nodes[0].start_daemon().unwrap();
    cluster.nodes[0].await_ready(JOIN_TIMEOUT).unwrap();
    assert_eq!(cluster.nodes[0].tailscaled_pid().unwrap(), pid);
    assert!(is_in_own_netns(&cluster.nodes[0]));
    pings.assert_none_lost("host tailscaled killed, daemon restarted");
    host.restart().unwrap();
    eventually(JOIN_TIMEOUT, "the host tailscaled is back", || {
        (host.status().ok()?["BackendState"] == "Running").then_some(())
    })
    .unwrap();

    // Ours is killed, and restarted in the same netns.
    cluster.nodes[0].sh(&format!("kill -9 {pid}")).unwrap();
    eventually(JOIN_TIMEOUT, "a new managed tailscaled", || {
        let now = cluster.nodes[0].tailscaled_pid().ok()?;
        (now != pid).then_some(())
    })
    .unwrap();
    pings.await_answers().unwrap();
    assert!(is_in_own_netns(&cluster.nodes[0]));
    // WireGuard can pause once more for some 15 s after the first answers.
    connectivity::await_all_to_all(&pods);
    await_reached_by_host_tailscaled(&cluster.nodes[0], &address);
    assert_eq!(host_tailscaled_rules(&cluster.nodes[0]), before);
    // Headscale withdraws the routes of an offline node for a while.
    eventually(
        JOIN_TIMEOUT,
        "the host tailscaled has the same routes",
        || (host_tailscaled_routes(&cluster.nodes[0]) == known).then_some(()),
    )
    .unwrap();
    drop(pings);

    cluster.nodes[0].stop_daemon().unwrap();
    let output = cluster.nodes[0].command(&["uninstall"]).unwrap();
    assert!(output.status.success(), "{output:?}");
    let node = &cluster.nodes[0];
    assert_eq!(netns_remains(node), "");
    assert_eq!(host_tailscaled_rules(node), before);
    await_reached_by_host_tailscaled(node, &address);
}

#[test]
fn tailscaled_moves_between_host_and_own_netns_by_config_and_for_a_host_tailscaled() {
    let mut cluster = MeshCluster::prepare(2);
    cluster.headscale.set_policy(&policy()).unwrap();
    let config = cluster.nodes[0].config(&cluster.headscale.url());
    let with_netns = |how: &str| format!("{config}  netns: {how}\n");
    let node = &cluster.nodes[0];
    node.configure(&with_netns("own")).unwrap();
    // Remains of a daemon that was killed half-way.
    node.sh("touch /run/netns/headcni-mesh
         ip link add hcmesh0 type veth peer name host0")
        .unwrap();
    cluster.start_daemons().unwrap();
    assert!(is_in_own_netns(&cluster.nodes[0]));
    let pods = [
        cluster.nodes[0].pod("p").unwrap(),
        cluster.nodes[1].pod("p").unwrap(),
    ];
    connectivity::await_all_to_all(&pods);
    // No other tailscaled on the host answers MagicDNS.
    magic_dns::assert_resolves(&cluster, &pods[0]);
    // Without tailscaled, queries are refused and do not loop until their TTL expires.
    let node = &mut cluster.nodes[0];
    let pid = node.tailscaled_pid().unwrap();
    node.kill_daemon().unwrap();
    node.sh(&format!("kill -9 {pid}")).unwrap();
    for resolver in magic_dns::RESOLVERS {
        let resolver = resolver.to_string();
        let ping = ["ping", "-n", "-c", "1", "-W", "1", &resolver];
        // Its interface disappears asynchronously.
        eventually(
            REPAIR_TIMEOUT,
            &format!("an ICMP error for {resolver}"),
            || {
                let output = pods[0].pod.attempt(ping).unwrap().stdout;
                output.contains("nreachable").then_some(())
            },
        )
        .unwrap();
    }
    node.start_daemon().unwrap();
    node.await_ready(JOIN_TIMEOUT).unwrap();
    connectivity::await_all_to_all(&pods);

    the_netns_stays_while_the_pod_cidr_is_unknown(&mut cluster.nodes[0], &with_netns("own"));
    connectivity::await_all_to_all(&pods);

    // Both ends of the veth pair and all their state are restored.
    let node = &cluster.nodes[0];
    node.sh("ip link delete hcmesh0; nft delete table inet headcni-mesh")
        .unwrap();
    node.configure(&with_netns("own").replace("tailscale:\n", "tailscale:\n  hostname: first\n"))
        .unwrap();
    node.reload();
    connectivity::await_all_to_all(&pods);
    flushed_tables_are_restored(node);

    node.configure(&with_netns("host")).unwrap();
    node.reload();
    eventually(JOIN_TIMEOUT, "tailscaled is in the host netns", || {
        (!is_in_own_netns(node) && netns_remains(node).is_empty()).then_some(())
    })
    .unwrap();
    connectivity::await_all_to_all(&pods);

    node.configure(&with_netns("auto")).unwrap();
    node.reload();
    let host = start_host_tailscaled(&cluster);
    eventually(JOIN_TIMEOUT, "tailscaled has moved", || {
        is_in_own_netns(node).then_some(())
    })
    .unwrap();
    connectivity::await_all_to_all(&pods);
    let address = address_of(&host, "node-2");
    await_reached_by_host_tailscaled(node, &address);
    let rules = host_tailscaled_rules(node);
    assert!(rules.contains("5270:"), "{rules}");
    assert!(rules.contains("ts-input -i tailscale0"), "{rules}");
}

/// A daemon that does not know its pod CIDR yet leaves the netns of an earlier one alone.
fn the_netns_stays_while_the_pod_cidr_is_unknown(node: &mut MeshNode, config: &str) {
    let dump = "nft list table inet headcni-mesh
        ip netns exec headcni-mesh sh -c '
            nft list table inet headcni-mesh | sed \"s/counter.*drop/drop/\"
            ip route; ip -6 route; ip rule; ip -6 rule' | sort";
    let complete = node.sh(dump).unwrap();
    assert!(complete.contains("ip saddr 10.244.1.0/24"), "{complete}");
    node.kill_daemon().unwrap();
    let unknown = config.lines().filter(|line| !line.contains("podCIDR"));
    let unknown: Vec<&str> = unknown.collect();
    let unknown = unknown.join("\n").replace("network:", "network: {}");
    node.configure(&unknown).unwrap();
    node.start_daemon().unwrap();
    // By then it has reconciled the netns once.
    node.await_condition("MeshJoined", true, JOIN_TIMEOUT)
        .unwrap();
    node.await_condition("PodCIDRKnown", false, JOIN_TIMEOUT)
        .unwrap();
    assert_eq!(node.sh(dump).unwrap(), complete);
    node.configure(config).unwrap();
    node.reload();
    node.await_ready(JOIN_TIMEOUT).unwrap();
}

/// Netlink notifies of the host's table and of rules, not of the table in the netns.
fn flushed_tables_are_restored(node: &MeshNode) {
    let flush = "nft flush table inet headcni-mesh";
    let list = "nft list table inet headcni-mesh";
    let inside = |line: &str| format!("ip netns exec headcni-mesh {line}");
    let dump = format!(
        "{list}; {} | sed 's/counter.*drop/drop/'; ip rule show priority 5205 | sort",
        inside(list)
    );
    let complete = node.sh(&dump).unwrap();
    let flush_inside = format!("{}; ip rule delete priority 5205", inside(flush));
    for line in [flush, &flush_inside] {
        node.sh(line).unwrap();
        eventually(REPAIR_TIMEOUT, "the rules are back", || {
            (node.sh(&dump).ok()? == complete).then_some(())
        })
        .unwrap_or_else(|error| panic!("{error:#}\n{}", node.diagnostics()));
    }
}

/// A policy that gives the host tailscaled routes to nodes and pods.
fn policy() -> Value {
    let mut policy = open_policy(NODE_TAG, &CLUSTER_CIDRS);
    policy["tagOwners"][HOST_TAG] = serde_json::json!([]);
    let sources = policy["acls"][0]["src"].as_array_mut().unwrap();
    sources.push(HOST_TAG.into());
    policy
}

/// A tailscaled on the first node that is not ours and accepts routes. It advertises a supernet of all pod
/// CIDRs, which is never approved.
fn start_host_tailscaled(cluster: &MeshCluster) -> Tailscaled {
    let headscale = &cluster.headscale;
    headscale.set_policy(&policy()).unwrap();
    let host = Tailscaled::start(&cluster.nodes[0].node, headscale.ca_file()).unwrap();
    let key = headscale.preauth_key(HOST_TAG).unwrap();
    let join = Join {
        url: &headscale.url(),
        key: &key,
        advertise: &["10.0.0.0/8"],
    };
    host.join(&join).unwrap();
    host.cli(["set", "--hostname=laptop"]).unwrap();
    host
}

fn is_in_own_netns(node: &MeshNode) -> bool {
    let of = |pid: u32| std::fs::read_link(PathBuf::from(format!("/proc/{pid}/ns/net"))).ok();
    let ours = node.tailscaled_pid().ok().and_then(of);
    ours.is_some() && ours != of(node.node.holder_pid())
}

/// Rules and chains of the host tailscaled.
fn host_tailscaled_rules(node: &MeshNode) -> String {
    node.sh(
        "for family in -4 -6; do ip $family rule | grep '^52[1-7]0:'; done
             for tables in iptables ip6tables; do
                 for table in filter nat mangle; do $tables -t $table -S | grep ts- || true; done
             done",
    )
    .unwrap()
}

/// Routes of the host tailscaled.
fn host_tailscaled_routes(node: &MeshNode) -> String {
    node.sh("ip route show table 52 | sort; ip -6 route show table 52 | sort")
        .unwrap()
}

/// What exists of the managed netns.
fn netns_remains(node: &MeshNode) -> String {
    node.sh("ls /run/netns | grep headcni || true
             ip -o link show dev hcmesh0 2>/dev/null || true
             nft list tables | grep headcni-mesh || true
             for family in -4 -6; do ip $family rule | grep '^5205:' || true; done")
        .unwrap()
}

/// The address of a peer by the host tailscaled.
fn address_of(host: &Tailscaled, name: &str) -> String {
    eventually(JOIN_TIMEOUT, "the host tailscaled has the peer", || {
        let status = host.status().ok()?;
        let mut peers = status["Peer"].as_object()?.values();
        let peer = peers.find(|peer| peer["HostName"] == name)?;
        Some(peer["TailscaleIPs"][0].as_str()?.to_owned())
    })
    .unwrap()
}

fn await_reached_by_host_tailscaled(node: &MeshNode, address: &str) {
    eventually(JOIN_TIMEOUT, "the host tailscaled reaches the peer", || {
        let route = node.sh(&format!("ip route get {address}")).ok()?;
        let line = format!("ping -c 1 -W 2 {address}");
        (route.contains("tailscale0") && node.sh(&line).is_ok()).then_some(())
    })
    .unwrap();
}

/// Waits until a peer sends directly to the host's underlay address.
fn await_direct(from: &MeshNode) {
    eventually(JOIN_TIMEOUT, "a direct path", || {
        let status = from.tailscaled_status().ok()?;
        let mut peers = status["Peer"].as_object()?.values();
        let ours = peers.find(|peer| peer["HostName"] == "node-1")?;
        let route = ours["CurAddr"].as_str()?;
        let is_hosts = route.starts_with("10.99.0.") || route.starts_with("[fd99:");
        (is_hosts && route.ends_with(":41642")).then_some(())
    })
    .unwrap();
}
