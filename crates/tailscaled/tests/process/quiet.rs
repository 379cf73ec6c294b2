//! Nobody is called but the server and the other members.

use std::net::IpAddr;
use std::time::Duration;

use lab::frames::{Frame, IpNumber};
use lab::{Capture, Netns};
use tailscaled::localapi::PingKind;

use crate::scene::{World, member, open_policy, until};

#[tokio::test]
async fn only_the_lab_is_called() {
    let mut world = World::new();
    let mut captures = Vec::new();
    for (node, link) in [(0, "hs1"), (0, "direct"), (1, "hs2")] {
        captures.push(Capture::start(&world.nodes[node], link).unwrap());
    }
    // Strangers get no answer from here, but what is sent to them is seen.
    world.server.sysctl("net.ipv4.ip_forward", "0").unwrap();
    let world = &mut world;
    let server = world.headscale();
    server.set_policy(&open_policy()).unwrap();
    let (first, mut keep) = member(&world.nodes[0], &server, "10.244.1.0/24").await;
    let (second, _keep) = member(&world.nodes[1], &server, "10.244.2.0/24").await;
    let address = second.api().status().await.unwrap().addresses[0];
    until("a direct way", async || {
        let pong = first.api().ping(address, PingKind::Disco).await.ok()?;
        pong.direct
    })
    .await;
    keep.restart().await.unwrap();
    until("it is back", async || {
        first.api().ping(address, PingKind::Tsmp).await.ok()
    })
    .await;

    for capture in &mut captures {
        let frames = capture.within(Duration::from_secs(2), |_| true).unwrap();
        assert!(!frames.is_empty());
        let is_lab = |address: &IpAddr| match address {
            IpAddr::V4(v4) => {
                v4.octets()[..2] == [10, 99] || v4.is_multicast() || v4.is_broadcast()
            }
            IpAddr::V6(v6) => v6.is_multicast() || v6.is_unicast_link_local(),
        };
        let is_strange = |frame: &&Frame| {
            let to = frame.ip_destination();
            !to.as_ref().is_none_or(is_lab) && !is_answer_to_probe(frame)
        };
        let strange: Vec<&Frame> = frames.iter().filter(is_strange).collect();
        assert!(strange.is_empty(), "{strange:#?}");
    }
}

/// At its start, tailscaled gives the kernel a packet with no time to live, as if it came from the
/// mesh's own resolver, to see what its interface can do. A kernel that forwards complains to that.
fn is_answer_to_probe(frame: &Frame) -> bool {
    const TIME_EXCEEDED: u8 = 11;
    let resolver = IpAddr::from([100, 100, 100, 100]);
    let kind = frame.ip_payload().and_then(<[u8]>::first);
    frame.ip_destination() == Some(resolver)
        && frame.protocol() == Some(IpNumber::ICMP)
        && kind == Some(&TIME_EXCEEDED)
}
