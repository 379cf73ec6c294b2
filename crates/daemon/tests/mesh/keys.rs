//! What lets a node in, and what it may do there: one key or the other is enough.

use std::time::Duration;

use lab::{Attached, Cluster, JOINED, Member, POD_NETWORKS, Signal, Site, TAG, open_policy};
use serde_json::{Value, json};
use tailscaled::localapi::LocalApi;

use crate::scene::Scene;
use crate::talk::{self, Pings};
use crate::told;

const KEY: &str = "/etc/headcni/auth-key";
/// How long a node that was deleted may take to be back, where no pod says a word: others are called each
/// minute, and have some seconds to answer.
const BACK: Duration = Duration::from_mins(3);
/// A tag that is not the nodes'.
const OTHER_TAG: &str = "tag:other";

/// Gives a node a pre-auth key, and no other.
fn give(member: &Member<'_>, url: &str, key: &str) {
    let config = member.config(url);
    let config = config.replace(
        "  apiKeyFile: /etc/headcni/api-key\n",
        &format!("  preAuthKeyFile: {KEY}\n"),
    );
    member.sh("rm -f /etc/headcni/api-key").unwrap();
    put(member, KEY, key);
    member.configure(&config).unwrap();
}

fn put(member: &Member<'_>, path: &str, key: &str) {
    member.sh(&format!("umask 077; touch {path}")).unwrap();
    member.node.write(path, key).unwrap();
}

#[test]
fn a_key_for_one_login_is_enough_for_a_node_and_for_one_only() {
    let scene = Scene::new(&[Site::Open, Site::Open]);
    let mut cluster = Cluster::new(&scene.grounds).unwrap();
    let (url, key) = (
        cluster.headscale.url(),
        cluster.headscale.preauth_key(TAG).unwrap(),
    );
    for member in &cluster.members {
        give(member, &url, &key);
    }
    // The policy's autoApprovers approve.
    cluster.members[0].launch().unwrap();
    cluster.members[0].await_ready(JOINED).unwrap();

    let second = &mut cluster.members[1];
    second.launch().unwrap();
    told::await_failing(second, "MeshJoined", &["already used: configure a new one"]);
    a_node_that_lacks_something_is_told_how_to_get_it(&cluster, &cluster.members[1]);

    // A reboot needs no key again, and the file has one that is used up.
    let first = &mut cluster.members[0];
    first.kill_daemon().unwrap();
    let pid = first.tailscaled_pid().unwrap();
    first
        .sh(&format!("kill -9 {pid}; rm -rf /run/headcni"))
        .unwrap();
    first.launch().unwrap();
    first.await_ready(JOINED).unwrap();
    first.await_condition("MeshJoined", true, JOINED).unwrap();
    cluster.await_mesh().unwrap();
    let members = cluster.members.iter();
    let pods: Vec<_> = members.map(|member| member.pod("p").unwrap()).collect();
    talk::check_all_to_all(&pods);
}

/// It is let in by a key that has not the nodes' tag, and nobody approves its networks.
fn a_node_that_lacks_something_is_told_how_to_get_it(cluster: &Cluster<'_>, node: &Member<'_>) {
    let mut policy = open_policy(TAG, &POD_NETWORKS);
    policy["autoApprovers"] = json!({"routes": {}});
    policy["tagOwners"][OTHER_TAG] = json!([]);
    cluster.headscale.set_policy(&policy).unwrap();
    let key = cluster.headscale.preauth_key(OTHER_TAG).unwrap();
    put(node, KEY, &key);
    let await_told = |words: [&str; 2]| told::await_failing(node, "NetworksServed", &words);
    await_told(["approve-routes", "autoApprovers"]);
    let (is_member, said) = node.condition("MeshJoined").unwrap();
    assert!(is_member, "{said}");

    let networks = node.networks();
    let networks: Vec<&str> = networks.iter().map(String::as_str).collect();
    cluster
        .headscale
        .approve(node.node.name(), &networks)
        .unwrap();
    let said = lab::eventually(JOINED, "its networks lead here", || {
        let said = await_told(["headscale nodes tag", TAG]);
        (!said.contains("don't lead here")).then_some(said)
    })
    .unwrap();
    assert_ne!(node.get("/ready").unwrap().status, 200);
    // As a person would copy it.
    let command = said.split('"').find_map(|it| it.strip_prefix("headscale "));
    let command = command.unwrap_or_else(|| panic!("no command: {said}"));
    cluster.headscale.cli(command.split(' ')).unwrap();
    node.await_ready(JOINED).unwrap();
}

