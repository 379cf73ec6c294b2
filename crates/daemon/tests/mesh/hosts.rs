//! Nodes whose own tailscaled makes them members: we add to it, and take only that away again.

use std::time::{Duration, Instant};

use lab::{
    AttachedPod, MeshCluster, JOIN_TIMEOUT, Join, MeshNode, Signal, Site, TAG, TAILSCALED_SOCKET, Tailscaled,
};
use serde_json::Value;

use crate::scene::Scene;
use crate::{dns, talk, told};

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
    let scene = Scene::new(&[Site::Open, Site::Open]);
    let grounds = &scene.grounds;
    let mut cluster = MeshCluster::new(grounds).unwrap();
    let hosts = Tailscaled::start(&grounds.nodes[0], cluster.headscale.ca_file()).unwrap();
    let config = in_host_mode(&cluster.members[0], &cluster.headscale.url());
    cluster.members[0].configure(&config).unwrap();
    logged_out_is_told(&mut cluster.members[0]);
    let before = join(&cluster, &hosts);
    let resolver = dns::resolver_of_host(&cluster.members[0]);

    cluster.start().unwrap();
    let members = cluster.members.iter();
    let pods: Vec<_> = members.map(|member| member.pod("p").unwrap()).collect();
    talk::check_all_to_all(&pods);
    dns::check(&cluster, &pods[0]);
    only_ours_is_added(&cluster, &before, &prefs(&hosts));
    shields_of_a_host_stay_up_and_are_told_of(&cluster, &hosts, &pods);

    cluster.members[0].stop_daemon().unwrap();
    let told = uninstall(&cluster.members[0]);
    assert_eq!(prefs(&hosts), before, "{told}");
    let node = cluster.headscale.node_named("node-1").unwrap();
    assert_eq!(texts(&node["approved_routes"]), [FOREIGN], "{told}");
    assert_eq!(dns::resolver_of_host(&cluster.members[0]), resolver);
}

#[test]
fn a_node_is_a_member_in_one_way_at_a_time() {
    let scene = Scene::new(&[Site::Open, Site::Open]);
    let grounds = &scene.grounds;
    let mut cluster = MeshCluster::new(grounds).unwrap();
    let hosts = Tailscaled::start(&grounds.nodes[0], cluster.headscale.ca_file()).unwrap();
    let by_host = in_host_mode(&cluster.members[0], &cluster.headscale.url());
    cluster.members[0].configure(&by_host).unwrap();
    let before = join(&cluster, &hosts);
    cluster.start().unwrap();
    let members = cluster.members.iter();
    let pods: Vec<_> = members.map(|member| member.pod("p").unwrap()).collect();
    talk::check_all_to_all(&pods);
    let member = &cluster.members[0];
    let change_to = |mode: &str| {
        let config = by_host.replace("mode: host", &format!("mode: {mode}"));
        member.configure(&config).unwrap();
        member.signal(Signal::HUP);
    };
    let has_pod_networks = || texts(&prefs(&hosts)["AdvertiseRoutes"]).len() > 1;

    change_to("daemon");
    lab::eventually(JOIN_TIMEOUT, "the host's has what it had", || {
        (prefs(&hosts) == before).then_some(())
    })
    .unwrap();
    member.await_ready(JOIN_TIMEOUT).unwrap();
    member.tailscaled_pid().unwrap();
    talk::await_all_to_all(&pods);
    assert!(!has_pod_networks());

    change_to("host");
    lab::eventually(JOIN_TIMEOUT, "the host's has our networks again", || {
        has_pod_networks().then_some(())
    })
    .unwrap();
    member.await_ready(JOIN_TIMEOUT).unwrap();
    assert!(member.tailscaled_pid().is_err(), "ours runs on");
    talk::await_all_to_all(&pods);

    change_to("off");
    lab::eventually(JOIN_TIMEOUT, "the host's has what it had again", || {
        (prefs(&hosts) == before).then_some(())
    })
    .unwrap();
    assert!(member.tailscaled_pid().is_err(), "ours runs on");
}

