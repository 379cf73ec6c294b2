//! A daemon in a container that does not see the namespaces of pods.

use lab::Netns;
use rstest::rstest;

use crate::dead::wait_for_link;
use crate::scene::{Scene, bridge, looks, many_looks, native, one};

/// Programs that run what follows where namespaces can't be seen.
const ELSEWHERE: [(&str, &str); 3] = [
    ("an empty directory", "mount -t tmpfs tmpfs /run/netns"),
    (
        "the files that namespaces were mounted on",
        "for file in /run/netns/*; do umount -l $file; done; mount --make-private /run/netns",
    ),
    ("no directory", "mount -t tmpfs tmpfs /run"),
];

#[rstest]
#[case::native(native())]
#[case::bridge(bridge())]
fn where_namespaces_are_hidden_nothing_is_collected(#[case] conf: serde_json::Value) {
    let scene = Scene::used(&conf);
    let (_lives, _) = scene.attached("lives", &conf);
    let (dead, _) = scene.attached("dead", &conf);
    dead.delete().unwrap();
    wait_for_link(&scene, 1);
    let before = scene.snapshot();
    for (what, hide) in ELSEWHERE {
        let script = format!("{hide}; exec \"$@\"");
        let under = [
            "unshare",
            "--mount",
            "--propagation",
            "private",
            "sh",
            "-ec",
        ];
        let under: Vec<&str> = under.into_iter().chain([script.as_str(), "sh"]).collect();
        for report in scene.agent_under(&under, many_looks()) {
            assert_eq!(report.collected, [], "{what}");
        }
        scene.node.assert_unchanged(&before);
    }
    // Where they are seen, the one that is dead is.
    assert_eq!(scene.collected(looks()), [one("state", "dead", "Died")]);
    assert!(scene.has_record("lives"));
}

#[test]
fn without_the_nodes_network_no_pod_is_taken_for_dead() {
    let scene = Scene::used(&native());
    let (_pod, address) = scene.attached("lives", &native());
    let before = scene.snapshot();
    let reports = scene.agent_under(&["unshare", "--net"], many_looks());
    for report in reports {
        assert_eq!(report.collected, []);
    }
    scene.node.assert_unchanged(&before);
    scene.node.ping(&address).unwrap();
}
