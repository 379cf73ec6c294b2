//! Our tailscaled in a network of its own, beside a host's.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use lab::scenario::connectivity::{self, Pings};
use lab::scenario::{CLUSTER_CIDRS, JOIN_TIMEOUT, MeshCluster, MeshNode, NODE_TAG};
use lab::{EchoServer, Family, Join, Netns, Tailscaled, eventually, open_policy};
use serde_json::Value;

use crate::magic_dns;

/// What is repaired must be so within two seconds. A busy machine gets some more.
const REPAIRED: Duration = Duration::from_secs(10);
/// The tag of the host's own tailscaled: it is not one of ours.
const HOSTS_TAG: &str = "tag:laptop";

#[test]
fn ours_and_the_hosts_own_leave_each_other_alone() {
    let mut cluster = MeshCluster::prepare(2);
    let mut theirs = hosts_own(&cluster);
    let before = traces(&cluster.nodes[0]);
    assert!(
        before.contains("5270:") && before.contains("ts-input"),
        "{before}"
    );
    // As where systemd's resolver is the host's.
    let servers = format!("nameserver {}\n", cluster.topology.server_port.v4);
    cluster.nodes[0]
        .node
        .write("/run/systemd/resolve/resolv.conf", servers)
        .unwrap();
    cluster.start_daemons().unwrap();
    let node = &cluster.nodes[0];
    assert!(is_apart(node), "{}", node.diagnostics());
    assert!(node.sh("ip netns").unwrap().contains("headcni-mesh"));

    let pods = [
        cluster.nodes[0].pod("p").unwrap(),
        cluster.nodes[1].pod("p").unwrap(),
    ];
    connectivity::await_all_to_all(&pods);
    // A node's own packets, under an address of its pods' network.
    for (from, to) in [(0, 1), (1, 0)] {
        let node = &cluster.nodes[from];
        let server = EchoServer::start(&pods[to].pod, Family::V4, 0).unwrap();
        let address = SocketAddr::new(pods[to].ips[0], server.port().unwrap());
        let seen = node.node.call_echo(address, "hello").unwrap();
        assert_eq!(seen.to_string(), format!("10.244.{}.1", node.number));
    }
    // And under its address in the mesh, which on the other's host is somebody else's.
    let address = address_of(&theirs, "node-2");
    let to = pods[0].ips[0];
    let line = format!("ping -c 1 -W 10 -I {address} {to}");
    cluster.nodes[1].sh(&line).unwrap();
    reaches(&cluster.nodes[0], &address);
    assert_eq!(traces(&cluster.nodes[0]), before);
    await_direct(&cluster.nodes[1]);
    // The hard case: the host's own knows ways to all pods, also to the node's.
    let known = table_of_theirs(&cluster.nodes[0]);
    for number in [1, 2] {
        assert!(
            known.contains(&format!("10.244.{number}.0/24 dev tailscale0")),
            "{known}"
        );
    }
    // A resolver on the host's loopback is none in there.
    let resolver = EchoServer::start(&cluster.topology.server, Family::V4, 53).unwrap();
    let ask =
        "exec 3<>/dev/tcp/127.0.0.53/53; echo name >&3; read -r -t 20 -u 3 answer; echo $answer";
    let line = format!("ip netns exec headcni-mesh bash -c '{ask}'");
    assert!(!cluster.nodes[0].sh(&line).unwrap().trim().is_empty());
    drop(resolver);

    let pings = Pings::start(&pods[0], &pods[1]).unwrap();
    let pid = cluster.nodes[0].tailscaled_pid().unwrap();

    // The daemon is not needed, and finds all of it again.
    pings.reset();
    cluster.nodes[0].kill_daemon().unwrap();
    cluster.nodes[0].start_daemon().unwrap();
    cluster.nodes[0].await_ready(JOIN_TIMEOUT).unwrap();
    assert_eq!(cluster.nodes[0].tailscaled_pid().unwrap(), pid);
    pings.assert_none_lost("daemon killed and started");

    // The host's is killed, and meanwhile the daemon starts: ours stays where it is.
    theirs.kill().unwrap();
    cluster.nodes[0].stop_daemon().unwrap();
    cluster.nodes[0].start_daemon().unwrap();
    cluster.nodes[0].await_ready(JOIN_TIMEOUT).unwrap();
    assert_eq!(cluster.nodes[0].tailscaled_pid().unwrap(), pid);
    assert!(is_apart(&cluster.nodes[0]));
    pings.assert_none_lost("the host's tailscaled killed, daemon ended and started");
    theirs.restart().unwrap();
    eventually(JOIN_TIMEOUT, "the host's own is back", || {
        (theirs.status().ok()?["BackendState"] == "Running").then_some(())
    })
    .unwrap();

    // Ours is killed, and comes back to the same network.
    cluster.nodes[0].sh(&format!("kill -9 {pid}")).unwrap();
    eventually(JOIN_TIMEOUT, "another tailscaled of ours", || {
        let now = cluster.nodes[0].tailscaled_pid().ok()?;
        (now != pid).then_some(())
    })
    .unwrap();
    pings.await_answers().unwrap();
    assert!(is_apart(&cluster.nodes[0]));
    // After the first answers WireGuard can be silent once more, for some 15 s.
    connectivity::await_all_to_all(&pods);
    reaches(&cluster.nodes[0], &address);
    assert_eq!(traces(&cluster.nodes[0]), before);
    // The server takes the routes of a node that was away from everybody for a while.
    eventually(JOIN_TIMEOUT, "the host's own knows the same ways", || {
        (table_of_theirs(&cluster.nodes[0]) == known).then_some(())
    })
    .unwrap();
    drop(pings);

    cluster.nodes[0].stop_daemon().unwrap();
    let output = cluster.nodes[0].command(&["uninstall"]).unwrap();
    assert!(output.status.success(), "{output:?}");
    let node = &cluster.nodes[0];
    assert_eq!(left_overs(node), "");
    assert_eq!(traces(node), before);
    reaches(node, &address);
}

