//! Others take from the kernel what is ours, and cables are pulled.

use std::thread;
use std::time::Duration;

use lab::{JOINED, Netns};

use super::{reaches, with_two_nodes};

/// What is wiped, by the commands that people and programs use for it.
const WIPED: [(&str, &str); 6] = [
    (
        "our rules",
        "for f in -4 -6; do for p in 5190 5195 5200; do ip $f rule delete priority $p; done; done",
    ),
    (
        "all rules",
        "for f in -4 -6; do ip $f rule flush; ip $f rule add lookup main priority 32766; done",
    ),
    (
        "our table of routes",
        "for f in -4 -6; do ip $f route flush table 26723; done",
    ),
    ("our nft table", "nft delete table inet headcni"),
    ("all of nftables", "nft flush ruleset"),
    (
        "all of these",
        "nft flush ruleset
         for f in -4 -6; do
             ip $f route flush table 26723
             ip $f rule flush; ip $f rule add lookup main priority 32766
         done",
    ),
];

#[test]
fn what_others_wipe_is_put_back() {
    with_two_nodes(|cluster, talk| {
        let member = &cluster.members[0];
        let members = cluster.members[1].mesh_addresses().unwrap();
        for (what, line) in WIPED {
            talk.silence(&format!("{what} wiped"), || {
                member.sh(line).unwrap();
            });
        }
        member.await_ready(JOINED).unwrap();

        talk.silence("the mesh's link switched off", || {
            member.sh("ip link set headcni01 down").unwrap();
        });
        // What tailscaled had there is back as well, by another one.
        for to in members {
            reaches(&talk.caller, to);
        }
        member.await_ready(JOINED).unwrap();

        talk.silence("the mesh's link deleted", || {
            member
                .node
                .run(["ip", "link", "delete", "headcni01"])
                .unwrap();
        });
        member.await_ready(JOINED).unwrap();
    });
}

#[test]
fn a_cable_that_was_pulled_is_put_back() {
    with_two_nodes(|cluster, talk| {
        let (underlay, port) = (&cluster.grounds.underlay, &cluster.grounds.ports[0]);
        talk.silence("cable pulled for 10 s", || {
            underlay.cut(port).unwrap();
            // It is the time without a cable that is tested.
            thread::sleep(Duration::from_secs(10));
            underlay.mend(port).unwrap();
        });
        for member in &cluster.members {
            member.await_ready(JOINED * 3).unwrap();
        }
    });
}
