//! CHECK, GC, STATUS and VERSION.

use std::collections::BTreeSet;

use lab::{Call, Outcome};
use rstest::rstest;
use serde_json::{Value, json};

use crate::scene::Plugin::{HostLocal, Ours};
use crate::scene::{Scene, call, done, merged, refused, succeeded};

/// A call that is about no container.
fn plain(scene: &Scene, verb: &str, conf: &Value) -> Outcome {
    scene.run(Ours, &Call::new(verb).path("/nowhere").conf(conf))
}

fn gc(scene: &Scene, conf: &Value, valid: &[(&str, &str)]) -> Outcome {
    let entry = |(id, ifname): &(&str, &str)| json!({"containerID": id, "ifname": ifname});
    let valid: Vec<_> = valid.iter().map(entry).collect();
    let more = json!({"cni.dev/valid-attachments": valid});
    plain(scene, "GC", &merged(conf, &more))
}

#[test]
fn gc_releases_exactly_what_is_not_valid() {
    let scene = Scene::new();
    let conf = scene.subnets(&["10.1.0.0/24", "fd00::/64"]);
    for (plugin, who) in [(Ours, "a"), (HostLocal, "b"), (Ours, "c"), (HostLocal, "d")] {
        scene.add(plugin, who, &conf);
    }
    let second = call("ADD", "a", &conf).ifname("net1");
    succeeded(&scene.run(Ours, &second));
    scene.write("10.1.0.99", "old");
    scene.write("10.1.0.98", "older");
    let valid = [("a", "eth0"), ("b", "eth0"), ("c", "net1"), ("old", "eth0")];
    done(&gc(&scene, &conf, &valid));
    let owners: BTreeSet<String> = scene.leases().into_values().collect();
    let kept = ["a\r\neth0", "b\r\neth0", "old"].map(str::to_owned);
    assert_eq!(owners, BTreeSet::from(kept));
    assert_eq!(scene.leases().len(), 5);
    done(&gc(&scene, &conf, &[]));
    assert!(scene.leases().is_empty());
}

#[test]
fn gc_covers_a_node_that_restarts_without_another_boot_id() {
    let scene = Scene::new();
    let conf = scene.subnets(&["10.1.0.0/29"]);
    for number in 0..5 {
        scene.add(Ours, &format!("c{number}"), &conf);
    }
    scene.refused("ADD", "new", &conf, 110);
    done(&gc(&scene, &conf, &[("c3", "eth0")]));
    for number in 0..4 {
        scene.add(Ours, &format!("new{number}"), &conf);
    }
    assert_eq!(scene.leases_of("c3").len(), 1);
}

#[test]
fn gc_where_there_is_no_store_makes_none() {
    let scene = Scene::new();
    let conf = scene.subnets(&["10.1.0.0/24"]);
    done(&gc(&scene, &conf, &[]));
    scene.del(Ours, "a", &conf);
    assert!(scene.files().is_empty());
}

#[rstest]
#[case::no_list(json!("all"))]
#[case::no_attachments(json!([{"ifname": "eth0"}]))]
fn gc_with_a_wrong_list_releases_nothing(#[case] list: Value) {
    let scene = Scene::new();
    let conf = scene.subnets(&["10.1.0.0/24"]);
    scene.add(Ours, "a", &conf);
    let wrong = merged(&conf, &json!({"cni.dev/valid-attachments": list}));
    refused(&plain(&scene, "GC", &wrong), 7);
    assert_eq!(scene.leases().len(), 1);
}

#[test]
fn status_of_a_store_that_works_is_well_even_if_it_is_full() {
    let scene = Scene::new();
    let conf = scene.subnets(&["10.1.0.0/30"]);
    done(&plain(&scene, "STATUS", &conf));
    scene.add(Ours, "a", &conf);
    let outcome = plain(&scene, "STATUS", &conf);
    done(&outcome);
    assert_eq!(outcome.stdout, "");
}

