//! Leases without a record and a link.

use lab::Netns;
use rstest::rstest;

use crate::ended_pods::await_links;
use crate::fixture::{LEASE_DIR, PodsNode, STATE_DIR, native, observations, orphan};

/// A node with a running pod, and the lease of another one without record and link.
fn leaked() -> (PodsNode, String, lab::Snapshot) {
    let fixture = PodsNode::used(&native());
    let (_, address) = fixture.attached("running", &native());
    let before = fixture.snapshot();
    let (pod, leaked) = fixture.attached("leaked", &native());
    pod.delete().unwrap();
    await_links(&fixture, 1);
    fixture.shell(&format!("rm {STATE_DIR}/leaked@eth0.json"));
    assert!(fixture.node.has(format!("{LEASE_DIR}/{leaked}")));
    (fixture, address, before)
}

#[test]
fn a_lease_without_record_and_link_is_collected() {
    let (fixture, address, before) = leaked();
    let collected = fixture.collected(observations());
    assert_eq!(collected, [orphan("lease", "leaked", "Leaked")]);
    fixture.node.assert_unchanged(&before);
    assert!(fixture.node.has(format!("{LEASE_DIR}/{address}")));
    fixture.node.ping(&address).unwrap();
}

#[rstest]
// Pods of another plugin may be attached to it.
#[case::a_bridge_leads_there(
    "ip link add cni0 type bridge; ip link set cni0 up; ip address add 10.9.0.1/24 dev cni0"
)]
#[case::a_link_has_its_network(
    "ip link add cni0 type bridge; ip link set cni0 up
     ip address add 10.9.0.1/24 dev cni0 noprefixroute"
)]
#[case::a_route_leads_there(
    "ip link add other type bridge; ip link set other up
     for ip in $(cd /var/lib/cni/networks/headcni/net; ls -d 10.*); do
         ip route add $ip dev other metric 7; done"
)]
#[case::there_are_no_records("rm -r /var/lib/cni/headcni")]
#[case::records_cannot_be_read("rm -r /var/lib/cni/headcni/net; touch /var/lib/cni/headcni/net")]
#[case::it_names_no_interface(
    "cd /var/lib/cni/networks/headcni/net
     for file in $(grep -l leaked 10.* fd00*); do printf leaked > $file; done"
)]
fn a_lease_that_may_be_in_use_is_kept(#[case] doubt: &str) {
    let (fixture, _, _) = leaked();
    fixture.shell(doubt);
    let before = fixture.snapshot();
    for report in fixture.agent(crate::fixture::daily_observations()) {
        assert_eq!(report.collected, []);
    }
    fixture.node.assert_unchanged(&before);
}

#[test]
fn a_locked_store_is_not_collected() {
    let (fixture, _, before) = leaked();
    let lock = format!(
        "flock {LEASE_DIR}/lock sh -c 'touch /run/held; \
         while [ ! -e /run/go ]; do sleep 0.01; done'"
    );
    let mut command = fixture.node.command("sh");
    command.args(["-c", &lock]);
    let holder = lab::Running::spawn(&mut command, b"").unwrap();
    let is_held = || fixture.node.has("/run/held").then_some(());
    lab::eventually(lab::DEADLINE, "the store is held", is_held).unwrap();
    assert_eq!(fixture.collected(observations()), []);
    fixture.node.write("/run/go", "").unwrap();
    holder.wait(lab::DEADLINE).unwrap();
    assert_eq!(fixture.collected(observations()).len(), 1);
    fixture.node.assert_unchanged(&before);
}
