//! Leases that nothing else is left of.

use lab::Netns;
use rstest::rstest;

use crate::dead::wait_for_link;
use crate::scene::{LEASE_DIR, STATE_DIR, Scene, looks, native, one};

/// A node with a pod that lives, and with the lease of another one that left nothing else.
fn leaked() -> (Scene, String, lab::Snapshot) {
    let scene = Scene::used(&native());
    let (_, address) = scene.attached("lives", &native());
    let before = scene.snapshot();
    let (pod, leaked) = scene.attached("leaked", &native());
    pod.delete().unwrap();
    wait_for_link(&scene, 1);
    scene.shell(&format!("rm {STATE_DIR}/leaked@eth0.json"));
    assert!(scene.node.has(format!("{LEASE_DIR}/{leaked}")));
    (scene, address, before)
}

#[test]
fn a_lease_without_record_and_link_is_collected_and_the_others_are_not() {
    let (scene, address, before) = leaked();
    let collected = scene.collected(looks());
    assert_eq!(collected, [one("lease", "leaked", "Leaked")]);
    scene.node.assert_unchanged(&before);
    assert!(scene.node.has(format!("{LEASE_DIR}/{address}")));
    scene.node.ping(&address).unwrap();
}

#[rstest]
// Pods of the plugin that was here before ours hang on it.
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
fn in_doubt_a_lease_stays(#[case] doubt: &str) {
    let (scene, _, _) = leaked();
    scene.shell(doubt);
    let before = scene.snapshot();
    for report in scene.agent(crate::scene::many_looks()) {
        assert_eq!(report.collected, []);
    }
    scene.node.assert_unchanged(&before);
}

#[test]
fn a_store_that_somebody_holds_is_let_be() {
    let (scene, _, before) = leaked();
    let hold = format!(
        "flock {LEASE_DIR}/lock sh -c 'touch /run/held; \
         while [ ! -e /run/go ]; do sleep 0.01; done'"
    );
    let mut command = scene.node.command("sh");
    command.args(["-c", &hold]);
    let holder = lab::Running::spawn(&mut command, b"").unwrap();
    let is_held = || scene.node.has("/run/held").then_some(());
    lab::eventually(lab::DEADLINE, "the store is held", is_held).unwrap();
    assert_eq!(scene.collected(looks()), []);
    scene.node.write("/run/go", "").unwrap();
    holder.wait(lab::DEADLINE).unwrap();
    assert_eq!(scene.collected(looks()).len(), 1);
    scene.node.assert_unchanged(&before);
}
