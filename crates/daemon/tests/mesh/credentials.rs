//! How a node logs in and gets its routes approved: by a pre-auth key or by an API key.

use std::time::Duration;

use lab::open_policy;
use lab::scenario::connectivity::{self, Pings};
use lab::scenario::{AttachedPod, CLUSTER_CIDRS, JOIN_TIMEOUT, MeshCluster, MeshNode, NODE_TAG};
use serde_json::{Value, json};
use tailscaled::localapi::LocalApi;

const KEY: &str = "/etc/headcni/auth-key";
/// How long a deleted node may take to rejoin without traffic of pods: the daemon probes its peers every
/// minute, and gives them some seconds to answer.
const REJOIN: Duration = Duration::from_mins(3);
const OTHER_TAG: &str = "tag:other";

/// Gives a node a pre-auth key and no API key.
fn use_preauth_key(node: &MeshNode, url: &str, key: &str) {
    let config = node.config(url);
    let config = config.replace(
        "  apiKeyFile: /etc/headcni/api-key\n",
        &format!("  preAuthKeyFile: {KEY}\n"),
    );
    node.sh("rm -f /etc/headcni/api-key").unwrap();
    write_key(node, KEY, key);
    node.configure(&config).unwrap();
}

fn write_key(node: &MeshNode, path: &str, key: &str) {
    node.sh(&format!("umask 077; touch {path}")).unwrap();
    node.node.write(path, key).unwrap();
}

#[test]
fn a_single_use_preauth_key_joins_exactly_one_node() {
    let mut cluster = MeshCluster::prepare(2);
    let (url, key) = (
        cluster.headscale.url(),
        cluster.headscale.preauth_key(NODE_TAG).unwrap(),
    );
    for node in &cluster.nodes {
        use_preauth_key(node, &url, &key);
    }
    // The policy's autoApprovers approve the routes.
    cluster.nodes[0].start_daemon().unwrap();
    cluster.nodes[0].await_ready(JOIN_TIMEOUT).unwrap();

    let second = &mut cluster.nodes[1];
    second.start_daemon().unwrap();
    second.await_reported_false("MeshJoined", &["already used: configure a new one"]);
    missing_approval_and_tag_are_reported_with_a_remedy(&cluster, &cluster.nodes[1]);

    // After a reboot the node needs no key, and the one in the file is used up.
    let first = &mut cluster.nodes[0];
    first.kill_daemon().unwrap();
    let pid = first.tailscaled_pid().unwrap();
    first
        .sh(&format!("kill -9 {pid}; rm -rf /run/headcni"))
        .unwrap();
    first.start_daemon().unwrap();
    first.await_ready(JOIN_TIMEOUT).unwrap();
    first
        .await_condition("MeshJoined", true, JOIN_TIMEOUT)
        .unwrap();
    cluster.await_routes().unwrap();
    let pods = cluster.pod_on_each("p");
    connectivity::assert_all_to_all(&pods);
}

/// The node joins with a key of another tag, and its routes are not approved.
fn missing_approval_and_tag_are_reported_with_a_remedy(cluster: &MeshCluster, node: &MeshNode) {
    let mut policy = open_policy(NODE_TAG, &CLUSTER_CIDRS);
    policy["autoApprovers"] = json!({"routes": {}});
    policy["tagOwners"][OTHER_TAG] = json!([]);
    cluster.headscale.set_policy(&policy).unwrap();
    let key = cluster.headscale.preauth_key(OTHER_TAG).unwrap();
    write_key(node, KEY, &key);
    let await_false = |texts: [&str; 2]| node.await_reported_false("RoutesServed", &texts);
    await_false(["approve-routes", "autoApprovers"]);
    let (is_joined, message) = node.condition("MeshJoined").unwrap();
    assert!(is_joined, "{message}");

    let networks = node.pod_cidrs();
    let networks: Vec<&str> = networks.iter().map(String::as_str).collect();
    cluster
        .headscale
        .approve_routes(node.node.name(), &networks)
        .unwrap();
    let message = lab::eventually(JOIN_TIMEOUT, "its routes are served", || {
        let message = await_false(["headscale nodes tag", NODE_TAG]);
        (!message.starts_with("route")).then_some(message)
    })
    .unwrap();
    assert_ne!(node.get("/ready").unwrap().status, 200);
    // The command that the message proposes.
    let command = message
        .split('"')
        .find_map(|it| it.strip_prefix("headscale "));
    let command = command.unwrap_or_else(|| panic!("no command: {message}"));
    cluster.headscale.cli(command.split(' ')).unwrap();
    node.await_ready(JOIN_TIMEOUT).unwrap();
}

