//! tailscaled contacts only Headscale and peers.

use std::net::IpAddr;
use std::time::Duration;

use lab::frames::{Frame, IpNumber};
use lab::{Capture, Netns};
use tailscaled::localapi::PingType;

use crate::harness::{Lab, join_node, open_policy, until};

#[tokio::test]
async fn no_packet_leaves_the_lab() {
    let mut lab = Lab::new();
    let mut captures = Vec::new();
    for (node, link) in [(0, "hs1"), (0, "direct"), (1, "hs2")] {
        captures.push(Capture::start(&lab.nodes[node], link).unwrap());
    }
    // Packets to other hosts are captured, not forwarded.
    lab.server.sysctl("net.ipv4.ip_forward", "0").unwrap();
    let lab = &mut lab;
    let server = lab.headscale();
    server.set_policy(&open_policy()).unwrap();
    let (first, mut supervisor) = join_node(&lab.nodes[0], &server, "10.244.1.0/24").await;
    let (second, _supervisor) = join_node(&lab.nodes[1], &server, "10.244.2.0/24").await;
    let address = second.api().status().await.unwrap().addresses[0];
    until("a direct path", async || {
        let pong = first.api().ping(address, PingType::Disco).await.ok()?;
        pong.endpoint
    })
    .await;
    supervisor.restart().await.unwrap();
    until("tailscaled is back", async || {
        first.api().ping(address, PingType::Tsmp).await.ok()
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
        let is_foreign = |frame: &&Frame| {
            let to = frame.ip_destination();
            !to.as_ref().is_none_or(is_lab) && !is_reply_to_probe(frame)
        };
        let foreign: Vec<&Frame> = frames.iter().filter(is_foreign).collect();
        assert!(foreign.is_empty(), "{foreign:#?}");
    }
}

/// At its start, tailscaled writes a packet with TTL 0 from 100.100.100.100 to its TUN device, to probe
/// the device's offloads. A kernel that forwards replies with ICMP time exceeded.
fn is_reply_to_probe(frame: &Frame) -> bool {
    const TIME_EXCEEDED: u8 = 11;
    let resolver = IpAddr::from([100, 100, 100, 100]);
    let kind = frame.ip_payload().and_then(<[u8]>::first);
    frame.ip_destination() == Some(resolver)
        && frame.protocol() == Some(IpNumber::ICMP)
        && kind == Some(&TIME_EXCEEDED)
}
