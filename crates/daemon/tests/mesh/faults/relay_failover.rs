//! The direct path between two nodes is lost and comes back.

use lab::scenario::{JOIN_TIMEOUT, MeshNode, MeshPath, connectivity};
use lab::{Port, eventually};

use super::{KERNEL_RESTORE, TAILSCALED_RESTART, await_path, with_two_nodes};

/// Drops UDP from the peer, not from Headscale and its DERP server.
fn block_udp(node: &MeshNode, from: &Port) {
    let (v4, v6) = (from.v4, from.v6.unwrap());
    node.sh(&format!(
        "nft 'table inet block {{
                chain input {{
                    type filter hook input priority raw; policy accept;
                    ip saddr {v4} meta l4proto udp drop
                    ip6 saddr {v6} meta l4proto udp drop
                }}
            }}'"
    ))
    .unwrap();
}

fn changes(node: &MeshNode) -> f64 {
    node.metric("headcni_mesh_path_changes_total", &[])
}

#[test]
fn the_derp_relay_takes_over_while_udp_is_blocked() {
    with_two_nodes(|cluster, traffic| {
        let (nodes, ports) = (&cluster.nodes, &cluster.topology.ports);
        for node in nodes {
            await_path(node, "direct");
        }
        let before: Vec<f64> = nodes.iter().map(changes).collect();
        traffic.assert_outage("UDP blocked between nodes", TAILSCALED_RESTART, || {
            block_udp(&nodes[0], &ports[1]);
            block_udp(&nodes[1], &ports[0]);
            for (from, to) in [(0, 1), (1, 0)] {
                eventually(JOIN_TIMEOUT, "a relay", || {
                    let path = nodes[from].path_to(&nodes[to]).ok()?;
                    (path == MeshPath::Relay).then_some(())
                })
                .unwrap();
            }
        });
        for node in nodes {
            await_path(node, "relay");
        }
        let relayed: Vec<f64> = nodes.iter().map(changes).collect();

        traffic.assert_outage("UDP unblocked", KERNEL_RESTORE, || {
            for node in nodes {
                node.sh("nft delete table inet block").unwrap();
            }
            connectivity::await_direct(nodes).unwrap();
        });
        for node in nodes {
            await_path(node, "direct");
        }
        for (nth, node) in nodes.iter().enumerate() {
            let counts = [before[nth], relayed[nth], changes(node)];
            assert!(counts.is_sorted_by(|one, next| one < next), "{counts:?}");
        }
    });
}
