//! A daemon in a container that does not see the netns of pods.

use lab::Netns;
use rstest::rstest;

use crate::ended_pods::await_links;
use crate::fixture::{PodsNode, bridge, daily_observations, native, observations, orphan};

/// Wrappers that hide netns from a process.
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
fn nothing_is_collected_while_netns_are_hidden(#[case] conf: serde_json::Value) {
    let fixture = PodsNode::used(&conf);
    let (_running, _) = fixture.attached("running", &conf);
    let (dead, _) = fixture.attached("dead", &conf);
    dead.delete().unwrap();
    await_links(&fixture, 1);
    let before = fixture.snapshot();
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
        for report in fixture.agent_under(&under, daily_observations()) {
            assert_eq!(report.collected, [], "{what}");
        }
        fixture.node.assert_unchanged(&before);
    }
    // With visible netns, the ended pod is collected.
    assert_eq!(
        fixture.collected(observations()),
        [orphan("state", "dead", "Died")]
    );
    assert!(fixture.has_record("running"));
}

#[test]
fn in_another_netns_no_pod_is_collected() {
    let fixture = PodsNode::used(&native());
    let (_pod, address) = fixture.attached("running", &native());
    let before = fixture.snapshot();
    let reports = fixture.agent_under(&["unshare", "--net"], daily_observations());
    for report in reports {
        assert_eq!(report.collected, []);
    }
    fixture.node.assert_unchanged(&before);
    fixture.node.ping(&address).unwrap();
}
