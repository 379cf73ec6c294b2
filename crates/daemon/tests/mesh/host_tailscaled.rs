//! `tailscale.mode: host`: the daemon adds to the host's tailscaled, and removes only that again.

use std::time::{Duration, Instant};

use lab::scenario::{AttachedPod, JOIN_TIMEOUT, MeshCluster, MeshNode, NODE_TAG, connectivity};
use lab::{Join, TAILSCALED_SOCKET, Tailscaled};
use serde_json::Value;

use crate::magic_dns;

/// A route that an administrator advertised before.
const HOST_ROUTE: &str = "192.168.77.0/24";
/// All prefs that the daemon changes.
const CHANGED_PREFS: [&str; 4] = [
    "AdvertiseRoutes",
    "RouteAll",
    "NoSNAT",
    "NoStatefulFiltering",
];

#[test]
fn prefs_of_the_host_tailscaled_are_kept_and_restored_on_uninstall() {
    let mut cluster = MeshCluster::prepare(2);
    let hosts = Tailscaled::start(&cluster.topology.nodes[0], cluster.headscale.ca_file()).unwrap();
    let config = in_host_mode(&cluster.nodes[0], &cluster.headscale.url());
    cluster.nodes[0].configure(&config).unwrap();
    a_logged_out_tailscaled_is_reported(&mut cluster.nodes[0]);
    let before = join(&cluster, &hosts);
    let resolver = magic_dns::host_resolv_conf(&cluster.nodes[0]);

    cluster.start_daemons().unwrap();
    let pods = cluster.pod_on_each("p");
    connectivity::assert_all_to_all(&pods);
    magic_dns::assert_resolves(&cluster, &pods[0]);
    assert_only_our_prefs_changed(&cluster, &before, &prefs(&hosts));
    shields_up_of_the_host_is_reported_and_kept(&cluster, &hosts, &pods);

    cluster.nodes[0].stop_daemon().unwrap();
    let output = uninstall(&cluster.nodes[0]);
    assert_eq!(prefs(&hosts), before, "{output}");
    let listed = cluster.headscale.node_named("node-1").unwrap();
    assert_eq!(texts(&listed["approved_routes"]), [HOST_ROUTE], "{output}");
    assert_eq!(magic_dns::host_resolv_conf(&cluster.nodes[0]), resolver);
}

#[test]
fn changing_tailscale_mode_moves_the_routes_between_tailscaleds() {
    let mut cluster = MeshCluster::prepare(2);
    let hosts = Tailscaled::start(&cluster.topology.nodes[0], cluster.headscale.ca_file()).unwrap();
    let host_config = in_host_mode(&cluster.nodes[0], &cluster.headscale.url());
    cluster.nodes[0].configure(&host_config).unwrap();
    let before = join(&cluster, &hosts);
    cluster.start_daemons().unwrap();
    let pods = cluster.pod_on_each("p");
    connectivity::assert_all_to_all(&pods);
    let node = &cluster.nodes[0];
    let change_to = |mode: &str| {
        let config = host_config.replace("mode: host", &format!("mode: {mode}"));
        node.configure(&config).unwrap();
        node.reload();
    };
    let has_pod_routes = || texts(&prefs(&hosts)["AdvertiseRoutes"]).len() > 1;

    change_to("daemon");
    lab::eventually(JOIN_TIMEOUT, "the host tailscaled is restored", || {
        (prefs(&hosts) == before).then_some(())
    })
    .unwrap();
    node.await_ready(JOIN_TIMEOUT).unwrap();
    node.tailscaled_pid().unwrap();
    connectivity::await_all_to_all(&pods);
    assert!(!has_pod_routes());

    change_to("host");
    lab::eventually(
        JOIN_TIMEOUT,
        "the host tailscaled has our routes again",
        || has_pod_routes().then_some(()),
    )
    .unwrap();
    node.await_ready(JOIN_TIMEOUT).unwrap();
    assert!(
        node.tailscaled_pid().is_err(),
        "the managed tailscaled still runs"
    );
    connectivity::await_all_to_all(&pods);

    change_to("off");
    lab::eventually(
        JOIN_TIMEOUT,
        "the host tailscaled is restored again",
        || (prefs(&hosts) == before).then_some(()),
    )
    .unwrap();
    assert!(
        node.tailscaled_pid().is_err(),
        "the managed tailscaled still runs"
    );
}

/// ShieldsUp is the administrator's choice: the daemon reports it and does not change it.
fn shields_up_of_the_host_is_reported_and_kept(
    cluster: &MeshCluster,
    hosts: &Tailscaled,
    pods: &[AttachedPod],
) {
    let node = &cluster.nodes[0];
    hosts.cli(["set", "--shields-up=true"]).unwrap();
    let expected = ["ShieldsUp", "tailscale set --shields-up=false"];
    node.await_reported_false("RoutesServed", &expected);
    assert_ne!(node.get("/ready").unwrap().status, 200);
    assert_eq!(prefs(hosts)["ShieldsUp"], true);
    assert!(connectivity::tcp(&pods[1].pod, &pods[0].pod, pods[0].ips[0]).is_err());
    hosts.cli(["set", "--shields-up=false"]).unwrap();
    node.await_reported_true("RoutesServed");
    connectivity::await_all_to_all(pods);
}

