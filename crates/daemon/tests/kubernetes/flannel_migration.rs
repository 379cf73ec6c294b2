//! Nodes whose pods flannel has made, and headcni in its place while they live.
//!
//! flannel's plugin completes a configuration and leaves the work to bridge and host-local. Here they
//! are given what it would give them.

use std::collections::BTreeSet;
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use anyhow::Result;
use lab::scenario::{CLUSTER_CIDRS, JOIN_TIMEOUT, MeshCluster, MeshNode, Site, Topology};
use lab::{EchoServer, Family, Netns, Pod, PingStream, eventually};
use serde_json::{Value, json};

const NETWORK: &str = "cbr0";
const BRIDGE: &str = "cni0";
const CONFIGURATIONS: &str = "/etc/cni/net.d";
const FLANNEL: &str = "/etc/cni/net.d/10-flannel.conflist";
/// What a runtime that remembers configurations has of pods that it started.
const REMEMBERED: &str = "/run/remembered";
const LEASES: &str = "/var/lib/cni/networks/cbr0";
const HOST_PORT: u16 = 8088;

/// A connection within a node may hesitate while rules are put in place on a busy machine.
const HESITATION: Duration = Duration::from_secs(2);

#[test]
fn a_live_node_changes_from_flannel_to_headcni_and_back() {
    let grounds = Topology::new(&[Site::Open, Site::Open]).unwrap();
    let mut cluster = MeshCluster::of_families(&grounds, &[Family::V4]).unwrap();
    make_flannels(&cluster);
    let url = cluster.headscale.url();
    let [first, second] = [&cluster.nodes[0], &cluster.nodes[1]];
    let old = ["a", "b", "c"].map(|name| add(first, name, no_ports()));
    let [a, b, c] = &old;
    let published = add(first, "published", ports_of(HOST_PORT));
    let far = add(second, "far", no_ports());
    check(a, &far).unwrap();
    assert_eq!(host_ports(first), [HOST_PORT]);
    let servers = [b, &far].map(|pod| EchoServer::start(&pod.pod, Family::V4, 7000).unwrap());
    let [near_pulse, far_pulse] = [b, &far].map(|to| {
        let server = SocketAddr::new(to.ip, 7000);
        PingStream::tcp(&a.pod, server).unwrap()
    });

    // The first of two nodes: its pods live on, but between nodes there is no common way.
    take_over(&mut cluster.nodes[0], &url);
    near_pulse.await_answer(HESITATION).unwrap();
    check(a, &far).unwrap_err();
    check(&far, a).unwrap_err();
    let on_first = add(&cluster.nodes[0], "new", ports_of(HOST_PORT + 1));
    check_both(&on_first, a);
    for (from, to) in [(&on_first, a), (a, &on_first)] {
        ping_large(from, to).unwrap();
    }

    // The second: now the mesh leads to all pods, and even a connection from before goes on.
    take_over(&mut cluster.nodes[1], &url);
    cluster.await_routes().unwrap();
    let sniffer = grounds.underlay.sniff(&CLUSTER_CIDRS).unwrap();
    let on_second = add(&cluster.nodes[1], "new", no_ports());
    let nodes = [[a, &on_first], [&far, &on_second]];
    for (here, there) in [(nodes[0], nodes[1]), (nodes[1], nodes[0])] {
        for (from, to) in here.iter().flat_map(|from| there.map(|to| (from, to))) {
            eventually(JOIN_TIMEOUT, "pods of both nodes talk", || check(from, to).ok()).unwrap();
            // The first packet is answered by what the mesh can carry, and the next ones are in parts.
            eventually(JOIN_TIMEOUT, "large packets arrive", || ping_large(from, to).ok()).unwrap();
        }
    }
    far_pulse.await_answer(JOIN_TIMEOUT).unwrap();
    assert_eq!(far_pulse.broken(), None);
    forget_flannels_routes(&cluster);
    check_both(a, &far);
    sniffer.finish().unwrap().check_nothing_in_clear().unwrap();

    let first = &cluster.nodes[0];
    old_pods_give_their_addresses_back(first, c, &published);
    let more: Vec<_> = (0..4)
        .map(|number| add(first, &format!("more-{number}"), no_ports()))
        .collect();
    let living: Vec<_> = [a, b, &on_first].into_iter().chain(&more).collect();
    check_each_has_its_own(first, &living);
    assert_eq!(near_pulse.broken(), None);
    let gap = near_pulse.longest_gap();
    assert!(gap < HESITATION, "silent for {gap:?}");

    go_back(&mut cluster);
    near_pulse.await_answer(HESITATION).unwrap();
    assert_eq!(near_pulse.broken(), None);
    let first = &cluster.nodes[0];
    let again = add(first, "again", no_ports());
    let living: Vec<_> = living.into_iter().chain([&again]).collect();
    check_each_has_its_own(first, &living);
    for pod in [a, &on_first] {
        check_both(&again, pod);
        eventually(JOIN_TIMEOUT, "flannel's way is back", || check(pod, &far).ok()).unwrap();
    }
    drop(servers);
}

