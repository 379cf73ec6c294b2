//! Nodes whose own tailscaled makes them nodes: we add to it, and take only that away again.

use std::time::{Duration, Instant};

use lab::scenario::{AttachedPod, JOIN_TIMEOUT, MeshCluster, MeshNode, NODE_TAG, connectivity};
use lab::{Join, TAILSCALED_SOCKET, Tailscaled};
use serde_json::Value;

use crate::magic_dns;

/// What a person advertised before us.
const FOREIGN: &str = "192.168.77.0/24";
/// All that we change of a host's tailscaled.
const OURS: [&str; 4] = [
    "AdvertiseRoutes",
    "RouteAll",
    "NoSNAT",
    "NoStatefulFiltering",
];

#[test]
fn a_host_keeps_what_it_had_beside_what_we_add() {
    let mut cluster = MeshCluster::prepare(2);
    let hosts = Tailscaled::start(&cluster.topology.nodes[0], cluster.headscale.ca_file()).unwrap();
    let config = in_host_mode(&cluster.nodes[0], &cluster.headscale.url());
    cluster.nodes[0].configure(&config).unwrap();
    logged_out_is_told(&mut cluster.nodes[0]);
    let before = join(&cluster, &hosts);
    let resolver = magic_dns::resolver_of_host(&cluster.nodes[0]);

    cluster.start_daemons().unwrap();
    let pods = cluster.pod_on_each("p");
    connectivity::assert_all_to_all(&pods);
    magic_dns::check(&cluster, &pods[0]);
    only_ours_is_added(&cluster, &before, &prefs(&hosts));
    shields_of_a_host_stay_up_and_are_told_of(&cluster, &hosts, &pods);

    cluster.nodes[0].stop_daemon().unwrap();
    let told = uninstall(&cluster.nodes[0]);
    assert_eq!(prefs(&hosts), before, "{told}");
    let listed = cluster.headscale.node_named("node-1").unwrap();
    assert_eq!(texts(&listed["approved_routes"]), [FOREIGN], "{told}");
    assert_eq!(magic_dns::resolver_of_host(&cluster.nodes[0]), resolver);
}

#[test]
fn a_node_is_a_member_in_one_way_at_a_time() {
    let mut cluster = MeshCluster::prepare(2);
    let hosts = Tailscaled::start(&cluster.topology.nodes[0], cluster.headscale.ca_file()).unwrap();
    let by_host = in_host_mode(&cluster.nodes[0], &cluster.headscale.url());
    cluster.nodes[0].configure(&by_host).unwrap();
    let before = join(&cluster, &hosts);
    cluster.start_daemons().unwrap();
    let pods = cluster.pod_on_each("p");
    connectivity::assert_all_to_all(&pods);
    let node = &cluster.nodes[0];
    let change_to = |mode: &str| {
        let config = by_host.replace("mode: host", &format!("mode: {mode}"));
        node.configure(&config).unwrap();
        node.reload();
    };
    let has_pod_networks = || texts(&prefs(&hosts)["AdvertiseRoutes"]).len() > 1;

    change_to("daemon");
    lab::eventually(JOIN_TIMEOUT, "the host's has what it had", || {
        (prefs(&hosts) == before).then_some(())
    })
    .unwrap();
    node.await_ready(JOIN_TIMEOUT).unwrap();
    node.tailscaled_pid().unwrap();
    connectivity::await_all_to_all(&pods);
    assert!(!has_pod_networks());

    change_to("host");
    lab::eventually(JOIN_TIMEOUT, "the host's has our networks again", || {
        has_pod_networks().then_some(())
    })
    .unwrap();
    node.await_ready(JOIN_TIMEOUT).unwrap();
    assert!(node.tailscaled_pid().is_err(), "ours runs on");
    connectivity::await_all_to_all(&pods);

    change_to("off");
    lab::eventually(JOIN_TIMEOUT, "the host's has what it had again", || {
        (prefs(&hosts) == before).then_some(())
    })
    .unwrap();
    assert!(node.tailscaled_pid().is_err(), "ours runs on");
}

/// They are a person's, who is told how to lower them.
fn shields_of_a_host_stay_up_and_are_told_of(
    cluster: &MeshCluster,
    hosts: &Tailscaled,
    pods: &[AttachedPod],
) {
    let node = &cluster.nodes[0];
    hosts.cli(["set", "--shields-up=true"]).unwrap();
    let words = ["ShieldsUp", "tailscale set --shields-up=false"];
    node.await_reported_false("NetworksServed", &words);
    assert_ne!(node.get("/ready").unwrap().status, 200);
    assert_eq!(prefs(hosts)["ShieldsUp"], true);
    assert!(connectivity::tcp(&pods[1].pod, &pods[0].pod, pods[0].ips[0]).is_err());
    hosts.cli(["set", "--shields-up=false"]).unwrap();
    node.await_reported_true("NetworksServed");
    connectivity::await_all_to_all(pods);
}