#[test]
fn a_host_tailscaled_in_userspace_mode_is_not_ready() {
    let mut cluster = MeshCluster::prepare(1);
    let mut hosts =
        Tailscaled::start(&cluster.topology.nodes[0], cluster.headscale.ca_file()).unwrap();
    join(&cluster, &hosts);
    hosts.kill().unwrap();
    hosts.restart_userspace().unwrap();
    let config = in_host_mode(&cluster.nodes[0], &cluster.headscale.url());
    let node = &mut cluster.nodes[0];
    node.configure(&config).unwrap();
    node.start_daemon().unwrap();
    let expected = ["--tun=userspace-networking", "tailscale.mode: daemon"];
    node.await_reported_false("RoutesServed", &expected);
    assert_ne!(node.get("/ready").unwrap().status, 200);

    hosts.kill().unwrap();
    hosts.restart().unwrap();
    node.await_ready(JOIN_TIMEOUT).unwrap();
}

fn in_host_mode(node: &MeshNode, url: &str) -> String {
    let config = node.config(url);
    format!("{config}  mode: host\n  socket: {TAILSCALED_SOCKET}\n")
}

fn a_logged_out_tailscaled_is_reported(node: &mut MeshNode) {
    node.start_daemon().unwrap();
    let expected = ["is logged out: run", "tailscale up"];
    node.await_reported_false("MeshJoined", &expected);
    node.stop_daemon().unwrap();
}

/// Joins, and sets the opposite of what the daemon needs.
fn join(cluster: &MeshCluster, hosts: &Tailscaled) -> Value {
    let join = Join {
        url: &cluster.headscale.url(),
        key: &cluster.headscale.preauth_key(NODE_TAG).unwrap(),
        advertise: &[HOST_ROUTE],
    };
    hosts.join(&join).unwrap();
    let opposite = [
        "set",
        "--accept-routes=false",
        "--snat-subnet-routes=true",
        "--stateful-filtering=true",
    ];
    hosts.cli(opposite).unwrap();
    cluster
        .headscale
        .approve_routes("node-1", &[HOST_ROUTE])
        .unwrap();
    prefs(hosts)
}

fn assert_only_our_prefs_changed(cluster: &MeshCluster, before: &Value, now: &Value) {
    for (name, value) in before.as_object().unwrap() {
        let (is_changed, is_same) = (CHANGED_PREFS.contains(&name.as_str()), *value == now[name]);
        assert_eq!(is_same, !is_changed, "{name} was {value}: {now}");
    }
    let all = ["10.244.1.0/24", HOST_ROUTE, "fd00:10:244:1::/64"];
    assert_eq!(texts(&now["AdvertiseRoutes"]), all);
    let listed = cluster.headscale.node_named("node-1").unwrap();
    assert_eq!(texts(&listed["approved_routes"]), all);
}

fn prefs(tailscaled: &Tailscaled) -> Value {
    let text = tailscaled.cli(["debug", "prefs"]).unwrap();
    let mut prefs: Value = serde_json::from_str(&text).unwrap();
    // Keys, which must not be printed.
    prefs.as_object_mut().unwrap().remove("Config");
    prefs
}

fn texts(list: &Value) -> Vec<String> {
    let texts = list.as_array().into_iter().flatten();
    let mut texts: Vec<_> = texts
        .filter_map(|it| Some(it.as_str()?.to_owned()))
        .collect();
    texts.sort();
    texts
}

#[test]
fn uninstall_removes_a_managed_tailscaled_also_without_headscale() {
    let mut cluster = MeshCluster::start(1);
    assert_uninstall_is_complete(&mut cluster.nodes[0]);
    let nodes = cluster.headscale.nodes().unwrap();
    assert!(nodes.is_empty(), "{nodes:?}");

    // A node that left can rejoin.
    cluster.start_daemons().unwrap();
    cluster.headscale.kill().unwrap();
    let output = assert_uninstall_is_complete(&mut cluster.nodes[0]);
    assert!(output.contains("headscale nodes delete"), "{output}");
}

fn assert_uninstall_is_complete(node: &mut MeshNode) -> String {
    node.stop_daemon().unwrap();
    let output = uninstall(node);
    assert!(
        node.tailscaled_pid().is_err(),
        "tailscaled still runs: {output}"
    );
    let left = node.sh("ls -d /var/lib/headcni /run/headcni 2>/dev/null || true");
    assert_eq!(left.unwrap(), "", "{output}");
    let links = node.sh("ip link show headcni01 2>/dev/null || true");
    assert_eq!(links.unwrap(), "", "{output}");
    output
}

/// Uninstalls headcni; returns the output.
pub(crate) fn uninstall(node: &MeshNode) -> String {
    let began = Instant::now();
    let done = node.command(&["uninstall"]).unwrap();
    assert!(done.status.success(), "{done:?}\n{}", node.diagnostics());
    // Two or three seconds on an idle machine.
    assert!(began.elapsed() < Duration::from_secs(20), "{done:?}");
    done.stdout
}
