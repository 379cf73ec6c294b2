//! Records and leases are deleted while pods run: pods lose nothing.

use lab::Netns;
use rstest::rstest;

use crate::agent::Step;
use crate::fixture::{LEASE_DIR, PodsNode, STATE_DIR, bridge, native};

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
fn running_pods_keep_their_links_and_leases(#[case] wipe: &str) {
    let fixture = PodsNode::used(&native());
    let pods = ["a", "b"].map(|name| fixture.attached(name, &native()));
    fixture.shell(wipe);
    let before = fixture.snapshot();
    for report in fixture.agent(crate::fixture::daily_observations()) {
        assert_eq!((report.collected, report.left[3]), (vec![], 0), "{wipe}");
    }
    fixture.node.assert_unchanged(&before);
    for (_, address) in &pods {
        fixture.node.ping(address).unwrap();
    }
}

#[test]
fn a_link_without_a_record_is_counted_and_kept() {
    let fixture = PodsNode::used(&native());
    let (_pod, address) = fixture.attached("a", &native());
    fixture.shell(&format!("rm {STATE_DIR}/a@eth0.json"));
    let reports = fixture.agent(vec![Step::pass(0), Step::Resync, Step::Report]);
    assert_eq!(reports[0].left, [0, 1, 0, 0]);
    let (container, state, ips, _, mac) = &reports[2].known[0];
    assert_eq!((container.as_str(), state.as_str()), ("a", "Attached"));
    assert!(ips.contains(&address), "{ips}");
    assert!(!mac.is_empty());
    assert_eq!(reports[2].differences, [""; 0]);
    assert_eq!(reports[2].links.len(), 1, "it can be restored");
}

#[test]
fn our_route_by_a_foreign_link_is_counted_and_kept() {
    let fixture = PodsNode::used(&native());
    fixture.shell(
        "ip link add other type bridge
        ip link set other up
        ip route add 10.9.0.77/32 dev other protocol 104",
    );
    let before = fixture.snapshot();
    let reports = fixture.agent(crate::fixture::daily_observations());
    for report in &reports {
        assert_eq!((report.left, report.collected.len()), ([0, 0, 1, 0], 0));
    }
    fixture.node.assert_unchanged(&before);
}

#[test]
fn bridged_pods_without_records_keep_their_leases() {
    let fixture = PodsNode::used(&bridge());
    let (pod, _) = fixture.attached("a", &bridge());
    fixture.shell("rm -r /var/lib/cni/headcni");
    fixture.assert_nothing_collected();
    assert_eq!(pod.links().unwrap(), ["eth0"]);
    assert!(fixture.node.has("/var/lib/cni/networks/net/10.9.0.3"));
    assert!(!fixture.node.has(LEASE_DIR));
}