/// Two nodes as flannel with the backend host-gw would have left them.
fn make_flannels(cluster: &MeshCluster) {
    for node in &cluster.nodes {
        let network = &node.pod_cidrs()[0];
        let conflist = json!({
            "name": NETWORK,
            "cniVersion": "0.3.1",
            "plugins": [
                {
                    "type": "bridge",
                    "bridge": BRIDGE,
                    "hairpinMode": true,
                    "isGateway": true,
                    "isDefaultGateway": true,
                    "ipMasq": false,
                    "mtu": 1450,
                    "ipam": {
                        "type": "host-local",
                        "ranges": [[{ "subnet": network }]],
                        "routes": [{ "dst": CLUSTER_CIDRS[0] }],
                    },
                },
                { "type": "portmap", "capabilities": { "portMappings": true } },
            ],
        });
        for path in [FLANNEL, &format!("{REMEMBERED}/flannel.conflist")] {
            node.node.write(path, conflist.to_string()).unwrap();
        }
        node.node.sysctl("net.ipv4.ip_forward", "1").unwrap();
    }
    add_flannels_routes(cluster);
}

fn add_flannels_routes(cluster: &MeshCluster) {
    let [one, two] = [0, 1].map(|index| cluster.topology.ports[index].v4);
    for (node, network, way) in [(0, "10.244.2.0/24", two), (1, "10.244.1.0/24", one)] {
        let line = format!("ip route replace {network} via {way}");
        cluster.nodes[node].sh(&line).unwrap();
    }
}

fn forget_flannels_routes(cluster: &MeshCluster) {
    for (node, network) in [(0, "10.244.2.0/24"), (1, "10.244.1.0/24")] {
        let line = format!("ip route delete {network} table main");
        cluster.nodes[node].sh(&line).unwrap();
    }
}

/// Starts headcni with what docs/migrate-from-flannel.md says, and waits until it is in place.
fn take_over(node: &mut MeshNode, url: &str) {
    let document = include_str!("../../../../docs/migrate-from-flannel.md");
    let (_, rest) = document.split_once("```yaml\nconfig:\n").unwrap();
    let (values, _) = rest.split_once("```").unwrap();
    let mut config: Value = serde_saphyr::from_str(values).unwrap();
    let rest: Value = serde_saphyr::from_str(&node.config(url)).unwrap();
    for key in ["headscale", "tailscale"] {
        config[key] = rest[key].clone();
    }
    let network = &node.pod_cidrs()[0];
    config["network"]["podCIDR"] = json!({ "nodeLocal": network, "base": CLUSTER_CIDRS[0] });
    node.configure(&config.to_string()).unwrap();
    node.start_daemon().unwrap();
    node.await_ready(JOIN_TIMEOUT).unwrap();
    let names = node.sh(&format!("ls {CONFIGURATIONS}")).unwrap();
    let names: Vec<_> = names.lines().collect();
    assert_eq!(
        names,
        ["10-flannel.conflist.headcni-aside", "10-headcni.conflist"]
    );
}

/// Runtimes that remember configurations use the old one, others the one that is there now.
fn old_pods_give_their_addresses_back(node: &MeshNode, one: &Made<'_>, another: &Made<'_>) {
    for (pod, configurations) in [(one, REMEMBERED), (another, CONFIGURATIONS)] {
        assert!(leases(node).contains(&pod.ip));
        delete(node, pod, configurations);
        assert!(
            !leases(node).contains(&pod.ip),
            "{} keeps its lease",
            pod.ip
        );
        let links = pod.pod.links().unwrap();
        assert!(links.is_empty(), "{links:?}");
    }
    // That of the new pod.
    assert_eq!(host_ports(node), [HOST_PORT + 1]);
}

