//! One directory, two plugins, in turns: what one does, the other one respects.

use std::collections::BTreeSet;

use rstest::rstest;
use serde_json::json;

use crate::scene::Plugin::{self, HostLocal, Ours};
use crate::scene::{Scene, addresses, call, done, merged, refused, succeeded};

#[test]
fn two_hundred_leases_in_turns_are_distinct_and_both_see_the_end() {
    let scene = Scene::new();
    // 200 of them: from .2 to .201.
    let range = json!({"subnet": "10.1.0.0/24", "rangeEnd": "10.1.0.201"});
    let conf = scene.conf(&range);
    let mut given = BTreeSet::new();
    for number in 0..200 {
        // Not simply every other one: runs of one and of several.
        let plugin = if number % 5 < 2 { HostLocal } else { Ours };
        for address in scene.add(plugin, &format!("c{number}"), &conf) {
            assert!(given.insert(address.clone()), "{address} is given twice");
        }
    }
    assert_eq!(given.len(), 200);
    let outcome = scene.ask(HostLocal, "ADD", "late", &conf);
    assert!(!outcome.status.success(), "{outcome:?}");
    assert!(outcome.err_msg().contains("no IP addresses available"));
    let message = scene.refused("ADD", "late", &conf, 110);
    assert!(message.contains("200 of 200"), "{message}");
    assert_eq!(scene.leases_of("late"), BTreeSet::new());

    // One lets go, whichever it was: the other one takes it.
    for (owner, by) in [("c0", Ours), ("c3", HostLocal)] {
        let freed = scene.leases_of(owner);
        scene.del(by, owner, &conf);
        let next = format!("after-{owner}");
        assert_eq!(scene.add(by.other(), &next, &conf), Vec::from_iter(freed));
    }
}

#[rstest]
fn what_one_leased_the_other_one_releases(#[values(Ours, HostLocal)] by: Plugin) {
    let scene = Scene::new();
    let conf = scene.subnets(&["10.1.0.0/24", "fd00::/64"]);
    for round in 0..3 {
        let given = scene.add(by, "a", &conf);
        scene.add(by, "b", &conf);
        assert_eq!(given.len(), 2, "round {round}");
        scene.del(by.other(), "a", &conf);
        assert_eq!(scene.leases_of("a"), BTreeSet::new());
        assert_eq!(scene.leases_of("b").len(), 2, "it is another's");
        // The one that leased it believes it, and does not mind.
        scene.del(by, "a", &conf);
        assert!(!scene.ask(by, "CHECK", "a", &conf).status.success());
        scene.del(by.other(), "b", &conf);
    }
    assert!(scene.leases().is_empty());
}

#[rstest]
fn what_one_leased_the_other_one_checks(#[values(Ours, HostLocal)] by: Plugin) {
    let scene = Scene::new();
    let conf = scene.subnets(&["10.1.0.0/24", "fd00::/64"]);
    let result = succeeded(&scene.ask(by, "ADD", "a", &conf));
    let known = merged(&conf, &json!({"prevResult": result}));
    for checker in [by, by.other()] {
        done(&scene.ask(checker, "CHECK", "a", &known));
        let outcome = scene.ask(checker, "CHECK", "b", &known);
        assert!(!outcome.status.success(), "b has nothing: {outcome:?}");
    }
}

#[rstest]
fn what_one_leased_the_other_one_does_not_lease_again_to_the_same_owner(
    #[values(Ours, HostLocal)] by: Plugin,
) {
    let scene = Scene::new();
    let conf = scene.subnets(&["10.1.0.0/24"]);
    let given = scene.add(by, "a", &conf);
    let outcome = scene.ask(by.other(), "ADD", "a", &conf);
    assert!(!outcome.status.success(), "{outcome:?}");
    assert!(outcome.stdout.contains(&given[0]), "{outcome:?}");
    assert_eq!(scene.leases_of("a"), BTreeSet::from_iter(given));
}

