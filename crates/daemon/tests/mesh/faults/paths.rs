//! The direct way between two nodes goes, and comes back.

use lab::{JOINED, Member, MeshPath, Port, eventually};

use super::{PUT_BACK, RESTARTED, await_path, reading, with_two_nodes};
use crate::talk;

/// Drops without a word what comes from another machine by UDP. The server and its relay are another one.
fn cut(member: &Member<'_>, from: &Port) {
    let (v4, v6) = (from.v4, from.v6.unwrap());
    member
        .sh(&format!(
            "nft 'table inet cut {{
                chain input {{
                    type filter hook input priority raw; policy accept;
                    ip saddr {v4} meta l4proto udp drop
                    ip6 saddr {v6} meta l4proto udp drop
                }}
            }}'"
        ))
        .unwrap();
}

fn changes(member: &Member<'_>) -> f64 {
    reading(member, "headcni_mesh_path_changes_total", &[])
}

#[test]
fn a_relay_takes_over_while_there_is_no_direct_way() {
    with_two_nodes(|cluster, talk| {
        let (members, ports) = (&cluster.members, &cluster.grounds.ports);
        for member in members {
            await_path(member, "direct");
        }
        let before: Vec<f64> = members.iter().map(changes).collect();
        talk.silence("no UDP between nodes", RESTARTED, || {
            cut(&members[0], &ports[1]);
            cut(&members[1], &ports[0]);
            for (from, to) in [(0, 1), (1, 0)] {
                eventually(JOINED, "a relay", || {
                    let path = members[from].path_to(&members[to]).ok()?;
                    (path == MeshPath::Relay).then_some(())
                })
                .unwrap();
            }
        });
        for member in members {
            await_path(member, "relay");
        }
        let relayed: Vec<f64> = members.iter().map(changes).collect();

        talk.silence("UDP between nodes again", PUT_BACK, || {
            for member in members {
                member.sh("nft delete table inet cut").unwrap();
            }
            talk::await_direct(members);
        });
        for member in members {
            await_path(member, "direct");
        }
        for (nth, member) in members.iter().enumerate() {
            let counts = [before[nth], relayed[nth], changes(member)];
            assert!(counts.is_sorted_by(|one, next| one < next), "{counts:?}");
        }
    });
}
