//! headcni replaces flannel while its pods live, and back.
//!
//! flannel's plugin generates a configuration for bridge and host-local; here they get it directly.

use std::collections::BTreeSet;
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use anyhow::Result;
use lab::scenario::{CLUSTER_CIDRS, JOIN_TIMEOUT, MeshCluster, MeshNode};
use lab::{EchoServer, Family, Netns, PingStream, Pod, eventually};
use serde_json::{Value, json};

const NETWORK: &str = "cbr0";
const BRIDGE: &str = "cni0";
const CONF_DIR: &str = "/etc/cni/net.d";
const FLANNEL: &str = "/etc/cni/net.d/10-flannel.conflist";
/// The cached configuration of a runtime, for pods that it started.
const CACHED_CONF_DIR: &str = "/run/remembered";
const LEASES: &str = "/var/lib/cni/networks/cbr0";
const HOST_PORT: u16 = 8088;

/// The longest pause of a connection within a node while rules are replaced.
const MAX_PAUSE: Duration = Duration::from_secs(2);

#[test]
fn a_live_node_changes_from_flannel_to_headcni_and_back() {
    // flannel sends in clear.
    let mut cluster = MeshCluster::builder()
        .families(&[Family::V4])
        .without_sniffers()
        .prepare();
    set_up_flannel(&cluster);
    let url = cluster.headscale.url();
    let [first, second] = [&cluster.nodes[0], &cluster.nodes[1]];
    let old = ["a", "b", "c"].map(|name| add(first, name, no_ports()));
    let [a, b, c] = &old;
    let published = add(first, "published", ports_of(HOST_PORT));
    let far = add(second, "far", no_ports());
    check(a, &far).unwrap();
    assert_eq!(host_ports(first), [HOST_PORT]);
    let servers = [b, &far].map(|pod| EchoServer::start(&pod.pod, Family::V4, 7000).unwrap());
    let [near_stream, far_stream] = [b, &far].map(|to| {
        let server = SocketAddr::new(to.ip, 7000);
        PingStream::tcp(&a.pod, server).unwrap()
    });

    // The first of two nodes: its pods keep running, but the nodes have no common network.
    migrate(&mut cluster.nodes[0], &url);
    near_stream.await_answer(MAX_PAUSE).unwrap();
    check(a, &far).unwrap_err();
    check(&far, a).unwrap_err();
    let on_first = add(&cluster.nodes[0], "new", ports_of(HOST_PORT + 1));
    check_both(&on_first, a);
    for (from, to) in [(&on_first, a), (a, &on_first)] {
        ping_large(from, to).unwrap();
    }

    // The second: the mesh connects all pods, and an old connection continues.
    migrate(&mut cluster.nodes[1], &url);
    cluster.await_routes().unwrap();
    let sniffer = cluster.topology.underlay.sniff(&CLUSTER_CIDRS).unwrap();
    let on_second = add(&cluster.nodes[1], "new", no_ports());
    let nodes = [[a, &on_first], [&far, &on_second]];
    for (here, there) in [(nodes[0], nodes[1]), (nodes[1], nodes[0])] {
        for (from, to) in here.iter().flat_map(|from| there.map(|to| (from, to))) {
            eventually(JOIN_TIMEOUT, "pods of both nodes reach each other", || {
                check(from, to).ok()
            })
            .unwrap();
            // After the first ICMP error, packets are fragmented.
            eventually(JOIN_TIMEOUT, "large packets arrive", || {
                ping_large(from, to).ok()
            })
            .unwrap();
        }
    }
    far_stream.await_answer(JOIN_TIMEOUT).unwrap();
    assert_eq!(far_stream.broken(), None);
    delete_flannel_routes(&cluster);
    check_both(a, &far);
    sniffer.finish().unwrap().check_nothing_in_clear().unwrap();

    let first = &cluster.nodes[0];
    del_of_old_pods_releases_their_leases(first, c, &published);
    let more: Vec<_> = (0..4)
        .map(|number| add(first, &format!("more-{number}"), no_ports()))
        .collect();
    let living: Vec<_> = [a, b, &on_first].into_iter().chain(&more).collect();
    assert_unique_leases(first, &living);
    assert_eq!(near_stream.broken(), None);
    let gap = near_stream.longest_gap();
    assert!(gap < MAX_PAUSE, "no answer for {gap:?}");

    migrate_back(&mut cluster);
    near_stream.await_answer(MAX_PAUSE).unwrap();
    assert_eq!(near_stream.broken(), None);
    let first = &cluster.nodes[0];
    let again = add(first, "again", no_ports());
    let living: Vec<_> = living.into_iter().chain([&again]).collect();
    assert_unique_leases(first, &living);
    for pod in [a, &on_first] {
        check_both(&again, pod);
        eventually(JOIN_TIMEOUT, "flannel's route is back", || {
            check(pod, &far).ok()
        })
        .unwrap();
    }
    drop(servers);
}

/// Two nodes with flannel's host-gw backend.
fn set_up_flannel(cluster: &MeshCluster) {
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
        for path in [FLANNEL, &format!("{CACHED_CONF_DIR}/flannel.conflist")] {
            node.node.write(path, conflist.to_string()).unwrap();
        }
        node.node.sysctl("net.ipv4.ip_forward", "1").unwrap();
    }
    add_flannel_routes(cluster);
}

