//! Two members that know each other.

use std::net::IpAddr;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::{fs, io};

use tailscaled::localapi::{PingKind, State};

use crate::scene::{World, member, open_policy, until};

const ROUTES: [&str; 2] = ["10.244.1.0/24", "10.244.2.0/24"];

#[tokio::test]
async fn two_members_join_from_nothing_and_reach_each_other() {
    let world = World::new();
    let server = world.headscale();
    server.set_policy(&open_policy()).unwrap();
    let (first, _keep) = member(&world.nodes[0], &server, ROUTES[0]).await;
    let (second, _keep) = member(&world.nodes[1], &server, ROUTES[1]).await;
    let (first, second) = (first, second.api());
    let api = first.api();

    let peer = until(
        "each serves its network, and the other one knows",
        async || {
            let status = api.status().await.unwrap();
            assert_eq!(status.state, State::Running);
            let is_serving = status.this.served == [ROUTES[0].parse().unwrap()];
            let peer = status
                .peers
                .into_iter()
                .find(|peer| peer.host_name == "n2")?;
            let is_served = peer.served == [ROUTES[1].parse().unwrap()];
            (is_serving && is_served && peer.is_online).then_some(peer)
        },
    )
    .await;
    let status = api.status().await.unwrap();
    assert_eq!(status.this.host_name, "n1");
    assert_eq!(status.domain.as_deref(), Some("tail.test"));
    assert_eq!(status.unreadable_peers, 0);
    assert_eq!(status.addresses, status.this.addresses);
    assert_eq!(peer.tags, ["tag:k8s-node"]);
    assert!(
        peer.allowed.contains(&ROUTES[1].parse().unwrap()),
        "{peer:?}"
    );
    assert!(peer.key.starts_with("nodekey:"), "{peer:?}");

    let address = peer.addresses[0];
    let pong = until("a ping goes directly", async || {
        let pong = api.ping(address, PingKind::Disco).await.ok()?;
        pong.direct.is_some().then_some(pong)
    })
    .await;
    assert_eq!(pong.node_address, Some(address));
    assert_eq!(pong.relay, None);
    for kind in [PingKind::Tsmp, PingKind::Icmp] {
        let pong = api.ping(address, kind).await.unwrap();
        assert_eq!(pong.node_address, Some(address), "{kind:?}");
    }
    let nobody: IpAddr = "100.100.5.5".parse().unwrap();
    let error = api.ping(nobody, PingKind::Disco).await.unwrap_err();
    assert!(error.to_string().contains("100.100.5.5"), "{error}");
    until("traffic is counted", async || {
        let status = api.status().await.unwrap();
        let peer = status
            .peers
            .iter()
            .find(|peer| peer.addresses.contains(&address))?;
        (peer.direct.is_some() && peer.received_bytes > 0 && peer.last_handshake.is_some())
            .then_some(())
    })
    .await;

    let who = api.whois(address).await.unwrap().unwrap();
    assert_eq!(
        (who.id, Some(who.node_id), who.key),
        (peer.id, peer.node_id, peer.key)
    );
    assert_eq!(who.tags, ["tag:k8s-node"]);
    assert!(who.addresses.contains(&address));
    assert_eq!(
        api.whois("10.244.2.7".parse().unwrap()).await.unwrap(),
        None
    );

    assert!(api.metrics().await.unwrap().contains("# TYPE"));
    let metrics = api.user_metrics().await.unwrap();
    assert!(
        metrics.contains("tailscaled_advertised_routes 1"),
        "{metrics}"
    );
    assert_eq!(api.relays().await.unwrap()[0].code, "lab");
    // The lab's nodes forward IPv4 only, and their links have no such offload: it says so or not.
    api.check_ip_forwarding().await.unwrap();
    api.set_udp_gro_forwarding().await.unwrap();
    only_root_reads(&first.settings.state_dir).unwrap();

    second.logout().await.unwrap();
    assert_eq!(second.status().await.unwrap().state, State::NeedsLogin);
    until("the other one has heard", async || {
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