/// Nobody has another's address, and the store knows just those who live.
#[track_caller]
fn check_each_has_its_own(node: &MeshNode, living: &[&Made<'_>]) {
    let addresses: BTreeSet<IpAddr> = living.iter().map(|pod| pod.ip).collect();
    assert_eq!(addresses.len(), living.len(), "{addresses:?}");
    assert_eq!(leases(node), addresses);
}

/// Uninstalls headcni everywhere. flannel would then make its routes again.
fn go_back(cluster: &mut MeshCluster) {
    for node in &mut cluster.nodes {
        node.stop_daemon().unwrap();
        let done = node.command(&["uninstall"]).unwrap();
        assert!(done.status.success(), "{done:?}");
        let names = node.sh(&format!("ls {CONFIGURATIONS}")).unwrap();
        assert_eq!(names.trim(), "10-flannel.conflist");
        assert!(node.node.link(BRIDGE).unwrap().is_some(), "{done:?}");
    }
    add_flannels_routes(cluster);
}

/// A pod, whoever made it.
struct Made<'a> {
    pod: Pod,
    ip: IpAddr,
    /// What the runtime tells plugins about it, at its end as well: portmap undoes only what it is told.
    capabilities: Value,
}

/// By the real libcni, with whatever configuration the node has for the network.
#[track_caller]
fn add<'a>(node: &MeshNode, name: &str, capabilities: Value) -> Made<'a> {
    let pod = node.node.pod(name).unwrap();
    let tool = node
        .node
        .cnitool(CONFIGURATIONS, "add", NETWORK, pod.netns_path());
    let outcome = tool
        .path("/opt/cni/bin")
        .capabilities(&capabilities)
        .run()
        .unwrap();
    let result = outcome.ok_json().unwrap();
    let address = result["ips"][0]["address"].as_str().unwrap();
    let ip = address.split('/').next().unwrap().parse().unwrap();
    assert_eq!(result["ips"].as_array().unwrap().len(), 1, "{result}");
    Made {
        pod,
        ip,
        capabilities,
    }
}

fn delete(node: &MeshNode, made: &Made<'_>, configurations: &str) {
    let netns = made.pod.netns_path();
    let tool = node.node.cnitool(configurations, "del", NETWORK, netns);
    let tool = tool.path("/opt/cni/bin").capabilities(&made.capabilities);
    tool.run().unwrap().ok().unwrap();
}

/// That one pod reaches another under its own address.
fn check(from: &Made<'_>, to: &Made<'_>) -> Result<()> {
    let server = EchoServer::start(&to.pod, Family::V4, 0)?;
    let server = SocketAddr::new(to.ip, server.port()?);
    let seen = from.pod.call_echo(server, "hello")?;
    anyhow::ensure!(seen == from.ip, "{} is seen as {seen}", from.ip);
    Ok(())
}

/// With a packet that the bridge carries, and the mesh doesn't.
fn ping_large(from: &Made<'_>, to: &Made<'_>) -> Result<()> {
    let to = to.ip.to_string();
    let line = ["ping", "-n", "-c", "1", "-W", "2", "-s", "1400", &to];
    from.pod.run(line).map(drop)
}

#[track_caller]
fn check_both(one: &Made<'_>, another: &Made<'_>) {
    check(one, another).unwrap();
    check(another, one).unwrap();
}

fn leases(node: &MeshNode) -> BTreeSet<IpAddr> {
    let names = node.sh(&format!("ls {LEASES}")).unwrap();
    names.lines().filter_map(|name| name.parse().ok()).collect()
}

fn no_ports() -> Value {
    json!({})
}

fn ports_of(port: u16) -> Value {
    json!({ "portMappings": [{ "hostPort": port, "containerPort": 80, "protocol": "tcp" }] })
}

/// The ports that portmap leads to pods.
fn host_ports(node: &MeshNode) -> Vec<u16> {
    let rules = node
        .sh("nft list ruleset; iptables-legacy-save 2>/dev/null || true")
        .unwrap();
    let words: BTreeSet<&str> = rules.split_whitespace().collect();
    let ports = [HOST_PORT, HOST_PORT + 1].into_iter();
    ports
        .filter(|port| words.contains(port.to_string().as_str()))
        .collect()
}
