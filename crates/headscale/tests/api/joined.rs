//! What every generation of the server says of a node that really joined.

use std::fs::{self, File};
use std::io::Write as _;

use headscale::{Client, Lifetime, NewKey, Node as Member, Uses};
use ipnet::IpNet;
use jiff::{SignedDuration, Timestamp};
use lab::tools::{GoModule, HEADSCALES, TAILSCALE};
use lab::{Netns, Node, Running};
use rstest::rstest;
use serde_json::Value;
use tempfile::TempDir;

use crate::stage::{Access, eventually, inside, nodes, start};

const TAG: &str = "tag:k8s-node";
const ROUTES: [&str; 2] = ["10.244.1.0/24", "fd00:10:244:1::/64"];
const USERS_OWN: &str = "192.168.77.0/24";

/// A real tailscaled without a device of its own.
struct Tailscaled<'n> {
    node: &'n Node,
    files: TempDir,
    _running: Running,
}

impl<'n> Tailscaled<'n> {
    fn start(node: &'n Node, access: &Access) -> Self {
        let files = TempDir::new().unwrap();
        let dir = files.path().display();
        let mut command = node.command("sh");
        command
            .env("TS_NO_LOGS_NO_SUPPORT", "true")
            .env("TS_LOGS_DIR", files.path())
            .env("SSL_CERT_FILE", access.ca_file.as_ref().unwrap())
            // A pipe would keep all that it says in memory.
            .args(["-c", "exec \"$@\" >\"$0\" 2>&1"])
            .arg(files.path().join("log"))
            .arg(TAILSCALE.program("tailscaled"))
            .args([
                "--no-logs-no-support",
                "--tun=userspace-networking",
                "--port=0",
            ])
            .arg(format!("--statedir={dir}"))
            .arg(format!("--socket={dir}/socket"));
        let running = Running::spawn(&mut command, b"").unwrap();
        Self {
            node,
            files,
            _running: running,
        }
    }

    /// Joins by a key, which no list of processes shows.
    fn join(&self, url: &str, key: &str) {
        let file = self.files.path().join("key");
        File::create(&file)
            .unwrap()
            .write_all(key.as_bytes())
            .unwrap();
        let routes = [&ROUTES[..], &[USERS_OWN]].concat().join(",");
        self.cli(&[
            "up",
            "--timeout=60s",
            "--accept-dns=false",
            "--hostname=member",
            &format!("--login-server={url}"),
            &format!("--auth-key=file:{}", file.display()),
            &format!("--advertise-routes={routes}"),
        ]);
    }

    fn node_key(&self) -> String {
        let status: Value = serde_json::from_str(&self.cli(&["status", "--json"])).unwrap();
        status["Self"]["PublicKey"].as_str().unwrap().to_owned()
    }

    fn cli(&self, args: &[&str]) -> String {
        let mut command = self.node.command(TAILSCALE.program("tailscale"));
        let socket = self.files.path().join("socket");
        command
            .arg(format!("--socket={}", socket.display()))
            .args(args);
        let running = Running::spawn(&mut command, b"").unwrap();
        let output = running.wait(std::time::Duration::from_secs(90)).unwrap();
        let log = || fs::read_to_string(self.files.path().join("log")).unwrap_or_default();
        assert!(output.status.success(), "{}\n{}", output.stderr, log());
        output.stdout
    }
}

fn nets(texts: &[&str]) -> Vec<IpNet> {
    texts.iter().map(|text| text.parse().unwrap()).collect()
}

#[rstest]
#[case::v0_29(HEADSCALES[0])]
#[case::v0_28(HEADSCALES[1])]
#[case::v0_27(HEADSCALES[2])]
#[case::v0_26(HEADSCALES[3])]
fn a_node_that_joined_is_known_and_served(#[case] version: GoModule) {
    let (node, peer) = nodes();
    let (_headscale, access) = start(&node, &version);
    let (key, user) = inside(&node, async || {
        let client = access.client();
        let user = client.create_user("lab").await.unwrap().id;
        let new = NewKey {
            user: Some(user),
            tags: vec![TAG.to_owned()],
            uses: Uses::Once,
            nodes: Lifetime::Lasting,
            expiration: Timestamp::now() + SignedDuration::from_hours(1),
        };
        (client.create_pre_auth_key(&new).await.unwrap(), user)
    });
    let tailscaled = Tailscaled::start(&peer, &access);
    tailscaled.join(&access.url, key.key.expose());
    let node_key = tailscaled.node_key();

    inside(&node, async || {
        let client = access.client();
        let listed = client.pre_auth_keys(user).await.unwrap();
        assert!(listed[0].is_used);
        let member = is_in_the_list(&client, &node_key).await;
        assert_eq!(member.pre_auth_key, Some(key.id));
        serves_what_is_approved(&client, &member).await;
        changes_as_told(&client, &member).await;
        expires_and_goes(&client, &member).await;
    });
}

