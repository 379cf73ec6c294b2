//! Somebody has wiped files while pods live: nothing is taken from them.

use lab::Netns;
use rstest::rstest;

use crate::agent::Step;
use crate::scene::{LEASE_DIR, STATE_DIR, Scene, bridge, native};

#[rstest]
#[case::records("rm -r /var/lib/cni/headcni")]
#[case::records_of_the_network("rm -r /var/lib/cni/headcni/net")]
#[case::one_record("rm /var/lib/cni/headcni/net/a@eth0.json")]
#[case::leases("rm -r /var/lib/cni/networks")]
#[case::lease_files("rm /var/lib/cni/networks/headcni/net/10.9.0.*")]
#[case::everything("rm -r /var/lib/cni")]
#[case::emptied_records("for file in /var/lib/cni/headcni/net/*; do : > $file; done")]
#[case::torn_records("for file in /var/lib/cni/headcni/net/*; do echo '{' > $file; done")]
#[case::the_path_of_records("rm -r /var/lib/cni/headcni; touch /var/lib/cni/headcni")]
fn pods_that_live_keep_what_they_have(#[case] wipe: &str) {
    let scene = Scene::used(&native());
    let pods = ["a", "b"].map(|name| scene.attached(name, &native()));
    scene.shell(wipe);
    let before = scene.snapshot();
    for report in scene.agent(crate::scene::many_looks()) {
        assert_eq!((report.collected, report.left[3]), (vec![], 0), "{wipe}");
    }
    scene.node.assert_unchanged(&before);
    for (_, address) in &pods {
        scene.node.ping(address).unwrap();
    }
}

#[test]
fn a_link_without_a_record_is_counted_and_stays() {
    let scene = Scene::used(&native());
    let (_pod, address) = scene.attached("a", &native());
    scene.shell(&format!("rm {STATE_DIR}/a@eth0.json"));
    let reports = scene.agent(vec![Step::pass(0), Step::Resync, Step::Tell]);
    assert_eq!(reports[0].left, [0, 1, 0, 0]);
    let (container, state, ips, _, mac) = &reports[2].known[0];
    assert_eq!((container.as_str(), state.as_str()), ("a", "Attached"));
    assert!(ips.contains(&address), "{ips}");
    assert!(!mac.is_empty());
    assert_eq!(reports[2].differences, [""; 0]);
    assert_eq!(reports[2].links.len(), 1, "it can be restored");
}

#[test]
fn a_route_of_ours_by_another_link_is_counted_and_stays() {
    let scene = Scene::used(&native());
    scene.shell(
        "ip link add other type bridge
        ip link set other up
        ip route add 10.9.0.77/32 dev other protocol 104",
    );
    let before = scene.snapshot();
    let reports = scene.agent(crate::scene::many_looks());
    for report in &reports {
        assert_eq!((report.left, report.collected.len()), ([0, 0, 1, 0], 0));
    }
    scene.node.assert_unchanged(&before);
}

#[test]
fn bridged_pods_without_records_keep_their_leases() {
    let scene = Scene::used(&bridge());
    let (pod, _) = scene.attached("a", &bridge());
    scene.shell("rm -r /var/lib/cni/headcni");
    scene.assert_left_alone();
    assert_eq!(pod.links().unwrap(), ["eth0"]);
    assert!(scene.node.has("/var/lib/cni/networks/net/10.9.0.3"));
    assert!(!scene.node.has(LEASE_DIR));
}