#[test]
fn a_reusable_preauth_key_rejoins_a_node_after_expiry_logout_and_deletion() {
    let mut cluster = MeshCluster::prepare(2);
    let create = ["preauthkeys", "create", "--reusable", "-e", "1h", "--tags"];
    let made = create.into_iter().chain([NODE_TAG, "-o", "json"]);
    let made = cluster.headscale.cli(made).unwrap();
    let key = made["key"].as_str().unwrap().to_owned();
    let url = cluster.headscale.url();
    for node in &cluster.nodes {
        use_preauth_key(node, &url, &key);
    }
    cluster.start_daemons().unwrap();
    let pods = cluster.pod_on_each("p");
    connectivity::assert_all_to_all(&pods);
    a_reconnect_of_a_connected_node_loses_no_packet(&cluster, &pods);

    let (headscale, node) = (&cluster.headscale, &cluster.nodes[0]);
    let logins = || node.log().matches("joined the mesh").count();
    let assert_rejoins = |what: &str, act: &dyn Fn()| {
        let before = logins();
        act();
        lab::eventually(REJOIN, &format!("logged in after {what}"), || {
            (logins() > before).then_some(())
        })
        .unwrap_or_else(|error| panic!("{error:#}\n{}", node.diagnostics()));
        connectivity::await_all_to_all(&pods);
        node.await_ready(JOIN_TIMEOUT).unwrap();
        assert_eq!(
            logins(),
            before + 1,
            "{what}: each login invalidates the one before"
        );
    };
    assert_rejoins("an expiry", &|| headscale.expire_node("node-1").unwrap());
    assert_rejoins("a logout", &|| {
        let logout = format!("{} logout", node.tailscale_cli());
        node.sh(&logout).unwrap();
    });
    // Headscale does not notify a deleted node, and its tailscaled keeps running.
    assert_rejoins("a deletion", &|| headscale.delete_node("node-1").unwrap());

    // A deleted node without a valid key reports it, and uses a new one.
    let unknown = format!("hskey-auth-AAAAAAAAAAAA-{}", "A".repeat(64));
    write_key(node, KEY, &unknown);
    assert_rejoins("a deletion with a bad key", &|| {
        headscale.delete_node("node-1").unwrap();
        // Traffic of pods reveals the deletion sooner.
        let is_reported = || {
            let reached = connectivity::tcp(&pods[0].pod, &pods[1].pod, pods[1].ips[0]);
            let (is_joined, message) = node.condition("MeshJoined").ok()?;
            let is_reported = reached.is_err()
                && !is_joined
                && message.contains("does not know the pre-auth key");
            is_reported.then_some(())
        };
        lab::eventually(REJOIN, "the key is reported", is_reported)
            .unwrap_or_else(|error| panic!("{error:#}\n{}", node.diagnostics()));
        write_key(node, KEY, &key);
    });
}

/// The daemon reconnects when no peer answers. A node that is connected must not lose packets by it.
fn a_reconnect_of_a_connected_node_loses_no_packet(cluster: &MeshCluster, pods: &[AttachedPod]) {
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
        pings.assert_none_lost("reconnected");
    }
}

#[test]
fn an_api_key_approves_routes_and_can_be_replaced_at_runtime() {
    let mut cluster = MeshCluster::prepare(1);
    let mut policy = open_policy(NODE_TAG, &CLUSTER_CIDRS);
    policy["autoApprovers"] = json!({"routes": {}});
    cluster.headscale.set_policy(&policy).unwrap();
    cluster.start_daemons().unwrap();

    // The lab's keys are valid for a day.
    let node = &cluster.nodes[0];
    let texts = ["api-key", "headscale apikeys create"];
    node.await_reported_false("CredentialsValid", &texts);
    let left = seconds_left(node);
    assert!(left > 0.0 && left <= 86_400.0, "{left}");

    let lasting = ["apikeys", "create", "-e", "90d"];
    let Value::String(key) = cluster.headscale.cli(lasting).unwrap() else {
        panic!("a key is a text");
    };
    let node = &cluster.nodes[0];
    let old = std::fs::read_to_string(node.file("/etc/headcni/api-key")).unwrap();
    write_key(node, "/etc/headcni/api-key", &key);
    node.reload();
    node.await_reported_true("CredentialsValid");
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
    let metrics = node.scrape().unwrap();
    let key = [("credential", "api-key")];
    let seconds = metrics.sum("headcni_credential_expiry_seconds", &key);
    seconds.expect("there is a key that expires")
}