#[test]
fn it_moves_as_it_is_told_and_out_of_the_way_of_one_that_comes() {
    let mut cluster = MeshCluster::prepare(2);
    cluster.headscale.set_policy(&policy()).unwrap();
    let config = cluster.nodes[0].config(&cluster.headscale.url());
    let told = |how: &str| format!("{config}  namespace: {how}\n");
    let node = &cluster.nodes[0];
    node.configure(&told("own")).unwrap();
    // What somebody who was killed half-way may have left.
    node.sh("touch /run/netns/headcni-mesh
         ip link add hcmesh0 type veth peer name host0")
        .unwrap();
    cluster.start_daemons().unwrap();
    assert!(is_apart(&cluster.nodes[0]));
    let pods = [
        cluster.nodes[0].pod("p").unwrap(),
        cluster.nodes[1].pod("p").unwrap(),
    ];
    connectivity::await_all_to_all(&pods);
    // Nobody else is on the host to answer for the mesh's names.
    magic_dns::check(&cluster, &pods[0]);
    // While ours is away, questions do not go to and fro until their time is over.
    let node = &mut cluster.nodes[0];
    let pid = node.tailscaled_pid().unwrap();
    node.kill_daemon().unwrap();
    node.sh(&format!("kill -9 {pid}")).unwrap();
    for resolver in magic_dns::RESOLVERS {
        let resolver = resolver.to_string();
        let ping = ["ping", "-n", "-c", "1", "-W", "1", &resolver];
        // Its interface takes a moment to go.
        eventually(REPAIRED, &format!("a clear word about {resolver}"), || {
            let said = pods[0].pod.attempt(ping).unwrap().stdout;
            said.contains("nreachable").then_some(())
        })
        .unwrap();
    }
    node.start_daemon().unwrap();
    node.await_ready(JOIN_TIMEOUT).unwrap();
    connectivity::await_all_to_all(&pods);

    it_stays_while_the_nodes_networks_are_unknown(&mut cluster.nodes[0], &told("own"));
    connectivity::await_all_to_all(&pods);

    // What others take away comes back: of the pair, both ends and all that was on them.
    let node = &cluster.nodes[0];
    node.sh("ip link delete hcmesh0; nft delete table inet headcni-mesh")
        .unwrap();
    node.configure(&told("own").replace("tailscale:\n", "tailscale:\n  hostname: first\n"))
        .unwrap();
    node.reload();
    connectivity::await_all_to_all(&pods);
    flushed_tables_come_back(node);

    node.configure(&told("host")).unwrap();
    node.reload();
    eventually(JOIN_TIMEOUT, "ours is in the host's network", || {
        (!is_apart(node) && left_overs(node).is_empty()).then_some(())
    })
    .unwrap();
    connectivity::await_all_to_all(&pods);

    node.configure(&told("auto")).unwrap();
    node.reload();
    let theirs = hosts_own(&cluster);
    eventually(JOIN_TIMEOUT, "ours has moved", || is_apart(node).then_some(())).unwrap();
    connectivity::await_all_to_all(&pods);
    let address = address_of(&theirs, "node-2");
    reaches(node, &address);
    let traces = traces(node);
    assert!(traces.contains("5270:"), "{traces}");
    assert!(traces.contains("ts-input -i tailscale0"), "{traces}");
}

/// A daemon that does not know its node's networks yet makes nothing of what an earlier one made for them.
fn it_stays_while_the_nodes_networks_are_unknown(node: &mut MeshNode, config: &str) {
    let look = "nft list table inet headcni-mesh
        ip netns exec headcni-mesh sh -c '
            nft list table inet headcni-mesh | sed \"s/counter.*drop/drop/\"
            ip route; ip -6 route; ip rule; ip -6 rule' | sort";
    let whole = node.sh(look).unwrap();
    assert!(whole.contains("ip saddr 10.244.1.0/24"), "{whole}");
    node.kill_daemon().unwrap();
    let unknown = config.lines().filter(|line| !line.contains("podCIDR"));
    let unknown: Vec<&str> = unknown.collect();
    let unknown = unknown.join("\n").replace("network:", "network: {}");
    node.configure(&unknown).unwrap();
    node.start_daemon().unwrap();
    // By then it has looked at all of it.
    node.await_condition("MeshJoined", true, JOIN_TIMEOUT).unwrap();
    node.await_condition("PodCIDRKnown", false, JOIN_TIMEOUT).unwrap();
    assert_eq!(node.sh(look).unwrap(), whole);
    node.configure(config).unwrap();
    node.reload();
    node.await_ready(JOIN_TIMEOUT).unwrap();
}

/// Nothing but their comments is left of both tables. The kernel tells of the host's, and of rules.
fn flushed_tables_come_back(node: &MeshNode) {
    let flush = "nft flush table inet headcni-mesh";
    let list = "nft list table inet headcni-mesh";
    let inside = |line: &str| format!("ip netns exec headcni-mesh {line}");
    let look = format!(
        "{list}; {} | sed 's/counter.*drop/drop/'; ip rule show priority 5205 | sort",
        inside(list)
    );
    let whole = node.sh(&look).unwrap();
    let flush_inside = format!("{}; ip rule delete priority 5205", inside(flush));
    for line in [flush, &flush_inside] {
        node.sh(line).unwrap();
        eventually(REPAIRED, "the rules are back", || {
            (node.sh(&look).ok()? == whole).then_some(())
        })
        .unwrap_or_else(|error| panic!("{error:#}\n{}", node.diagnostics()));
    }
}

/// A policy by which the host's own reaches nodes and pods, so that it has routes to them.
fn policy() -> Value {
    let mut policy = open_policy(NODE_TAG, &CLUSTER_CIDRS);
    policy["tagOwners"][HOSTS_TAG] = serde_json::json!([]);
    let sources = policy["acls"][0]["src"].as_array_mut().unwrap();
    sources.push(HOSTS_TAG.into());
    policy
}

/// A tailscaled on the first node that has nothing to do with us, but takes everybody's routes. It offers
/// a network that all pods' are in. Nobody approves it, and so it keeps no node from serving.
fn hosts_own<'a>(cluster: &MeshCluster) -> Tailscaled {
    let headscale = &cluster.headscale;
    headscale.set_policy(&policy()).unwrap();
    let theirs = Tailscaled::start(&cluster.nodes[0].node, headscale.ca_file()).unwrap();
    let key = headscale.preauth_key(HOSTS_TAG).unwrap();
    let join = Join {
        url: &headscale.url(),
        key: &key,
        advertise: &["10.0.0.0/8"],
    };
    theirs.join(&join).unwrap();
    theirs.cli(["set", "--hostname=laptop"]).unwrap();
    theirs
}

