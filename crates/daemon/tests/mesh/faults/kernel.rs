//! Others take from the kernel what is ours, and cables are pulled.

use std::thread;
use std::time::Duration;

use lab::{JOIN_TIMEOUT, MeshNode, Netns, eventually, without_dynamic_elements};

use super::{PUT_BACK, RESTARTED, our_rules, reaches, with_two_nodes};

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

/// All of that, without what changes by itself: counters, and what packets put into sets.
fn state(member: &MeshNode) -> Option<String> {
    let routes = "for family in -4 -6; do
                      ip $family route show table 26723 | sort
                      ip $family route show table main | sort
                  done";
    let routes = member.sh(routes).ok()?;
    let tables = member.sh("nft --stateless list table inet headcni").ok()?;
    Some([our_rules(member), routes, without_dynamic_elements(&tables)].concat())
}

/// Waits until all of it is there again as it was.
fn await_state(member: &MeshNode, before: &str, limit: Duration, what: &str) {
    let is_back = || (state(member)? == before).then_some(());
    eventually(limit, &format!("what was there before {what}"), is_back).unwrap_or_else(|error| {
        let now = state(member).unwrap_or_default();
        panic!("{error:#}, which was\n{before}\nand is\n{now}")
    });
}

#[test]
fn what_others_wipe_is_put_back() {
    with_two_nodes(|cluster, talk| {
        let member = &cluster.members[0];
        let members = cluster.members[1].mesh_addresses().unwrap();
        let before = state(member).unwrap();
        for part in ["5190:", "dev headcni01", "unreachable", "chain guard"] {
            assert!(before.contains(part), "{part}: {before}");
        }
        for (what, line) in WIPED {
            let what = format!("{what} wiped");
            talk.silence(&what, PUT_BACK, || {
                member.sh(line).unwrap();
                await_state(member, &before, PUT_BACK, &what);
            });
        }
        member.await_ready(JOIN_TIMEOUT).unwrap();

        let what = "the mesh's link switched off";
        talk.silence(what, RESTARTED, || {
            member.sh("ip link set headcni01 down").unwrap();
            await_state(member, &before, RESTARTED, what);
        });
        // What tailscaled had there is back as well, by another one.
        for to in members {
            reaches(&talk.caller, to);
        }
        member.await_ready(JOIN_TIMEOUT).unwrap();

        let what = "the mesh's link deleted";
        talk.silence(what, RESTARTED, || {
            let delete = ["ip", "link", "delete", "headcni01"];
            member.node.run(delete).unwrap();
            await_state(member, &before, RESTARTED, what);
        });
        member.await_ready(JOIN_TIMEOUT).unwrap();
    });
}

#[test]
fn a_cable_that_was_pulled_is_put_back() {
    with_two_nodes(|cluster, talk| {
        let (underlay, port) = (&cluster.grounds.underlay, &cluster.grounds.ports[0]);
        talk.silence("cable pulled for 10 s", RESTARTED, || {
            underlay.cut(port).unwrap();
            // It is the time without a cable that is tested.
            thread::sleep(Duration::from_secs(10));
            underlay.mend(port).unwrap();
        });
        for member in &cluster.members {
            member.await_ready(JOIN_TIMEOUT * 3).unwrap();
        }
    });
}
