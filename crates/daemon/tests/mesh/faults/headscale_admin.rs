//! An administrator changes a node in Headscale, or logs it out.

use lab::scenario::{CLUSTER_CIDRS, JOIN_TIMEOUT, MeshNode, NODE_TAG};
use lab::{eventually, open_policy};
use serde_json::json;

use super::{REJOIN, with_two_nodes};

/// Does `act`, and waits until the daemon has logged and counted the repair.
fn until_repaired(node: &MeshNode, repair: &str, text: &str, act: impl FnOnce()) {
    let logged = || node.log().matches(text).count();
    let counted = || node.metric("headcni_mesh_repairs_total", &[("repair", repair)]);
    let before = (logged(), counted());
    act();
    eventually(JOIN_TIMEOUT, text, || {
        (logged() > before.0 && counted() > before.1).then_some(())
    })
    .unwrap();
}

#[test]
fn a_node_that_was_deleted_expired_logged_out_or_unapproved_recovers() {
    with_two_nodes(|cluster, traffic| {
        let (headscale, node) = (&cluster.headscale, &cluster.nodes[0]);
        traffic.assert_total_outage("node deleted in Headscale", REJOIN, || {
            until_repaired(node, "join", "joined the mesh", || {
                headscale.delete_node("node-1").unwrap();
            });
        });
        node.await_ready(JOIN_TIMEOUT).unwrap();
        let logins = node.log().matches("joining the mesh").count();
        assert!(
            logins <= 3,
            "each login invalidates the one before: {logins}"
        );

        traffic.assert_outage("node expired in Headscale", REJOIN, || {
            until_repaired(node, "join", "joined the mesh", || {
                headscale.expire_node("node-1").unwrap();
            });
        });
        node.await_ready(JOIN_TIMEOUT).unwrap();

        traffic.assert_outage("logged out on the node", REJOIN, || {
            until_repaired(node, "join", "joined the mesh", || {
                let line = format!("{} logout", node.tailscale_cli());
                node.sh(&line).unwrap();
            });
        });
        node.await_ready(JOIN_TIMEOUT).unwrap();

        // Without autoApprovers only the daemon approves.
        let mut policy = open_policy(NODE_TAG, &CLUSTER_CIDRS);
        policy["autoApprovers"] = json!({});
        headscale.set_policy(&policy).unwrap();
        traffic.assert_outage("routes not approved any more", REJOIN, || {
            until_repaired(node, "approve", "approving routes", || {
                headscale.approve_routes("node-1", &[]).unwrap();
            });
        });
        node.await_ready(JOIN_TIMEOUT).unwrap();
    });
}
