//! Bridge mode: the record is ours, everything else is the reference plugins'.

use lab::Netns;

use crate::agent::Step;
use crate::fixture::{HOST_LOCAL_DIR, PodsNode, bridge, observations, orphan};

#[test]
fn a_bridged_pod_without_its_netns_is_collected_with_its_lease() {
    let fixture = PodsNode::used(&bridge());
    let (_neighbour, _) = fixture.attached("neighbour", &bridge());
    let before = fixture.snapshot();
    let (pod, address) = fixture.attached("p", &bridge());
    assert!(fixture.node.has(format!("{HOST_LOCAL_DIR}/{address}")));
    pod.delete().unwrap();
    assert_eq!(
        fixture.collected(observations()),
        [orphan("state", "p", "Died")]
    );
    fixture.node.assert_unchanged(&before);
}

#[test]
fn running_bridged_pods_are_kept_and_listed() {
    let fixture = PodsNode::used(&bridge());
    let (pod, address) = fixture.attached("p", &bridge());
    fixture.assert_nothing_collected();
    assert_eq!(pod.links().unwrap(), ["eth0"]);
    let reports = fixture.agent(vec![Step::Resync, Step::Report]);
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
fn another_netns_at_the_same_path_is_not_the_pod() {
    let fixture = PodsNode::used(&bridge());
    let before = fixture.snapshot();
    let (pod, _) = fixture.attached("p", &bridge());
    // The old netns stays alive, so that its inode is not reused.
    fixture.shell("touch /run/aside && mount --bind /run/netns/p /run/aside");
    pod.delete().unwrap();
    let other = fixture.pod("p");
    other
        .run(["ip", "link", "add", "eth0", "type", "bridge"])
        .unwrap();
    assert_eq!(
        fixture.collected(observations()),
        [orphan("state", "p", "Died")]
    );
    assert_eq!(other.links().unwrap(), ["eth0"]);
    fixture.shell("umount /run/aside");
    fixture.node.assert_unchanged(&before);
}