fn add_flannel_routes(cluster: &MeshCluster) {
    let [one, two] = [0, 1].map(|index| cluster.topology.ports[index].v4);
    for (node, network, gateway) in [(0, "10.244.2.0/24", two), (1, "10.244.1.0/24", one)] {
        let line = format!("ip route replace {network} via {gateway}");
        cluster.nodes[node].sh(&line).unwrap();
    }
}

fn delete_flannel_routes(cluster: &MeshCluster) {
    for (node, network) in [(0, "10.244.2.0/24"), (1, "10.244.1.0/24")] {
        let line = format!("ip route delete {network} table main");
        cluster.nodes[node].sh(&line).unwrap();
    }
}

/// Starts headcni with the configuration of docs/migrate-from-flannel.md.
fn migrate(node: &mut MeshNode, url: &str) {
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
    let names = node.sh(&format!("ls {CONF_DIR}")).unwrap();
    let names: Vec<_> = names.lines().collect();
    assert_eq!(
        names,
        ["10-flannel.conflist.headcni-aside", "10-headcni.conflist"]
    );
}

/// By the runtime's cached configuration, or by the current one.
fn del_of_old_pods_releases_their_leases(node: &MeshNode, one: &FlannelPod, another: &FlannelPod) {
    for (pod, configurations) in [(one, CACHED_CONF_DIR), (another, CONF_DIR)] {
        assert!(leases(node).contains(&pod.ip));
        delete(node, pod, configurations);
        assert!(
            !leases(node).contains(&pod.ip),
            "{} still has a lease",
            pod.ip
        );
        let links = pod.pod.links().unwrap();
        assert!(links.is_empty(), "{links:?}");
    }
    // Only the new pod's.
    assert_eq!(host_ports(node), [HOST_PORT + 1]);
}

/// Every pod has its own address, and the store has just these leases.
#[track_caller]
fn assert_unique_leases(node: &MeshNode, living: &[&FlannelPod]) {
    let addresses: BTreeSet<IpAddr> = living.iter().map(|pod| pod.ip).collect();
    assert_eq!(addresses.len(), living.len(), "{addresses:?}");
    assert_eq!(leases(node), addresses);
}

/// Uninstalls headcni. flannel would then add its routes again.
fn migrate_back(cluster: &mut MeshCluster) {
    for node in &mut cluster.nodes {
        node.stop_daemon().unwrap();
        let done = node.command(&["uninstall"]).unwrap();
        assert!(done.status.success(), "{done:?}");
        let names = node.sh(&format!("ls {CONF_DIR}")).unwrap();
        assert_eq!(names.trim(), "10-flannel.conflist");
        assert!(node.node.link(BRIDGE).unwrap().is_some(), "{done:?}");
    }
    add_flannel_routes(cluster);
}

struct FlannelPod {
    pod: Pod,
    ip: IpAddr,
    /// Capability arguments, which DEL needs as well for portmap.
    capabilities: Value,
}

/// By libcni and the node's current configuration.
#[track_caller]
fn add(node: &MeshNode, name: &str, capabilities: Value) -> FlannelPod {
    let pod = node.node.pod(name).unwrap();
    let tool = node
        .node
        .cnitool(CONF_DIR, "add", NETWORK, pod.netns_path());
    let outcome = tool
        .path("/opt/cni/bin")
        .capabilities(&capabilities)
        .run()
        .unwrap();
    let result = outcome.ok_json().unwrap();
    let address = result["ips"][0]["address"].as_str().unwrap();
    let ip = address.split('/').next().unwrap().parse().unwrap();
    assert_eq!(result["ips"].as_array().unwrap().len(), 1, "{result}");
    FlannelPod {
        pod,
        ip,
        capabilities,
    }
}

fn delete(node: &MeshNode, made: &FlannelPod, configurations: &str) {
    let netns = made.pod.netns_path();
    let tool = node.node.cnitool(configurations, "del", NETWORK, netns);
    let tool = tool.path("/opt/cni/bin").capabilities(&made.capabilities);
    tool.run().unwrap().ok().unwrap();
}

/// One pod reaches another under its own address.
fn check(from: &FlannelPod, to: &FlannelPod) -> Result<()> {
    let server = EchoServer::start(&to.pod, Family::V4, 0)?;
    let server = SocketAddr::new(to.ip, server.port()?);
    let seen = from.pod.call_echo(server, "hello")?;
    anyhow::ensure!(seen == from.ip, "{} is seen as {seen}", from.ip);
    Ok(())
}

/// With a packet above the mesh MTU.
fn ping_large(from: &FlannelPod, to: &FlannelPod) -> Result<()> {
    let to = to.ip.to_string();
    let line = ["ping", "-n", "-c", "1", "-W", "2", "-s", "1400", &to];
    from.pod.run(line).map(drop)
}

#[track_caller]
fn check_both(one: &FlannelPod, another: &FlannelPod) {
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

/// The hostPorts in portmap's rules.
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
