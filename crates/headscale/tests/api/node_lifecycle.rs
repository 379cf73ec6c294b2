//! A node that joins with a real tailscaled, in every API generation.

use std::fs::{self, File};
use std::io::Write as _;

use headscale::{Client, KeyUses, NewPreAuthKey, Node as HeadscaleNode, NodeLifetime};
use ipnet::IpNet;
use jiff::{SignedDuration, Timestamp};
use lab::tools::{GoModule, HEADSCALES, TAILSCALE};
use lab::{Netns, Node, Running};
use rstest::rstest;
use serde_json::Value;
use tempfile::TempDir;

use crate::harness::{Access, eventually, inside, nodes, start};

const TAG: &str = "tag:k8s-node";
const ROUTES: [&str; 2] = ["10.244.1.0/24", "fd00:10:244:1::/64"];
const OTHER_ROUTE: &str = "192.168.77.0/24";

/// A real tailscaled in userspace mode.
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
            // A pipe would keep the log in memory.
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

    /// Joins with a key from a file, so that `ps` does not show it.
    fn join(&self, url: &str, key: &str) {
        let file = self.files.path().join("key");
        File::create(&file)
            .unwrap()
            .write_all(key.as_bytes())
            .unwrap();
        let routes = [&ROUTES[..], &[OTHER_ROUTE]].concat().join(",");
        self.cli(&[
            "up",
            "--timeout=60s",
            "--accept-dns=false",
            "--hostname=peer",
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
fn a_node_joins_serves_routes_and_is_deleted(#[case] version: GoModule) {
    let (node, peer) = nodes();
    let (_headscale, access) = start(&node, &version);
    let (key, user) = inside(&node, async || {
        let client = access.client();
        let user = client.create_user("lab").await.unwrap().id;
        let new = NewPreAuthKey {
            user: Some(user),
            tags: vec![TAG.to_owned()],
            uses: KeyUses::Once,
            nodes: NodeLifetime::Permanent,
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
        let peer_node = await_listed(&client, &node_key).await;
        assert_eq!(peer_node.pre_auth_key, Some(key.id));
        check_routes(&client, &peer_node).await;
        check_tags_and_name(&client, &peer_node).await;
        check_expiry_and_deletion(&client, &peer_node).await;
    });
}

async fn listed(client: &Client, id: u64) -> HeadscaleNode {
    let nodes = client.nodes().await.unwrap().into_iter();
    nodes
        .into_iter()
        .find(|node| node.id == id)
        .expect("the node is listed")
}

async fn await_listed(client: &Client, node_key: &str) -> HeadscaleNode {
    let nodes = client.nodes().await.unwrap();
    assert_eq!(nodes.len(), 1);
    let peer_node = &nodes[0];
    assert_eq!(peer_node.node_key, node_key);
    assert!(peer_node.machine_key.starts_with("mkey:"), "{peer_node:?}");
    assert_eq!(peer_node.tags, [TAG]);
    assert_eq!(peer_node.addresses.len(), 2);
    assert_eq!(peer_node.name, "peer");
    assert!(peer_node.created_at.is_some());
    let id = peer_node.id;
    let is_there = async || {
        let peer_node = listed(client, id).await;
        (peer_node.is_online && peer_node.advertised_routes.len() == 3).then_some(peer_node)
    };
    eventually("the node is online and advertises its routes", is_there).await
}

async fn check_routes(client: &Client, peer_node: &HeadscaleNode) {
    let (id, ours) = (peer_node.id, nets(&ROUTES));
    let has_all = |networks: &[IpNet]| ours.iter().all(|net| networks.contains(net));
    assert!(has_all(&peer_node.advertised_routes));
    assert_eq!(
        (&peer_node.approved_routes, &peer_node.primary_routes),
        (&vec![], &vec![])
    );

    let other_route = nets(&[OTHER_ROUTE]);
    client.approve_routes(id, &other_route).await.unwrap();
    let mut all = [ours.clone(), other_route.clone()].concat();
    all.sort();
    let updated = client.approve_routes(id, &all).await.unwrap();
    assert_eq!(updated.approved_routes, all);
    let serves = async || {
        let peer_node = listed(client, id).await;
        (has_all(&peer_node.primary_routes) && peer_node.primary_routes.contains(&other_route[0]))
            .then_some(())
    };
    eventually("all routes are primary", serves).await;

    client.approve_routes(id, &other_route).await.unwrap();
    let is_undone = async || {
        let peer_node = listed(client, id).await;
        (peer_node.primary_routes == other_route && peer_node.approved_routes == other_route)
            .then_some(())
    };
    eventually("only the other route is primary", is_undone).await;
    client.approve_routes(id, &[]).await.unwrap();
    assert_eq!(client.node(id).await.unwrap().approved_routes, []);
}

async fn check_tags_and_name(client: &Client, peer_node: &HeadscaleNode) {
    // Some versions accept only tags that have an owner.
    let policy = serde_json::json!({
        "tagOwners": { TAG: ["lab@"], "tag:other": ["lab@"] },
        "acls": [{"action": "accept", "src": ["*"], "dst": ["*:*"]}],
    });
    client.set_policy(&policy.to_string()).await.unwrap();
    let tags = [TAG.to_owned(), "tag:other".to_owned()];
    client.set_tags(peer_node.id, &tags).await.unwrap();
    assert_eq!(listed(client, peer_node.id).await.tags, tags);
    client.rename_node(peer_node.id, "renamed").await.unwrap();
    assert_eq!(
        client.node(peer_node.id).await.unwrap().given_name,
        "renamed"
    );
}

async fn check_expiry_and_deletion(client: &Client, peer_node: &HeadscaleNode) {
    client.expire_node(peer_node.id).await.unwrap();
    let expiry = listed(client, peer_node.id).await.expiry.unwrap();
    assert!(expiry <= Timestamp::now() + SignedDuration::from_secs(5));
    client.delete_node(peer_node.id).await.unwrap();
    assert_eq!(client.nodes().await.unwrap(), []);
    for error in [
        client.node(peer_node.id).await.unwrap_err(),
        client.delete_node(peer_node.id).await.unwrap_err(),
        client.approve_routes(peer_node.id, &[]).await.unwrap_err(),
    ] {
        assert!(error.is_not_found(), "{error:?}");
    }
}