#[test]
fn a_key_for_many_logins_brings_a_node_back_whatever_was_done_to_it() {
    let scene = Scene::new(&[Site::Open, Site::Open]);
    let mut cluster = Cluster::new(&scene.grounds).unwrap();
    let create = ["preauthkeys", "create", "--reusable", "-e", "1h", "--tags"];
    let made = create.into_iter().chain([TAG, "-o", "json"]);
    let made = cluster.headscale.cli(made).unwrap();
    let key = made["key"].as_str().unwrap().to_owned();
    let url = cluster.headscale.url();
    for member in &cluster.members {
        give(member, &url, &key);
    }
    cluster.start().unwrap();
    let members = cluster.members.iter();
    let pods: Vec<_> = members.map(|member| member.pod("p").unwrap()).collect();
    talk::check_all_to_all(&pods);
    a_member_that_connects_anew_loses_nothing(&cluster, &pods);

    let (headscale, member) = (&cluster.headscale, &cluster.members[0]);
    let logins = || member.log().matches("joined the mesh").count();
    let comes_back = |what: &str, act: &dyn Fn()| {
        let before = logins();
        act();
        lab::eventually(BACK, &format!("logged in after {what}"), || {
            (logins() > before).then_some(())
        })
        .unwrap_or_else(|error| panic!("{error:#}\n{}", member.told()));
        talk::await_all_to_all(&pods);
        member.await_ready(JOINED).unwrap();
        assert_eq!(
            logins(),
            before + 1,
            "{what}: each login ends the one before"
        );
    };
    comes_back("an expiry", &|| headscale.expire("node-1").unwrap());
    comes_back("a logout", &|| {
        let logout = format!("{} logout", member.tailscale_line());
        member.sh(&logout).unwrap();
    });
    // Nobody tells it so, and its tailscaled goes on as if nothing had happened.
    comes_back("a deletion", &|| headscale.delete("node-1").unwrap());

    // One that is deleted and has no good key says so, and takes another one.
    let unknown = format!("hskey-auth-AAAAAAAAAAAA-{}", "A".repeat(64));
    put(member, KEY, &unknown);
    comes_back("a deletion with a bad key", &|| {
        headscale.delete("node-1").unwrap();
        // It is heard of sooner where pods talk.
        let is_told = || {
            let talks = talk::tcp(&pods[0].pod, &pods[1].pod, pods[1].ips[0]);
            let (is_member, why) = member.condition("MeshJoined").ok()?;
            let is_told = talks.is_err() && !is_member && why.contains("knows no such key");
            is_told.then_some(())
        };
        lab::eventually(BACK, "told of the key", is_told)
            .unwrap_or_else(|error| panic!("{error:#}\n{}", member.told()));
        put(member, KEY, &key);
    });
}

/// This is what is done when nobody is heard: whoever is a member all the same must not notice.
fn a_member_that_connects_anew_loses_nothing(cluster: &Cluster<'_>, pods: &[Attached<'_>]) {
    let pings = [(0, 1), (1, 0)].map(|(from, to)| Pings::start(&pods[from], &pods[to]));
    talk::await_direct(&cluster.members);
    pings.iter().for_each(Pings::reset);
    let socket = cluster.members[0].file("/run/headcni/tailscaled.sock");
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build();
    let reconnect = async { LocalApi::new(socket).reconnect(JOINED).await };
    runtime.unwrap().block_on(reconnect).unwrap();
    for pings in &pings {
        pings.await_more_answers(100);
        pings.check_none_lost("connected anew");
    }
}

#[test]
fn an_api_key_approves_by_itself_and_is_replaced_while_all_runs() {
    let scene = Scene::new(&[Site::Open]);
    let mut cluster = Cluster::new(&scene.grounds).unwrap();
    let mut policy = open_policy(TAG, &POD_NETWORKS);
    policy["autoApprovers"] = json!({"routes": {}});
    cluster.headscale.set_policy(&policy).unwrap();
    cluster.start().unwrap();

    // The lab's keys are good for a day.
    let member = &cluster.members[0];
    let words = ["api-key", "headscale apikeys create"];
    told::await_failing(member, "CredentialsLast", &words);
    let left = seconds_left(member);
    assert!(left > 0.0 && left <= 86_400.0, "{left}");

    let lasting = ["apikeys", "create", "-e", "90d"];
    let Value::String(key) = cluster.headscale.cli(lasting).unwrap() else {
        panic!("a key is a text");
    };
    let member = &cluster.members[0];
    let old = std::fs::read_to_string(member.file("/etc/headcni/api-key")).unwrap();
    put(member, "/etc/headcni/api-key", &key);
    member.signal(Signal::HUP);
    told::await_holding(member, "CredentialsLast");
    assert!(seconds_left(member) > 86_400.0 * 80.0);
    let prefix = old.trim_start_matches("hskey-api-").get(..12).unwrap();
    let expire = ["apikeys", "expire", "--prefix", prefix];
    cluster.headscale.cli(expire).unwrap();
    cluster.headscale.approve("node-1", &[]).unwrap();
    lab::eventually(JOINED, "approved again, with the new key", || {
        let node = cluster.headscale.node_named("node-1").ok()?;
        (node["approved_routes"].as_array()?.len() == 2).then_some(())
    })
    .unwrap();
}

fn seconds_left(member: &Member<'_>) -> f64 {
    let readings = member.readings().unwrap();
    let key = [("credential", "api-key")];
    let seconds = readings.sum("headcni_credential_expiry_seconds", &key);
    seconds.expect("there is a key that expires")
}
