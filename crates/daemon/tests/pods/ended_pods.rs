//! Pods that end without a DEL.

use lab::Netns;

use crate::agent::{GRACE, INTERVAL, Step};
use crate::fixture::{PodsNode, STATE_DIR, native, observations, orphan, with_port};

#[test]
fn a_pod_without_its_netns_is_collected_and_its_neighbour_is_not() {
    let conf = with_port(8080);
    let fixture = PodsNode::used(&conf);
    let (neighbour, address) = fixture.attached("neighbour", &native());
    let before = fixture.snapshot();
    let (pod, _) = fixture.attached("p", &conf);
    pod.delete().unwrap();
    await_links(&fixture, 1);

    assert_eq!(
        fixture.collected(observations()),
        [orphan("state", "p", "Died")]
    );
    fixture.node.assert_unchanged(&before);
    fixture.node.ping(&address).unwrap();
    fixture.call_ok("DEL", &native(), &neighbour);
}

#[test]
fn an_orphan_is_counted_and_kept_for_the_grace_period() {
    let fixture = PodsNode::used(&native());
    let (pod, _) = fixture.attached("p", &native());
    pod.delete().unwrap();
    await_links(&fixture, 0);
    let reports = fixture.agent(vec![
        Step::pass(0),
        Step::pass(INTERVAL),
        Step::pass(GRACE - 1),
        Step::pass(GRACE),
        Step::pass(GRACE + 1),
    ]);
    let left: Vec<usize> = reports.iter().map(|report| report.left[3]).collect();
    assert_eq!(left, [1, 1, 1, 0, 0]);
    let collected: Vec<usize> = reports
        .iter()
        .map(|report| report.collected.len())
        .collect();
    assert_eq!(collected, [0, 0, 0, 1, 0]);
}

#[test]
fn an_old_orphan_is_collected_at_the_second_observation() {
    let fixture = PodsNode::used(&native());
    let (pod, _) = fixture.attached("p", &native());
    pod.delete().unwrap();
    await_links(&fixture, 0);
    fixture.shell(&format!("touch -d '1 hour ago' {STATE_DIR}/p@eth0.json"));
    let steps = vec![Step::pass(0), Step::pass(INTERVAL)];
    let reports = fixture.agent(steps);
    assert_eq!(reports[0].collected, []);
    assert_eq!(reports[1].collected, [orphan("state", "p", "Died")]);
}

#[test]
fn a_running_pod_without_its_link_or_netns_path_is_kept() {
    let fixture = PodsNode::used(&native());
    let _link_gone = fixture.attached("link-gone", &native());
    let (path_gone, address) = fixture.attached("path-gone", &native());
    let link = fixture.record("link-gone").unwrap()["result"]["interfaces"][0]["name"].clone();
    fixture.shell(&format!("ip link delete {}", link.as_str().unwrap()));
    // A bind mount keeps the netns alive.
    fixture.shell("touch /run/kept && mount --bind /run/netns/path-gone /run/kept");
    path_gone.delete().unwrap();
    fixture.assert_nothing_collected();
    assert!(fixture.has_record("link-gone") && fixture.has_record("path-gone"));
    fixture.node.ping(&address).unwrap();
}

#[test]
fn a_container_that_is_added_again_in_time_is_kept() {
    let fixture = PodsNode::used(&native());
    let (pod, _) = fixture.attached("p", &native());
    pod.delete().unwrap();
    await_links(&fixture, 0);
    // As podman does: the same container in a new netns, without a DEL.
    fixture
        .node
        .write("/run/conf", native().to_string())
        .unwrap();
    let again = "ip netns add p
        CNI_COMMAND=ADD CNI_CONTAINERID=p CNI_NETNS=/run/netns/p CNI_IFNAME=eth0 \
        CNI_PATH=/opt/cni/bin /opt/cni/bin/headcni </run/conf >/dev/null";
    let reports = fixture.agent(vec![
        Step::pass(0),
        Step::Shell(again.to_owned()),
        Step::pass(GRACE + 1),
        Step::pass(2 * GRACE + 2),
    ]);
    assert_eq!(reports[0].left[3], 1);
    for report in &reports[2..] {
        assert_eq!((report.collected.len(), report.left[3]), (0, 0));
    }
    assert!(fixture.has_record("p"));
}

fn is_ours(link: &str) -> bool {
    link.starts_with("hc") && link.len() == 13
}

/// The kernel removes the links of a deleted netns asynchronously.
pub(crate) fn await_links(fixture: &PodsNode, count: usize) {
    let is_so = || {
        let links = fixture.node.links().unwrap();
        let is_pods = |link: &&String| link.starts_with("veth") || is_ours(link);
        (links.iter().filter(is_pods).count() == count).then_some(())
    };
    lab::eventually(lab::DEADLINE, "the link goes", is_so).unwrap();
}