#[test]
fn a_strict_status_tells_when_no_address_is_left() {
    let scene = Scene::new();
    let conf = scene.conf(&json!({
        "ranges": [[{"subnet": "10.1.0.0/24"}], [{"subnet": "fd00::/126"}]],
        "status_strict": true,
    }));
    for who in ["a", "b"] {
        done(&plain(&scene, "STATUS", &conf));
        scene.add(Ours, who, &conf);
    }
    let message = refused(&plain(&scene, "STATUS", &conf), 50);
    for word in ["fd00::/126", "2 of 2"] {
        assert!(message.contains(word), "{message}");
    }
    scene.del(HostLocal, "a", &conf);
    done(&plain(&scene, "STATUS", &conf));
}

#[rstest]
#[case::a_wrong_range(json!({"subnet": "10.1.0.0/31"}))]
#[case::no_range(json!({}))]
#[case::a_wrong_strategy(json!({"subnet": "10.1.0.0/24", "allocation_strategy": "best"}))]
fn status_tells_of_a_configuration_that_no_add_would_accept(#[case] ipam: Value) {
    let scene = Scene::new();
    refused(&plain(&scene, "STATUS", &scene.conf(&ipam)), 7);
}

#[rstest]
#[case::the_truth(&["10.1.0.2/24", "fd00::2/64"], true)]
#[case::half_of_it(&["10.1.0.2/24"], true)]
#[case::and_another_plugins_address(&["10.1.0.2/24", "192.0.2.1/24"], true)]
#[case::another_address(&["10.1.0.3/24"], false)]
#[case::one_of_two(&["10.1.0.2/24", "fd00::3/64"], false)]
fn check_compares_with_what_was_answered(#[case] ips: &[&str], #[case] is_right: bool) {
    let scene = Scene::new();
    let conf = scene.subnets(&["10.1.0.0/24", "fd00::/64"]);
    for who in ["a", "b"] {
        scene.add(Ours, who, &conf);
    }
    let ips: Vec<_> = ips.iter().map(|ip| json!({"address": ip})).collect();
    let previous = json!({"prevResult": {"cniVersion": "1.1.0", "ips": ips}});
    let outcome = scene.ask(Ours, "CHECK", "a", &merged(&conf, &previous));
    if is_right {
        done(&outcome);
        assert_eq!(outcome.stdout, "");
    } else {
        let message = refused(&outcome, 112);
        assert!(message.contains("container a interface eth0"), "{message}");
        assert!(
            message.contains(":3") || message.contains(".3"),
            "{message}"
        );
    }
}

#[test]
fn check_tells_when_a_file_is_gone() {
    let scene = Scene::new();
    let conf = scene.subnets(&["10.1.0.0/24", "fd00::/64"]);
    let result = succeeded(&scene.ask(Ours, "ADD", "a", &conf));
    let known = merged(&conf, &json!({"prevResult": result}));
    done(&scene.ask(Ours, "CHECK", "a", &known));
    std::fs::remove_file(scene.file("fd00::2")).unwrap();
    let message = scene.refused("CHECK", "a", &known, 112);
    assert!(message.contains("fd00::2"), "{message}");
}

#[test]
fn version_is_answered_without_anything_else() {
    let scene = Scene::new();
    let conf = json!({"cniVersion": "1.0.0"});
    let answer = succeeded(&plain(&scene, "VERSION", &conf));
    assert_eq!(answer["cniVersion"], "1.0.0");
    let supported = answer["supportedVersions"].as_array().unwrap();
    for version in [
        "0.1.0", "0.2.0", "0.3.0", "0.3.1", "0.4.0", "1.0.0", "1.1.0",
    ] {
        assert!(supported.contains(&json!(version)), "{answer}");
    }
}

#[test]
fn del_of_what_never_was_succeeds_again_and_again() {
    let scene = Scene::new();
    let conf = scene.subnets(&["10.1.0.0/24"]);
    scene.add(Ours, "a", &conf);
    let before = scene.files();
    for _ in 0..3 {
        let outcome = scene.ask(Ours, "DEL", "b", &conf);
        done(&outcome);
        assert_eq!(outcome.stdout, "");
    }
    assert_eq!(scene.files(), before);
    // Without a namespace, as after a reboot.
    let del = Call::new("DEL").container_id("a").ifname("eth0");
    done(&scene.run(Ours, &del.path("/nowhere").conf(&conf)));
    assert!(scene.leases().is_empty());
}