async fn listed(client: &Client, id: u64) -> Member {
    let nodes = client.nodes().await.unwrap().into_iter();
    nodes
        .into_iter()
        .find(|node| node.id == id)
        .expect("it is in the list")
}

async fn is_in_the_list(client: &Client, node_key: &str) -> Member {
    let nodes = client.nodes().await.unwrap();
    assert_eq!(nodes.len(), 1);
    let member = &nodes[0];
    assert_eq!(member.node_key, node_key);
    assert!(member.machine_key.starts_with("mkey:"), "{member:?}");
    assert_eq!(member.tags, [TAG]);
    assert_eq!(member.addresses.len(), 2);
    assert_eq!(member.name, "member");
    assert!(member.created_at.is_some());
    let id = member.id;
    let is_there = async || {
        let member = listed(client, id).await;
        (member.is_online && member.available.len() == 3).then_some(member)
    };
    eventually("it is online with its routes", is_there).await
}

async fn serves_what_is_approved(client: &Client, member: &Member) {
    let (id, ours) = (member.id, nets(&ROUTES));
    let has_all = |networks: &[IpNet]| ours.iter().all(|net| networks.contains(net));
    assert!(has_all(&member.available));
    assert_eq!((&member.approved, &member.serving), (&vec![], &vec![]));

    let users_own = nets(&[USERS_OWN]);
    client.approve_routes(id, &users_own).await.unwrap();
    let mut all = [ours.clone(), users_own.clone()].concat();
    all.sort();
    let answer = client.approve_routes(id, &all).await.unwrap();
    assert_eq!(answer.approved, all);
    let serves = async || {
        let member = listed(client, id).await;
        (has_all(&member.serving) && member.serving.contains(&users_own[0])).then_some(())
    };
    eventually("it serves all", serves).await;

    client.approve_routes(id, &users_own).await.unwrap();
    let is_undone = async || {
        let member = listed(client, id).await;
        (member.serving == users_own && member.approved == users_own).then_some(())
    };
    eventually("it serves only the user's", is_undone).await;
    client.approve_routes(id, &[]).await.unwrap();
    assert_eq!(client.node(id).await.unwrap().approved, []);
}

async fn changes_as_told(client: &Client, member: &Member) {
    // Some versions take only tags that somebody owns.
    let policy = serde_json::json!({
        "tagOwners": { TAG: ["lab@"], "tag:other": ["lab@"] },
        "acls": [{"action": "accept", "src": ["*"], "dst": ["*:*"]}],
    });
    client.set_policy(&policy.to_string()).await.unwrap();
    let tags = [TAG.to_owned(), "tag:other".to_owned()];
    client.set_tags(member.id, &tags).await.unwrap();
    assert_eq!(listed(client, member.id).await.tags, tags);
    client.rename_node(member.id, "renamed").await.unwrap();
    assert_eq!(client.node(member.id).await.unwrap().given_name, "renamed");
}

async fn expires_and_goes(client: &Client, member: &Member) {
    client.expire_node(member.id).await.unwrap();
    let expiry = listed(client, member.id).await.expiry.unwrap();
    assert!(expiry <= Timestamp::now() + SignedDuration::from_secs(5));
    client.delete_node(member.id).await.unwrap();
    assert_eq!(client.nodes().await.unwrap(), []);
    for error in [
        client.node(member.id).await.unwrap_err(),
        client.delete_node(member.id).await.unwrap_err(),
        client.approve_routes(member.id, &[]).await.unwrap_err(),
    ] {
        assert!(error.is_not_found(), "{error:?}");
    }
}
