//! What lets a node in, and what it may do there: one key or the other is enough.

use std::time::Duration;

use lab::scenario::connectivity::{self, Pings};
use lab::scenario::{AttachedPod, CLUSTER_CIDRS, JOIN_TIMEOUT, MeshCluster, MeshNode, NODE_TAG};
use lab::open_policy;
use serde_json::{Value, json};
use tailnet::localapi::LocalApi;


const KEY: &str = "/etc/headcni/auth-key";
/// How long a node that was deleted may take to be back, where no pod says a word: others are called each
/// minute, and have some seconds to answer.
const BACK: Duration = Duration::from_mins(3);
/// A tag that is not the nodes'.
const OTHER_TAG: &str = "tag:other";

/// Gives a node a pre-auth key, and no other.
fn give(node: &MeshNode, url: &str, key: &str) {
    let config = node.config(url);
    let config = config.replace(
        "  apiKeyFile: /etc/headcni/api-key\n",
        &format!("  preAuthKeyFile: {KEY}\n"),
    );
    node.sh("rm -f /etc/headcni/api-key").unwrap();
    put(node, KEY, key);
    node.configure(&config).unwrap();
}

fn put(node: &MeshNode, path: &str, key: &str) {
    node.sh(&format!("umask 077; touch {path}")).unwrap();
    node.node.write(path, key).unwrap();
}

#[test]
fn a_key_for_one_login_is_enough_for_a_node_and_for_one_only() {
    let mut cluster = MeshCluster::prepare(2);
    let (url, key) = (
        cluster.headscale.url(),
        cluster.headscale.preauth_key(NODE_TAG).unwrap(),
    );
    for node in &cluster.nodes {
        give(node, &url, &key);
    }
    // The policy's autoApprovers approve.
    cluster.nodes[0].start_daemon().unwrap();
    cluster.nodes[0].await_ready(JOIN_TIMEOUT).unwrap();

    let second = &mut cluster.nodes[1];
    second.start_daemon().unwrap();
    second.await_reported_false("MeshJoined", &["used already: give a new one"]);
    a_node_that_lacks_something_is_told_how_to_get_it(&cluster, &cluster.nodes[1]);

    // A reboot needs no key again, and the file has one that is used up.
    let first = &mut cluster.nodes[0];
    first.kill_daemon().unwrap();
    let pid = first.tailscaled_pid().unwrap();
    first
        .sh(&format!("kill -9 {pid}; rm -rf /run/headcni"))
        .unwrap();
    first.start_daemon().unwrap();
    first.await_ready(JOIN_TIMEOUT).unwrap();
    first.await_condition("MeshJoined", true, JOIN_TIMEOUT).unwrap();
    cluster.await_routes().unwrap();
    let pods = cluster.pod_on_each("p");
    connectivity::assert_all_to_all(&pods);
}

/// It is let in by a key that has not the nodes' tag, and nobody approves its networks.
fn a_node_that_lacks_something_is_told_how_to_get_it(cluster: &MeshCluster, node: &MeshNode) {
    let mut policy = open_policy(NODE_TAG, &CLUSTER_CIDRS);
    policy["autoApprovers"] = json!({"routes": {}});
    policy["tagOwners"][OTHER_TAG] = json!([]);
    cluster.headscale.set_policy(&policy).unwrap();
    let key = cluster.headscale.preauth_key(OTHER_TAG).unwrap();
    put(node, KEY, &key);
    let await_told = |words: [&str; 2]| node.await_reported_false("NetworksServed", &words);
    await_told(["approve-routes", "autoApprovers"]);
    let (is_member, said) = node.condition("MeshJoined").unwrap();
    assert!(is_member, "{said}");

    let networks = node.pod_cidrs();
    let networks: Vec<&str> = networks.iter().map(String::as_str).collect();
    cluster
        .headscale.approve_routes(node.node.name(), &networks)
        .unwrap();
    let said = lab::eventually(JOIN_TIMEOUT, "its networks lead here", || {
        let said = await_told(["headscale nodes tag", NODE_TAG]);
        (!said.contains("don't lead here")).then_some(said)
    })
    .unwrap();
    assert_ne!(node.get("/ready").unwrap().status, 200);
    // As a person would copy it.
    let command = said.split('"').find_map(|it| it.strip_prefix("headscale "));
    let command = command.unwrap_or_else(|| panic!("no command: {said}"));
    cluster.headscale.cli(command.split(' ')).unwrap();
    node.await_ready(JOIN_TIMEOUT).unwrap();
}

