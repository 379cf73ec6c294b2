//! Records that outlived what they tell of: another boot, another namespace at the same path.

use std::fs;
use std::os::unix::fs::MetadataExt;

use lab::{Netns, Pod, eventually};
use rstest::rstest;
use serde_json::json;

use crate::scene::{Scene, call, succeeded, unmasqueraded_chain};

#[test]
fn an_add_after_a_reboot_undoes_the_attachment_of_the_earlier_boot() {
    let scene = Scene::used();
    let conf = unmasqueraded_chain();
    let before = scene.snapshot();
    let pod = scene.pod("p");
    scene.done("ADD", &conf, &pod);
    let mut record = scene.record("p").unwrap();
    assert_eq!(record["progress"], "done");
    record["boot"] = json!("00000000-0000-0000-0000-000000000000");
    scene.write_record("p", &record.to_string());
    pod.delete().unwrap();

    let pod = scene.pod("p");
    scene.done("ADD", &conf, &pod);
    assert_eq!(scene.leases().len(), 1, "the old lease went");
    assert_eq!(pod.links().unwrap(), ["eth0"]);
    assert_ne!(scene.record("p").unwrap()["boot"], record["boot"]);
    scene.done("DEL", &conf, &pod);
    scene.node.assert_unchanged(&before);
}

#[test]
fn a_record_of_an_earlier_boot_says_nothing_about_a_namespace_of_this_one() {
    let scene = Scene::used();
    let conf = unmasqueraded_chain();
    let before = scene.snapshot();
    let pod = scene.pod("p");
    scene.done("ADD", &conf, &pod);
    let mut record = scene.record("p").unwrap();
    record["boot"] = json!("00000000-0000-0000-0000-000000000000");
    scene.write_record("p", &record.to_string());
    succeeded(scene.collect(&conf));
    assert_eq!(
        pod.links().unwrap(),
        ["eth0"],
        "whose it is, nobody can tell"
    );
    assert_eq!(scene.leases(), [""; 0]);
    pod.run(["ip", "link", "delete", "eth0"]).unwrap();
    scene.node.assert_unchanged(&before);
}

fn inode(scene: &Scene, name: &str) -> u64 {
    fs::metadata(scene.node.path(format!("/run/netns/{name}")))
        .unwrap()
        .ino()
}

/// What the kernel does with the number of a namespace that is gone.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Number {
    /// The old namespace lives on, elsewhere.
    New,
    /// It is given to the next namespace, which is what Linux does as soon as it can.
    Reused,
}

/// Does an ADD for the pod `p`, deletes its namespace and makes another one at the same path.
fn path_reused(scene: &Scene, number: Number) -> Pod {
    let conf = unmasqueraded_chain();
    let attach = || {
        let pod = scene.pod("p");
        scene.done("ADD", &conf, &pod);
        (inode(scene, "p"), pod)
    };
    if number == Number::New {
        let (old, pod) = attach();
        set_aside(scene, "held");
        pod.delete().unwrap();
        let pod = scene.pod("p");
        assert_ne!(inode(scene, "p"), old);
        return pod;
    }
    // The kernel frees the number in its own time, and gives it to whoever comes first, which may
    // be another test: then from the beginning.
    let found = || {
        let (old, pod) = attach();
        pod.delete().unwrap();
        for n in 0..20 {
            let pod = scene.pod("p");
            if inode(scene, "p") == old {
                return Some(pod);
            }
            set_aside(scene, &format!("aside{n}"));
            pod.delete().unwrap();
        }
        for n in 0..20 {
            scene
                .node
                .run(["ip", "netns", "delete", &format!("aside{n}")])
                .unwrap();
        }
        let del = call("DEL", &conf).container_id("p").ifname("eth0");
        succeeded(scene.run(&del));
        None
    };
    eventually(
        lab::DEADLINE,
        "a namespace with the number of the old one",
        found,
    )
    .unwrap()
}

/// Keeps the namespace of the pod `p` alive under another name.
fn set_aside(scene: &Scene, name: &str) {
    let command = format!("touch {name} && mount --bind p {name}");
    scene
        .node
        .run(["sh", "-c", &format!("cd /run/netns && {command}")])
        .unwrap();
}

#[rstest]
fn gc_leaves_the_interface_of_another_namespace_alone(
    #[values(Number::New, Number::Reused)] number: Number,
) {
    let scene = Scene::used();
    let other = path_reused(&scene, number);
    other
        .run(["ip", "link", "add", "eth0", "type", "bridge"])
        .unwrap();
    succeeded(scene.collect(&unmasqueraded_chain()));
    assert_eq!(other.links().unwrap(), ["eth0"]);
    assert_eq!(scene.leases(), [""; 0]);
    assert!(scene.record("p").is_none());
}

#[rstest]
fn an_add_to_another_namespace_undoes_what_was_in_the_old_one(
    #[values(Number::New, Number::Reused)] number: Number,
) {
    // As podman does: same container, same path, no DEL in between.
    let scene = Scene::used();
    let other = path_reused(&scene, number);
    let conf = unmasqueraded_chain();
    scene.done("ADD", &conf, &other);
    assert_eq!(other.links().unwrap(), ["eth0"]);
    assert_eq!(scene.leases().len(), 1);
    scene.done("DEL", &conf, &other);
    assert_eq!(scene.leases(), [""; 0]);
}

#[rstest]
fn del_leaves_the_interface_of_another_namespace_alone(
    #[values(Number::New, Number::Reused)] number: Number,
) {
    // As libcni's garbage collection does: it remembers the path, not the namespace.
    let scene = Scene::used();
    let other = path_reused(&scene, number);
    other
        .run(["ip", "link", "add", "eth0", "type", "bridge"])
        .unwrap();
    let conf = unmasqueraded_chain();
    succeeded(scene.run(&call("DEL", &conf).pod(&other)));
    assert_eq!(other.links().unwrap(), ["eth0"]);
    assert_eq!(scene.leases(), [""; 0]);
    assert!(scene.record("p").is_none());
}
