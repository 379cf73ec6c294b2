//! A node full of host-local's leases is taken over in place, and handed back.

use std::collections::BTreeMap;
use std::fs;
use std::net::IpAddr;

use rstest::rstest;
use serde_json::{Value, json};

use crate::scene::Plugin::{HostLocal, Ours};
use crate::scene::{Scene, addresses, call, done, merged, succeeded};

/// What both plugins must agree on, whoever made it.
fn is_full(scene: &Scene, conf: &Value) -> bool {
    let ours = scene.ask(Ours, "ADD", "one-too-many", conf);
    let theirs = scene.ask(HostLocal, "ADD", "one-too-many", conf);
    assert_eq!(ours.status.success(), theirs.status.success());
    !ours.status.success()
}

#[rstest]
#[case::a_slash_24(&["10.1.0.0/24"], 253, 1)]
#[case::dual_stack(&["10.1.0.0/27", "fd00::/123"], 29, 2)]
fn a_full_node_changes_hands_twice(
    #[case] subnets: &[&str],
    #[case] count: usize,
    #[case] families: usize,
) {
    let scene = Scene::new();
    let conf = scene.subnets(subnets);
    let mut known = BTreeMap::new();
    for number in 0..count {
        // All of one length.
        let who = format!("c{number:03}");
        let result = succeeded(&scene.ask(HostLocal, "ADD", &who, &conf));
        known.insert(who, result);
    }
    let before = scene.leases();
    assert_eq!(before.len(), count * families);

    // Taken over: nothing is lost, nothing is given twice, everything can be checked.
    let message = scene.refused("ADD", "late", &conf, 110);
    assert!(
        message.contains(&format!("{count} of {count}")),
        "{message}"
    );
    assert_eq!(scene.leases(), before);
    for (who, result) in &known {
        let conf = merged(&conf, &json!({"prevResult": result}));
        done(&scene.ask(Ours, "CHECK", who, &conf));
    }
    let some: Vec<_> = known.iter().step_by(3).collect();
    for (who, result) in &some {
        scene.del(Ours, who, &conf);
        for address in addresses(result) {
            assert!(!scene.file(&address).exists(), "{address} of {who}");
        }
    }
    for (who, _) in &some {
        scene.add(Ours, &format!("new-{who}"), &conf);
    }
    assert!(is_full(&scene, &conf));

    // Handed back: host-local goes on with all of them, old and new.
    let owners: Vec<String> = known.into_keys().collect();
    for (number, who) in owners.iter().enumerate() {
        let who = match number % 3 {
            0 => format!("new-{who}"),
            _ => who.clone(),
        };
        // Every one of ours, and a few of its own.
        let by = if number % 9 < 2 { HostLocal } else { Ours };
        scene.del(by, &who, &conf);
    }
    assert!(scene.leases().is_empty(), "{:?}", scene.leases());
}

#[test]
fn two_thousand_leases_of_a_slash_20_are_adopted_and_let_go_one_by_one() {
    let scene = Scene::new();
    let conf = scene.subnets(&["10.2.0.0/20"]);
    // One by host-local itself, for the rest files as it writes them.
    assert_eq!(scene.add(HostLocal, "c2", &conf), ["10.2.0.2"]);
    let like = fs::read_to_string(scene.file("10.2.0.2")).unwrap();
    assert_eq!(like, "c2\r\neth0");
    for number in 3..2002_u32 {
        let address = IpAddr::from((0x0a02_0000 + number).to_be_bytes());
        scene.write(
            &address.to_string(),
            like.replace("c2", &format!("c{number}")),
        );
    }
    scene.write("last_reserved_ip.0", "10.2.7.209");
    let before = scene.leases();
    assert_eq!(before.len(), 2000);

    assert_eq!(scene.add(Ours, "new", &conf), ["10.2.7.210"]);
    for (who, address) in [
        ("c2", "10.2.0.2"),
        ("c1000", "10.2.3.232"),
        ("c2001", "10.2.7.209"),
    ] {
        let previous =
            json!({"cniVersion": "1.1.0", "ips": [{"address": format!("{address}/20")}]});
        let known = merged(&conf, &json!({"prevResult": previous}));
        done(&scene.ask(Ours, "CHECK", who, &known));
        scene.del(Ours, who, &conf);
        assert!(!scene.file(address).exists());
    }
    assert_eq!(scene.leases().len(), 1998);
    assert!(
        scene
            .leases()
            .keys()
            .all(|address| { before.contains_key(address) || address.to_string() == "10.2.7.210" })
    );

    assert_eq!(scene.add(HostLocal, "newer", &conf), ["10.2.7.211"]);
    scene.del(HostLocal, "new", &conf);
    scene.del(HostLocal, "c1001", &conf);
    assert_eq!(scene.leases().len(), 1997);
    assert_eq!(scene.add(Ours, "newest", &conf), ["10.2.7.212"]);
}

#[test]
fn leases_of_host_local_survive_a_change_of_range() {
    let scene = Scene::new();
    let old = scene.subnets(&["10.1.0.0/24"]);
    scene.add(HostLocal, "a", &old);
    scene.add(Ours, "b", &old);
    let new = scene.subnets(&["10.9.0.0/24"]);
    assert_eq!(scene.add(Ours, "c", &new), ["10.9.0.2"]);
    // What is released is what the owner has, whatever the configuration says by now.
    for who in ["a", "b", "c"] {
        scene.del(Ours, who, &new);
    }
    assert!(scene.leases().is_empty());
}

#[test]
fn a_range_that_grew_around_old_leases_steers_clear_of_them() {
    let scene = Scene::new();
    let small = scene.subnets(&["10.1.0.0/28"]);
    for number in 0..13 {
        scene.add(
            if number % 2 == 0 { Ours } else { HostLocal },
            &format!("c{number}"),
            &small,
        );
    }
    let large = scene.conf(&json!({"subnet": "10.1.0.0/24", "allocation_strategy": "dense-pack"}));
    let add = call("ADD", "next", &large);
    let given = addresses(&succeeded(&scene.run(Ours, &add)));
    assert_eq!(
        given,
        ["10.1.0.15"],
        "the broadcast address of the small one is free here"
    );
    // And back: the small one's map knows what was leased by the large one.
    scene.del(Ours, "c3", &large);
    assert_eq!(scene.add(Ours, "again", &small), ["10.1.0.5"]);
    assert!(is_full(&scene, &small));
}

#[test]
fn a_directory_named_like_the_network_that_host_local_used_is_taken_over_too() {
    let scene = Scene::new();
    let named = scene.data_dir().join("net");
    let conf = scene.conf(&json!({"subnet": "10.1.0.0/24", "dataDir": named}));
    let theirs = scene.add(HostLocal, "h", &conf);
    let ours = scene.add(Ours, "a", &conf);
    assert_ne!(ours, theirs);
}