#[test]
fn a_key_for_many_logins_brings_a_node_back_whatever_was_done_to_it() {
    let mut cluster = MeshCluster::prepare(2);
    let create = ["preauthkeys", "create", "--reusable", "-e", "1h", "--tags"];
    let made = create.into_iter().chain([NODE_TAG, "-o", "json"]);
    let made = cluster.headscale.cli(made).unwrap();
    let key = made["key"].as_str().unwrap().to_owned();
    let url = cluster.headscale.url();
    for node in &cluster.nodes {
        give(node, &url, &key);
    }
    cluster.start_daemons().unwrap();
    let pods = cluster.pod_on_each("p");
    connectivity::assert_all_to_all(&pods);
    a_member_that_connects_anew_loses_nothing(&cluster, &pods);

    let (headscale, node) = (&cluster.headscale, &cluster.nodes[0]);
    let logins = || node.log().matches("joined the mesh").count();
    let comes_back = |what: &str, act: &dyn Fn()| {
        let before = logins();
        act();
        lab::eventually(BACK, &format!("logged in after {what}"), || {
            (logins() > before).then_some(())
        })
        .unwrap_or_else(|error| panic!("{error:#}\n{}", node.diagnostics()));
        connectivity::await_all_to_all(&pods);
        node.await_ready(JOIN_TIMEOUT).unwrap();
        assert_eq!(
            logins(),
            before + 1,
            "{what}: each login ends the one before"
        );
    };
    comes_back("an expiry", &|| headscale.expire_node("node-1").unwrap());
    comes_back("a logout", &|| {
        let logout = format!("{} logout", node.tailscale_cli());
        node.sh(&logout).unwrap();
    });
    // Nobody tells it so, and its tailscaled goes on as if nothing had happened.
    comes_back("a deletion", &|| headscale.delete_node("node-1").unwrap());

    // One that is deleted and has no good key says so, and takes another one.
    let unknown = format!("hskey-auth-AAAAAAAAAAAA-{}", "A".repeat(64));
    put(node, KEY, &unknown);
    comes_back("a deletion with a bad key", &|| {
        headscale.delete_node("node-1").unwrap();
        // It is heard of sooner where pods talk.
        let is_told = || {
            let talks = connectivity::tcp(&pods[0].pod, &pods[1].pod, pods[1].ips[0]);
            let (is_member, why) = node.condition("MeshJoined").ok()?;
            let is_told = talks.is_err() && !is_member && why.contains("knows no such key");
            is_told.then_some(())
        };
        lab::eventually(BACK, "told of the key", is_told)
            .unwrap_or_else(|error| panic!("{error:#}\n{}", node.diagnostics()));
        put(node, KEY, &key);
    });
}

/// This is what is done when nobody is heard: whoever is a node all the same must not notice.
fn a_member_that_connects_anew_loses_nothing(cluster: &MeshCluster, pods: &[AttachedPod]) {
    let pings = [(0, 1), (1, 0)].map(|(from, to)| Pings::start(&pods[from], &pods[to]).unwrap());
    connectivity::await_direct(&cluster.nodes).unwrap();
    pings.iter().for_each(Pings::reset);
    let socket = cluster.nodes[0].file("/run/headcni/tailscaled.sock");
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build();
    let reconnect = async { LocalApi::new(socket).reconnect(JOIN_TIMEOUT).await };
    runtime.unwrap().block_on(reconnect).unwrap();
    for pings in &pings {
        pings.await_more_answers(100).unwrap();
        pings.assert_none_lost("connected anew");
    }
}

#[test]
fn an_api_key_approves_by_itself_and_is_replaced_while_all_runs() {
    let mut cluster = MeshCluster::prepare(1);
    let mut policy = open_policy(NODE_TAG, &CLUSTER_CIDRS);
    policy["autoApprovers"] = json!({"routes": {}});
    cluster.headscale.set_policy(&policy).unwrap();
    cluster.start_daemons().unwrap();

    // The lab's keys are good for a day.
    let node = &cluster.nodes[0];
    let words = ["api-key", "headscale apikeys create"];
    node.await_reported_false("CredentialsLast", &words);
    let left = seconds_left(node);
    assert!(left > 0.0 && left <= 86_400.0, "{left}");

    let lasting = ["apikeys", "create", "-e", "90d"];
    let Value::String(key) = cluster.headscale.cli(lasting).unwrap() else {
        panic!("a key is a text");
    };
    let node = &cluster.nodes[0];
    let old = std::fs::read_to_string(node.file("/etc/headcni/api-key")).unwrap();
    put(node, "/etc/headcni/api-key", &key);
    node.reload();
    node.await_reported_true("CredentialsLast");
    assert!(seconds_left(node) > 86_400.0 * 80.0);
    let prefix = old.trim_start_matches("hskey-api-").get(..12).unwrap();
    let expire = ["apikeys", "expire", "--prefix", prefix];
    cluster.headscale.cli(expire).unwrap();
    cluster.headscale.approve_routes("node-1", &[]).unwrap();
    lab::eventually(JOIN_TIMEOUT, "approved again, with the new key", || {
        let listed = cluster.headscale.node_named("node-1").ok()?;
        (listed["approved_routes"].as_array()?.len() == 2).then_some(())
    })
    .unwrap();
}

fn seconds_left(node: &MeshNode) -> f64 {
    let readings = node.scrape().unwrap();
    let key = [("credential", "api-key")];
    let seconds = readings.sum("headcni_credential_expiry_seconds", &key);
    seconds.expect("there is a key that expires")
}
