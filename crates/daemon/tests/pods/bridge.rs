//! Pods of bridge mode: a record by us, everything else by the reference plugins.

use lab::Netns;

use crate::agent::Step;
use crate::scene::{HOST_LOCAL_DIR, Scene, bridge, looks, one};

#[test]
fn a_bridged_pod_whose_namespace_went_is_collected_with_its_lease() {
    let scene = Scene::used(&bridge());
    let (_neighbour, _) = scene.attached("neighbour", &bridge());
    let before = scene.snapshot();
    let (pod, address) = scene.attached("p", &bridge());
    assert!(scene.node.has(format!("{HOST_LOCAL_DIR}/{address}")));
    pod.delete().unwrap();
    assert_eq!(scene.collected(looks()), [one("state", "p", "Died")]);
    scene.node.assert_unchanged(&before);
}

#[test]
fn bridged_pods_that_live_are_left_alone_and_known() {
    let scene = Scene::used(&bridge());
    let (pod, address) = scene.attached("p", &bridge());
    scene.assert_left_alone();
    assert_eq!(pod.links().unwrap(), ["eth0"]);
    let reports = scene.agent(vec![Step::Resync, Step::Tell]);
    let (container, state, ips, link, mac) = &reports[1].known[0];
    assert_eq!(
        (container.as_str(), state.as_str(), ips.as_str()),
        ("p", "Attached", address.as_str())
    );
    assert!(link.starts_with("veth"), "{link}");
    assert!(!mac.is_empty());
    assert_eq!(reports[1].differences, [""; 0]);
    assert_eq!(reports[1].links, [], "not ours to restore");
}

#[test]
fn another_namespace_at_the_same_path_is_no_sign_of_life_and_is_not_touched() {
    let scene = Scene::used(&bridge());
    let before = scene.snapshot();
    let (pod, _) = scene.attached("p", &bridge());
    // The old one lives on elsewhere, so that its number is not given to the new one.
    scene.shell("touch /run/aside && mount --bind /run/netns/p /run/aside");
    pod.delete().unwrap();
    let other = scene.pod("p");
    other
        .run(["ip", "link", "add", "eth0", "type", "bridge"])
        .unwrap();
    assert_eq!(scene.collected(looks()), [one("state", "p", "Died")]);
    assert_eq!(other.links().unwrap(), ["eth0"]);
    scene.shell("umount /run/aside");
    scene.node.assert_unchanged(&before);
}
