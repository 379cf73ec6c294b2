//! Processes of ours end, kindly or not, and are replaced.

use std::net::IpAddr;
use std::path::Path;

use lab::{Attached, JOINED, Member, Netns, eventually, tools};

use super::{RESTARTED, reaches, with_two_nodes};
use crate::dns;

/// The mesh's link by its number: another tailscaled has another one.
fn link(member: &Member<'_>) -> u64 {
    let link = member.node.link("headcni01").unwrap().unwrap();
    link["ifindex"].as_u64().unwrap()
}

/// Puts another file in a program's place, for this node only.
fn replace(member: &Member<'_>, program: &Path) {
    let program = program.display();
    member
        .sh(&format!(
            "new=$(mktemp /run/new.XXXXXX); cp {program} $new; echo >>$new; chmod 0755 $new
             mount --bind $new {program}"
        ))
        .unwrap();
}

#[test]
fn a_daemon_that_ends_and_comes_back_costs_no_packet() {
    with_two_nodes(|cluster, talk| {
        let member = &mut cluster.members[0];
        let before = (member.tailscaled_pid().unwrap(), link(member));
        talk.loses_nothing("daemon killed and started", || {
            member.kill_daemon().unwrap();
            member.launch().unwrap();
            member.await_ready(JOINED).unwrap();
        });
        talk.loses_nothing("daemon ended and started", || {
            member.stop_daemon().unwrap();
            member.launch().unwrap();
            member.await_ready(JOINED).unwrap();
        });
        talk.loses_nothing("daemon and tailscaled upgraded", || {
            replace(member, &tools::headcni_daemon());
            replace(member, &tools::TAILSCALE.program("tailscaled"));
            member.stop_daemon().unwrap();
            member.launch().unwrap();
            member.await_ready(JOINED).unwrap();
        });
        assert_eq!((member.tailscaled_pid().unwrap(), link(member)), before);
        assert!(member.log().contains("executable replaced"));
    });
}

#[test]
fn a_tailscaled_that_dies_is_started_again() {
    with_two_nodes(|cluster, talk| {
        for (nth, what) in [
            "caller's tailscaled killed",
            "the other's tailscaled killed",
        ]
        .into_iter()
        .enumerate()
        {
            let member = &cluster.members[nth];
            let before = member.tailscaled_pid().unwrap();
            talk.silences(what, RESTARTED, || {
                member
                    .node
                    .run(["kill", "-9", &before.to_string()])
                    .unwrap();
                eventually(JOINED, "another tailscaled", || {
                    member.tailscaled_pid().ok().filter(|pid| *pid != before)
                })
                .unwrap();
            });
            member.await_ready(JOINED).unwrap();
        }
        // Who dies while nobody looks after it is missed by the next one who does.
        let member = &mut cluster.members[0];
        talk.silence(
            "tailscaled and daemon killed, daemon started",
            RESTARTED,
            || {
                let pid = member.tailscaled_pid().unwrap().to_string();
                member.kill_daemon().unwrap();
                member.node.run(["kill", "-9", &pid]).unwrap();
                member.launch().unwrap();
            },
        );
        member.await_ready(JOINED).unwrap();
    });
}

/// Packets of a pod and of its node to members of the mesh get no answer; whoever watches the wires says
/// whether they were seen there.
fn ask_in_vain(member: &Member<'_>, pod: &Attached<'_>, members: &[IpAddr]) {
    eventually(JOINED, "the mesh's link is gone", || {
        member
            .node
            .link("headcni01")
            .unwrap()
            .is_none()
            .then_some(())
    })
    .unwrap();
    for to in members {
        let to = to.to_string();
        let line = ["ping", "-n", "-c", "2", "-i", "0.2", "-W", "0.5", &to];
        for output in [pod.pod.attempt(line), member.node.attempt(line)] {
            let output = output.unwrap();
            assert!(!output.status.success(), "{output:?}");
        }
    }
}

#[test]
fn what_is_for_members_is_not_in_clear_while_tailscaled_is_away() {
    with_two_nodes(|cluster, talk| {
        let mut members = cluster.members[1].mesh_addresses().unwrap();
        assert_eq!(members.len(), 2, "{members:?}");
        let member = &mut cluster.members[0];
        for to in &members {
            reaches(&talk.caller, *to);
        }
        members.extend(member.mesh_addresses().unwrap());
        members.extend(dns::RESOLVERS);

        let pid = member.tailscaled_pid().unwrap().to_string();
        member.kill_daemon().unwrap();
        member.node.run(["kill", "-9", &pid]).unwrap();
        ask_in_vain(member, &talk.caller, &members);

        // A daemon that starts knows them, though it has no tailscaled to ask. Not even its own table is
        // there any more.
        let program = tools::TAILSCALE.program("tailscaled");
        let program = program.display();
        member
            .sh(&format!(
                "nft delete table inet headcni; mount --bind /bin/false {program}"
            ))
            .unwrap();
        member.launch().unwrap();
        eventually(JOINED, "a table", || {
            member.sh("nft list table inet headcni").ok()
        })
        .unwrap();
        ask_in_vain(member, &talk.caller, &members);

        member.sh(&format!("umount {program}")).unwrap();
        member.await_ready(JOINED * 2).unwrap();
        for to in &members[..2] {
            reaches(&talk.caller, *to);
        }
    });
}