/// They are a person's, who is told how to lower them.
fn shields_of_a_host_stay_up_and_are_told_of(
    cluster: &MeshCluster,
    hosts: &Tailscaled,
    pods: &[AttachedPod],
) {
    let member = &cluster.members[0];
    hosts.cli(["set", "--shields-up=true"]).unwrap();
    let words = ["ShieldsUp", "tailscale set --shields-up=false"];
    told::await_failing(member, "NetworksServed", &words);
    assert_ne!(member.get("/ready").unwrap().status, 200);
    assert_eq!(prefs(hosts)["ShieldsUp"], true);
    assert!(talk::tcp(&pods[1].pod, &pods[0].pod, pods[0].ips[0]).is_err());
    hosts.cli(["set", "--shields-up=false"]).unwrap();
    told::await_holding(member, "NetworksServed");
    talk::await_all_to_all(pods);
}

#[test]
fn a_host_whose_tailscaled_has_no_link_is_not_ready_until_it_has_one() {
    let scene = Scene::new(&[Site::Open]);
    let grounds = &scene.grounds;
    let mut cluster = MeshCluster::new(grounds).unwrap();
    let mut hosts = Tailscaled::start(&grounds.nodes[0], cluster.headscale.ca_file()).unwrap();
    join(&cluster, &hosts);
    hosts.kill().unwrap();
    hosts.resume_without_link().unwrap();
    let config = in_host_mode(&cluster.members[0], &cluster.headscale.url());
    let member = &mut cluster.members[0];
    member.configure(&config).unwrap();
    member.launch().unwrap();
    let words = ["--tun=userspace-networking", "tailscale.mode: daemon"];
    told::await_failing(member, "NetworksServed", &words);
    assert_ne!(member.get("/ready").unwrap().status, 200);

    hosts.kill().unwrap();
    hosts.resume().unwrap();
    member.await_ready(JOIN_TIMEOUT).unwrap();
}

fn in_host_mode(member: &MeshNode, url: &str) -> String {
    let config = member.config(url);
    format!("{config}  mode: host\n  socket: {TAILSCALED_SOCKET}\n")
}

fn logged_out_is_told(member: &mut MeshNode) {
    member.launch().unwrap();
    let words = ["is logged out: run", "tailscale up"];
    told::await_failing(member, "MeshJoined", &words);
    member.stop_daemon().unwrap();
}

/// Joins as a person would who likes some of it otherwise than we do.
fn join(cluster: &MeshCluster, hosts: &Tailscaled) -> Value {
    let join = Join {
        url: &cluster.headscale.url(),
        key: &cluster.headscale.preauth_key(TAG).unwrap(),
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
    cluster.headscale.approve("node-1", &[FOREIGN]).unwrap();
    prefs(hosts)
}

fn only_ours_is_added(cluster: &MeshCluster, before: &Value, now: &Value) {
    for (name, value) in before.as_object().unwrap() {
        let (is_ours, is_same) = (OURS.contains(&name.as_str()), *value == now[name]);
        assert_eq!(is_same, !is_ours, "{name} was {value}: {now}");
    }
    let all = ["10.244.1.0/24", FOREIGN, "fd00:10:244:1::/64"];
    assert_eq!(texts(&now["AdvertiseRoutes"]), all);
    let node = cluster.headscale.node_named("node-1").unwrap();
    assert_eq!(texts(&node["approved_routes"]), all);
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
    let scene = Scene::new(&[Site::Open]);
    let mut cluster = MeshCluster::new(&scene.grounds).unwrap();
    cluster.start().unwrap();
    leaves_nothing(&mut cluster.members[0]);
    let nodes = cluster.headscale.nodes().unwrap();
    assert!(nodes.is_empty(), "{nodes:?}");

    // Whoever left can come back.
    cluster.start().unwrap();
    cluster.headscale.kill().unwrap();
    let told = leaves_nothing(&mut cluster.members[0]);
    assert!(told.contains("headscale nodes delete"), "{told}");
}

fn leaves_nothing(member: &mut MeshNode) -> String {
    member.stop_daemon().unwrap();
    let told = uninstall(member);
    assert!(member.tailscaled_pid().is_err(), "it runs on: {told}");
    let left = member.sh("ls -d /var/lib/headcni /run/headcni 2>/dev/null || true");
    assert_eq!(left.unwrap(), "", "{told}");
    let links = member.sh("ip link show headcni01 2>/dev/null || true");
    assert_eq!(links.unwrap(), "", "{told}");
    told
}

/// Takes all of us off a node; what is said.
pub(crate) fn uninstall(member: &MeshNode) -> String {
    let began = Instant::now();
    let done = member.command(&["uninstall"]).unwrap();
    assert!(done.status.success(), "{done:?}\n{}", member.told());
    // On a calm machine it takes two or three.
    assert!(began.elapsed() < Duration::from_secs(20), "{done:?}");
    done.stdout
}