#[rstest]
fn an_address_that_one_leased_the_other_one_does_not_give_on_request(
    #[values(Ours, HostLocal)] by: Plugin,
) {
    let scene = Scene::new();
    let conf = scene.subnets(&["10.1.0.0/24"]);
    let asking = |who| call("ADD", who, &conf).args("IgnoreUnknown=1;IP=10.1.0.77");
    let result = succeeded(&scene.run(by, &asking("a")));
    assert_eq!(addresses(&result), ["10.1.0.77"]);
    let outcome = scene.run(by.other(), &asking("b"));
    assert!(!outcome.status.success(), "{outcome:?}");
    assert!(scene.leases_of("b").is_empty());
    assert_eq!(scene.leases_of("a"), BTreeSet::from(["10.1.0.77".into()]));
}

#[test]
fn the_newest_lease_is_known_to_both() {
    let scene = Scene::new();
    let conf = scene.subnets(&["10.1.0.0/24", "fd00::/64"]);
    let both = |last: u8| vec![format!("10.1.0.{last}"), format!("fd00::{last}")];
    for (number, plugin) in [(2, Ours), (3, HostLocal), (4, HostLocal), (5, Ours)] {
        let who = format!("c{number}");
        assert_eq!(scene.add(plugin, &who, &conf), both(number));
        // Released at once, and yet not given again: the next one comes after it.
        scene.del(plugin.other(), &who, &conf);
    }
    for (number, plugin) in [(6, HostLocal), (7, Ours), (8, HostLocal)] {
        assert_eq!(
            scene.add(plugin, &format!("c{number}"), &conf),
            both(number)
        );
    }
}

#[test]
fn two_interfaces_of_a_container_are_two_owners_to_both() {
    let scene = Scene::new();
    let conf = scene.subnets(&["10.1.0.0/24"]);
    let on = |verb, ifname| call(verb, "a", &conf).ifname(ifname);
    for (plugin, ifname) in [(Ours, "eth0"), (HostLocal, "eth1"), (Ours, "eth2")] {
        succeeded(&scene.run(plugin, &on("ADD", ifname)));
    }
    for (plugin, ifname, left) in [
        (HostLocal, "eth0", 2),
        (Ours, "eth1", 1),
        (HostLocal, "eth2", 0),
    ] {
        done(&scene.run(plugin, &on("DEL", ifname)));
        assert_eq!(scene.leases().len(), left, "after {ifname}");
    }
}

#[test]
fn a_file_of_host_local_from_before_interfaces_were_named_is_everybodys() {
    let scene = Scene::new();
    let conf = scene.subnets(&["10.1.0.0/24"]);
    scene.write("10.1.0.2", "old");
    done(&scene.ask(Ours, "CHECK", "old", &conf));
    assert_eq!(scene.add(Ours, "a", &conf), ["10.1.0.3"]);
    scene.del(Ours, "old", &conf);
    assert_eq!(scene.leases().len(), 1);
}

#[test]
fn names_that_begin_like_others_are_kept_apart() {
    let scene = Scene::new();
    let conf = scene.subnets(&["10.1.0.0/24"]);
    for (plugin, who) in [(Ours, "c1"), (Ours, "c10"), (HostLocal, "c2")] {
        scene.add(plugin, who, &conf);
        // Ours looks at what host-local has done, and makes its index anew.
        done(&scene.ask(Ours, "STATUS", "", &conf));
    }
    for who in ["c1", "c10", "c2"] {
        done(&scene.ask(Ours, "CHECK", who, &conf));
        scene.del(Ours, who, &conf);
        assert_eq!(scene.leases_of(who), BTreeSet::new());
    }
}

#[test]
fn a_container_with_a_very_long_name_is_released_by_both() {
    let scene = Scene::new();
    let conf = scene.subnets(&["10.1.0.0/24"]);
    for by in [HostLocal, Ours] {
        let long = "c".repeat(253);
        scene.add(HostLocal, &long, &conf);
        scene.del(by, &long, &conf);
        assert!(scene.leases().is_empty(), "by {by:?}");
    }
}

#[test]
fn a_refused_answer_names_the_owner_that_host_local_gave_the_address_to() {
    let scene = Scene::new();
    let conf = scene.subnets(&["10.1.0.0/24"]);
    scene.add(HostLocal, "first", &conf);
    let asking = call("ADD", "b", &conf).args("IP=10.1.0.2");
    let message = refused(&scene.run(Ours, &asking), 111);
    assert!(
        message.contains("10.1.0.2") && message.contains("first"),
        "{message}"
    );
}
