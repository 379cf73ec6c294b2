//! Two nodes of a tailnet.

use std::net::IpAddr;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::{fs, io};

use tailscaled::localapi::{BackendState, PingType};

use crate::harness::{Lab, join_node, open_policy, until};

const ROUTES: [&str; 2] = ["10.244.1.0/24", "10.244.2.0/24"];

#[tokio::test]
async fn two_nodes_join_and_reach_each_other() {
    let lab = Lab::new();
    let server = lab.headscale();
    server.set_policy(&open_policy()).unwrap();
    let (first, _supervisor) = join_node(&lab.nodes[0], &server, ROUTES[0]).await;
    let (second, _supervisor) = join_node(&lab.nodes[1], &server, ROUTES[1]).await;
    let (first, second) = (first, second.api());
    let api = first.api();

    let peer = until(
        "each node has a primary route and knows the other",
        async || {
            let status = api.status().await.unwrap();
            assert_eq!(status.state, BackendState::Running);
            let is_serving = status.self_node.primary_routes == [ROUTES[0].parse().unwrap()];
            let peer = status
                .peers
                .into_iter()
                .find(|peer| peer.host_name == "n2")?;
            let is_served = peer.primary_routes == [ROUTES[1].parse().unwrap()];
            (is_serving && is_served && peer.is_online).then_some(peer)
        },
    )
    .await;
    let status = api.status().await.unwrap();
    assert_eq!(status.self_node.host_name, "n1");
    assert_eq!(status.magic_dns_suffix.as_deref(), Some("tail.test"));
    assert_eq!(status.invalid_peers, 0);
    assert_eq!(status.addresses, status.self_node.addresses);
    assert_eq!(peer.tags, ["tag:k8s-node"]);
    assert!(
        peer.allowed_ips.contains(&ROUTES[1].parse().unwrap()),
        "{peer:?}"
    );
    assert!(peer.public_key.starts_with("nodekey:"), "{peer:?}");

    let address = peer.addresses[0];
    let pong = until("the path is direct", async || {
        let pong = api.ping(address, PingType::Disco).await.ok()?;
        pong.endpoint.is_some().then_some(pong)
    })
    .await;
    assert_eq!(pong.node_address, Some(address));
    assert_eq!(pong.derp_region, None);
    for kind in [PingType::Tsmp, PingType::Icmp] {
        let pong = api.ping(address, kind).await.unwrap();
        assert_eq!(pong.node_address, Some(address), "{kind:?}");
    }
    let unknown: IpAddr = "100.100.5.5".parse().unwrap();
    let error = api.ping(unknown, PingType::Disco).await.unwrap_err();
    assert!(error.to_string().contains("100.100.5.5"), "{error}");
    until("traffic is counted", async || {
        let status = api.status().await.unwrap();
        let peer = status
            .peers
            .iter()
            .find(|peer| peer.addresses.contains(&address))?;
        (peer.cur_addr.is_some() && peer.rx_bytes > 0 && peer.last_handshake.is_some())
            .then_some(())
    })
    .await;

    let metrics = api.user_metrics().await.unwrap();
    assert!(
        metrics.contains("tailscaled_advertised_routes 1"),
        "{metrics}"
    );
    only_root_reads(&first.spec.state_dir).unwrap();

    second.logout().await.unwrap();
    assert_eq!(
        second.status().await.unwrap().state,
        BackendState::NeedsLogin
    );
    until("the peer is offline", async || {
        let status = api.status().await.unwrap();
        status
            .peers
            .iter()
            .all(|peer| !peer.is_online)
            .then_some(())
    })
    .await;
}

fn only_root_reads(dir: &Path) -> io::Result<()> {
    assert_eq!(fs::metadata(dir)?.mode() & 0o777, 0o700);
    let keys = fs::metadata(dir.join("tailscaled.state"))?;
    assert_eq!(keys.mode() & 0o777, 0o600);
    for entry in fs::read_dir(dir)? {
        let entry = entry?;
        let (name, mode) = (entry.file_name(), entry.metadata()?.mode() & 0o777);
        assert_eq!(mode & 0o077, 0, "{} has mode {mode:o}", name.display());
    }
    Ok(())
}