#[test]
fn a_host_whose_tailscaled_has_no_link_is_not_ready_until_it_has_one() {
    let mut cluster = MeshCluster::prepare(1);
    let mut hosts = Tailscaled::start(&cluster.topology.nodes[0], cluster.headscale.ca_file()).unwrap();
    join(&cluster, &hosts);
    hosts.kill().unwrap();
    hosts.restart_userspace().unwrap();
    let config = in_host_mode(&cluster.nodes[0], &cluster.headscale.url());
    let node = &mut cluster.nodes[0];
    node.configure(&config).unwrap();
    node.start_daemon().unwrap();
    let words = ["--tun=userspace-networking", "tailscale.mode: daemon"];
    node.await_reported_false("NetworksServed", &words);
    assert_ne!(node.get("/ready").unwrap().status, 200);

    hosts.kill().unwrap();
    hosts.restart().unwrap();
    node.await_ready(JOIN_TIMEOUT).unwrap();
}

fn in_host_mode(node: &MeshNode, url: &str) -> String {
    let config = node.config(url);
    format!("{config}  mode: host\n  socket: {TAILSCALED_SOCKET}\n")
}

fn logged_out_is_told(node: &mut MeshNode) {
    node.start_daemon().unwrap();
    let words = ["is logged out: run", "tailscale up"];
    node.await_reported_false("MeshJoined", &words);
    node.stop_daemon().unwrap();
}

/// Joins as a person would who likes some of it otherwise than we do.
fn join(cluster: &MeshCluster, hosts: &Tailscaled) -> Value {
    let join = Join {
        url: &cluster.headscale.url(),
        key: &cluster.headscale.preauth_key(NODE_TAG).unwrap(),
        advertise: &[FOREIGN],
    };
    hosts.join(&join).unwrap();
    // The opposite of all that we want.
    let otherwise = [
        "set",
        "--accept-routes=false",
        "--snat-subnet-routes=true",
        "--stateful-filtering=true",
    ];
    hosts.cli(otherwise).unwrap();
    cluster.headscale.approve_routes("node-1", &[FOREIGN]).unwrap();
    prefs(hosts)
}

fn only_ours_is_added(cluster: &MeshCluster, before: &Value, now: &Value) {
    for (name, value) in before.as_object().unwrap() {
        let (is_ours, is_same) = (OURS.contains(&name.as_str()), *value == now[name]);
        assert_eq!(is_same, !is_ours, "{name} was {value}: {now}");
    }
    let all = ["10.244.1.0/24", FOREIGN, "fd00:10:244:1::/64"];
    assert_eq!(texts(&now["AdvertiseRoutes"]), all);
    let listed = cluster.headscale.node_named("node-1").unwrap();
    assert_eq!(texts(&listed["approved_routes"]), all);
}

fn prefs(tailscaled: &Tailscaled) -> Value {
    let text = tailscaled.cli(["debug", "prefs"]).unwrap();
    let mut prefs: Value = serde_json::from_str(&text).unwrap();
    // Keys, which are not for a test's words.
    prefs.as_object_mut().unwrap().remove("Config");
    prefs
}

/// A list of texts, in order.
fn texts(list: &Value) -> Vec<String> {
    let texts = list.as_array().into_iter().flatten();
    let mut texts: Vec<_> = texts
        .filter_map(|it| Some(it.as_str()?.to_owned()))
        .collect();
    texts.sort();
    texts
}

#[test]
fn our_own_leaves_nothing_even_if_the_server_is_dead() {
    let mut cluster = MeshCluster::start(1);
    leaves_nothing(&mut cluster.nodes[0]);
    let nodes = cluster.headscale.nodes().unwrap();
    assert!(nodes.is_empty(), "{nodes:?}");

    // Whoever left can come back.
    cluster.start_daemons().unwrap();
    cluster.headscale.kill().unwrap();
    let told = leaves_nothing(&mut cluster.nodes[0]);
    assert!(told.contains("headscale nodes delete"), "{told}");
}

fn leaves_nothing(node: &mut MeshNode) -> String {
    node.stop_daemon().unwrap();
    let told = uninstall(node);
    assert!(node.tailscaled_pid().is_err(), "it runs on: {told}");
    let left = node.sh("ls -d /var/lib/headcni /run/headcni 2>/dev/null || true");
    assert_eq!(left.unwrap(), "", "{told}");
    let links = node.sh("ip link show headcni01 2>/dev/null || true");
    assert_eq!(links.unwrap(), "", "{told}");
    told
}

/// Takes all of us off a node; what is said.
pub(crate) fn uninstall(node: &MeshNode) -> String {
    let began = Instant::now();
    let done = node.command(&["uninstall"]).unwrap();
    assert!(done.status.success(), "{done:?}\n{}", node.diagnostics());
    // On a calm machine it takes two or three.
    assert!(began.elapsed() < Duration::from_secs(20), "{done:?}");
    done.stdout
}
