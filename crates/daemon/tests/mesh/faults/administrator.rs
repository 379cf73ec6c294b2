//! Somebody changes things at the server, or a node's membership, by hand.

use lab::{JOIN_TIMEOUT, MeshNode, CLUSTER_CIDRS, TAG, eventually, open_policy};
use serde_json::json;

use super::{BACK_IN, reading, with_two_nodes};

/// Does something, and waits until the daemon has done something about it: it logs so, and counts it.
fn until_repaired(member: &MeshNode, repair: &str, text: &str, act: impl FnOnce()) {
    let logged = || member.log().matches(text).count();
    let counted = || reading(member, "headcni_mesh_repairs_total", &[("repair", repair)]);
    let before = (logged(), counted());
    act();
    eventually(JOIN_TIMEOUT, text, || {
        (logged() > before.0 && counted() > before.1).then_some(())
    })
    .unwrap();
}

#[test]
fn what_an_administrator_takes_away_comes_back() {
    with_two_nodes(|cluster, talk| {
        let (headscale, member) = (&cluster.headscale, &cluster.members[0]);
        talk.silences("node deleted at the server", BACK_IN, || {
            until_repaired(member, "join", "joined the mesh", || {
                headscale.delete("node-1").unwrap();
            });
        });
        member.await_ready(JOIN_TIMEOUT).unwrap();
        let logins = member.log().matches("joining the mesh").count();
        assert!(logins <= 3, "each login ends the one before: {logins}");

        talk.silence("node expired at the server", BACK_IN, || {
            until_repaired(member, "join", "joined the mesh", || {
                headscale.expire("node-1").unwrap();
            });
        });
        member.await_ready(JOIN_TIMEOUT).unwrap();

        talk.silence("logged out on the node", BACK_IN, || {
            until_repaired(member, "join", "joined the mesh", || {
                let line = format!("{} logout", member.tailscale_line());
                member.sh(&line).unwrap();
            });
        });
        member.await_ready(JOIN_TIMEOUT).unwrap();

        // Without auto-approvers nobody but the daemon approves.
        let mut policy = open_policy(TAG, &CLUSTER_CIDRS);
        policy["autoApprovers"] = json!({});
        headscale.set_policy(&policy).unwrap();
        talk.silence("networks not approved any more", BACK_IN, || {
            until_repaired(member, "approve", "approving networks", || {
                headscale.approve("node-1", &[]).unwrap();
            });
        });
        member.await_ready(JOIN_TIMEOUT).unwrap();
    });
}