/// Whether our tailscaled runs in another network than the node's.
fn is_apart(node: &MeshNode) -> bool {
    let of = |pid: u32| std::fs::read_link(PathBuf::from(format!("/proc/{pid}/ns/net"))).ok();
    let ours = node.tailscaled_pid().ok().and_then(of);
    ours.is_some() && ours != of(node.node.holder_pid())
}

/// Rules and chains of the host's own tailscaled.
fn traces(node: &MeshNode) -> String {
    node
        .sh(
            "for family in -4 -6; do ip $family rule | grep '^52[1-7]0:'; done
             for tables in iptables ip6tables; do
                 for table in filter nat mangle; do $tables -t $table -S | grep ts- || true; done
             done",
        )
        .unwrap()
}

/// Its routes.
fn table_of_theirs(node: &MeshNode) -> String {
    node
        .sh("ip route show table 52 | sort; ip -6 route show table 52 | sort")
        .unwrap()
}

/// What there is of the network of its own.
fn left_overs(node: &MeshNode) -> String {
    node
        .sh("ls /run/netns | grep headcni || true
             ip -o link show dev hcmesh0 2>/dev/null || true
             nft list tables | grep headcni-mesh || true
             for family in -4 -6; do ip $family rule | grep '^5205:' || true; done")
        .unwrap()
}

/// The address of another node, as the host's own knows it.
fn address_of(theirs: &Tailscaled, name: &str) -> String {
    eventually(JOIN_TIMEOUT, "the host's own knows the other node", || {
        let status = theirs.status().ok()?;
        let mut peers = status["Peer"].as_object()?.values();
        let peer = peers.find(|peer| peer["HostName"] == name)?;
        Some(peer["TailscaleIPs"][0].as_str()?.to_owned())
    })
    .unwrap()
}

/// The host's own leads to another node.
fn reaches(node: &MeshNode, address: &str) {
    eventually(JOIN_TIMEOUT, "the host's own reaches the other node", || {
        let way = node.sh(&format!("ip route get {address}")).ok()?;
        let line = format!("ping -c 1 -W 2 {address}");
        (way.contains("tailscale0") && node.sh(&line).is_ok()).then_some(())
    })
    .unwrap();
}

/// Waits until a node sends to ours at the host's own address, and by no relay.
fn await_direct(from: &MeshNode) {
    eventually(JOIN_TIMEOUT, "a direct way", || {
        let status = from.tailscaled_status().ok()?;
        let mut peers = status["Peer"].as_object()?.values();
        let ours = peers.find(|peer| peer["HostName"] == "node-1")?;
        let way = ours["CurAddr"].as_str()?;
        let is_hosts = way.starts_with("10.99.0.") || way.starts_with("[fd99:");
        (is_hosts && way.ends_with(":41642")).then_some(())
    })
    .unwrap();
}
