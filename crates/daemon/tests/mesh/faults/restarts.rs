//! The daemon and tailscaled are stopped, killed and upgraded.

use std::net::IpAddr;
use std::path::Path;

use lab::scenario::{AttachedPod, JOIN_TIMEOUT, MeshNode};
use lab::{Netns, eventually, tools};

use super::{TAILSCALED_RESTART, await_ping, with_two_nodes};
use crate::magic_dns;

/// The index of the mesh interface: a new tailscaled makes a new interface.
fn mesh_ifindex(node: &MeshNode) -> u64 {
    let link = node.node.link("headcni01").unwrap().unwrap();
    link["ifindex"].as_u64().unwrap()
}

/// Replaces a program by another file, on this node only.
fn upgrade(node: &MeshNode, program: &Path) {
    let program = program.display();
    node.sh(&format!(
        "new=$(mktemp /run/new.XXXXXX); cp {program} $new; echo >>$new; chmod 0755 $new
             mount --bind $new {program}"
    ))
    .unwrap();
}

#[test]
fn a_restart_or_upgrade_of_the_daemon_loses_no_packet() {
    with_two_nodes(|cluster, traffic| {
        let node = &mut cluster.nodes[0];
        let before = (node.tailscaled_pid().unwrap(), mesh_ifindex(node));
        traffic.assert_no_loss("daemon killed and started", || {
            node.kill_daemon().unwrap();
            node.start_daemon().unwrap();
            node.await_ready(JOIN_TIMEOUT).unwrap();
        });
        traffic.assert_no_loss("daemon stopped and started", || {
            node.stop_daemon().unwrap();
            node.start_daemon().unwrap();
            node.await_ready(JOIN_TIMEOUT).unwrap();
        });
        traffic.assert_no_loss("daemon and tailscaled upgraded", || {
            upgrade(node, &tools::headcni_daemon());
            upgrade(node, &tools::TAILSCALE.program("tailscaled"));
            node.stop_daemon().unwrap();
            node.start_daemon().unwrap();
            node.await_ready(JOIN_TIMEOUT).unwrap();
        });
        assert_eq!((node.tailscaled_pid().unwrap(), mesh_ifindex(node)), before);
        assert!(node.log().contains("executable replaced"));
    });
}

#[test]
fn a_killed_tailscaled_is_restarted() {
    with_two_nodes(|cluster, traffic| {
        for (nth, what) in ["client's tailscaled killed", "server's tailscaled killed"]
            .into_iter()
            .enumerate()
        {
            let node = &cluster.nodes[nth];
            let before = node.tailscaled_pid().unwrap();
            traffic.assert_total_outage(what, TAILSCALED_RESTART, || {
                node.node.run(["kill", "-9", &before.to_string()]).unwrap();
                eventually(JOIN_TIMEOUT, "another tailscaled", || {
                    node.tailscaled_pid().ok().filter(|pid| *pid != before)
                })
                .unwrap();
            });
            node.await_ready(JOIN_TIMEOUT).unwrap();
        }
        // A new daemon restarts a tailscaled that died while no daemon ran.
        let node = &mut cluster.nodes[0];
        traffic.assert_outage(
            "tailscaled and daemon killed, daemon started",
            TAILSCALED_RESTART,
            || {
                let pid = node.tailscaled_pid().unwrap().to_string();
                node.kill_daemon().unwrap();
                node.node.run(["kill", "-9", &pid]).unwrap();
                node.start_daemon().unwrap();
            },
        );
        node.await_ready(JOIN_TIMEOUT).unwrap();
    });
}

/// Sends packets from a pod and its node to tailnet addresses without an answer. The cluster's sniffers check
/// that none crosses the underlay.
fn ping_in_vain(node: &MeshNode, pod: &AttachedPod, ips: &[IpAddr]) {
    eventually(JOIN_TIMEOUT, "the mesh interface is gone", || {
        node.node.link("headcni01").unwrap().is_none().then_some(())
    })
    .unwrap();
    for to in ips {
        let to = to.to_string();
        let line = ["ping", "-n", "-c", "2", "-i", "0.2", "-W", "0.5", &to];
        for output in [pod.pod.attempt(line), node.node.attempt(line)] {
            let output = output.unwrap();
            assert!(!output.status.success(), "{output:?}");
        }
    }
}

#[test]
fn packets_to_tailnet_ips_are_never_in_clear_while_tailscaled_is_down() {
    with_two_nodes(|cluster, traffic| {
        let mut ips = cluster.nodes[1].tailnet_ips().unwrap();
        assert_eq!(ips.len(), 2, "{ips:?}");
        let node = &mut cluster.nodes[0];
        for to in &ips {
            await_ping(&traffic.client, *to);
        }
        ips.extend(node.tailnet_ips().unwrap());
        ips.extend(magic_dns::RESOLVERS);

        let pid = node.tailscaled_pid().unwrap().to_string();
        node.kill_daemon().unwrap();
        node.node.run(["kill", "-9", &pid]).unwrap();
        ping_in_vain(node, &traffic.client, &ips);

        // A starting daemon knows the tailnet addresses without a tailscaled and without its nft table.
        let program = tools::TAILSCALE.program("tailscaled");
        let program = program.display();
        node.sh(&format!(
            "nft delete table inet headcni; mount --bind /bin/false {program}"
        ))
        .unwrap();
        node.start_daemon().unwrap();
        eventually(JOIN_TIMEOUT, "a table", || {
            node.sh("nft list table inet headcni").ok()
        })
        .unwrap();
        ping_in_vain(node, &traffic.client, &ips);

        node.sh(&format!("umount {program}")).unwrap();
        node.await_ready(JOIN_TIMEOUT * 2).unwrap();
        for to in &ips[..2] {
            await_ping(&traffic.client, *to);
        }
    });
}
