//! A node that reaches Headscale only by an HTTP proxy.

use lab::Proxy;
use lab::scenario::{JOIN_TIMEOUT, MeshCluster, connectivity};

#[test]
fn a_node_behind_an_http_proxy_joins_and_its_pods_are_reached() {
    let mut cluster = MeshCluster::prepare(2);
    let proxy = Proxy::start(&cluster.topology.server).unwrap();
    let (server, port) = (cluster.topology.server_port.v4, proxy.port().unwrap());
    let key = cluster.headscale.api_key().unwrap();
    let url = cluster.headscale.url();

    let node = &mut cluster.nodes[0];
    // Direct connections to the server are rejected.
    node.sh(&format!(
        "nft 'table inet border {{
            chain output {{
                type filter hook output priority filter; policy accept;
                ip daddr {server} tcp dport != {port} reject with tcp reset
            }}
        }}'"
    ))
    .unwrap();
    // The API key by a variable.
    let config = node.config(&url);
    let config = config.replace("  apiKeyFile: /etc/headcni/api-key\n", "");
    node.configure(&config).unwrap();
    node.sh("rm /etc/headcni/api-key").unwrap();
    node.start_daemon_with_env(&[
        ("HTTPS_PROXY", &format!("http://{server}:{port}")),
        ("HEADCNID_HEADSCALE_API_KEY", &key),
    ])
    .unwrap();
    cluster.nodes[1].start_daemon().unwrap();
    for node in &cluster.nodes {
        node.await_ready(JOIN_TIMEOUT).unwrap();
    }
    cluster.await_routes().unwrap();
    let pods = cluster.pod_on_each("p");
    connectivity::assert_all_to_all(&pods);

    let targets = proxy.targets();
    let expected = format!("{server}:8443");
    assert!(targets.len() > 1, "the daemon and tailscaled: {targets:?}");
    assert!(targets.iter().all(|it| *it == expected), "{targets:?}");
}
