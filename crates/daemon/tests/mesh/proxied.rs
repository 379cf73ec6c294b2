//! A node that reaches the server by a proxy only.

use lab::{MeshCluster, JOIN_TIMEOUT, Proxy, Site};

use crate::scene::Scene;
use crate::talk;

#[test]
fn a_node_behind_a_proxy_is_a_member_like_any_other() {
    let scene = Scene::new(&[Site::Open, Site::Open]);
    let grounds = &scene.grounds;
    let mut cluster = MeshCluster::new(grounds).unwrap();
    let proxy = Proxy::start(&grounds.server).unwrap();
    let (server, port) = (grounds.server_port.v4, proxy.port().unwrap());
    let key = cluster.headscale.api_key().unwrap();
    let url = cluster.headscale.url();

    let node = &mut cluster.members[0];
    // What is said to the server otherwise is refused.
    node.sh(&format!(
        "nft 'table inet border {{
            chain output {{
                type filter hook output priority filter; policy accept;
                ip daddr {server} tcp dport != {port} reject with tcp reset
            }}
        }}'"
    ))
    .unwrap();
    // Keys may come this way as well.
    let config = node.config(&url);
    let config = config.replace("  apiKeyFile: /etc/headcni/api-key\n", "");
    node.configure(&config).unwrap();
    node.sh("rm /etc/headcni/api-key").unwrap();
    node.launch_with(&[
        ("HTTPS_PROXY", &format!("http://{server}:{port}")),
        ("HEADCNID_HEADSCALE_API_KEY", &key),
    ])
    .unwrap();
    cluster.members[1].launch().unwrap();
    for member in &cluster.members {
        member.await_ready(JOIN_TIMEOUT).unwrap();
    }
    cluster.await_mesh().unwrap();
    let members = cluster.members.iter();
    let pods: Vec<_> = members.map(|member| member.pod("p").unwrap()).collect();
    talk::check_all_to_all(&pods);

    let targets = proxy.targets();
    let of_server = format!("{server}:8443");
    assert!(targets.len() > 1, "the daemon and tailscaled: {targets:?}");
    assert!(targets.iter().all(|it| *it == of_server), "{targets:?}");
}
