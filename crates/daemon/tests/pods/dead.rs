//! Pods that end without a DEL.

use lab::Netns;

use crate::agent::{GRACE, INTERVAL, Step};
use crate::scene::{STATE_DIR, Scene, looks, native, one, with_port};

#[test]
fn a_pod_whose_namespace_went_is_collected_and_its_neighbour_is_not() {
    let conf = with_port(8080);
    let scene = Scene::used(&conf);
    let (neighbour, address) = scene.attached("neighbour", &native());
    let before = scene.snapshot();
    let (pod, _) = scene.attached("p", &conf);
    pod.delete().unwrap();
    wait_for_link(&scene, 1);

    assert_eq!(scene.collected(looks()), [one("state", "p", "Died")]);
    scene.node.assert_unchanged(&before);
    scene.node.ping(&address).unwrap();
    scene.done("DEL", &native(), &neighbour);
}

#[test]
fn a_left_over_waits_for_its_time_and_is_counted_until_then() {
    let scene = Scene::used(&native());
    let (pod, _) = scene.attached("p", &native());
    pod.delete().unwrap();
    wait_for_link(&scene, 0);
    let reports = scene.agent(vec![
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
fn an_old_left_over_is_collected_at_the_second_look() {
    let scene = Scene::used(&native());
    let (pod, _) = scene.attached("p", &native());
    pod.delete().unwrap();
    wait_for_link(&scene, 0);
    scene.shell(&format!("touch -d '1 hour ago' {STATE_DIR}/p@eth0.json"));
    let steps = vec![Step::pass(0), Step::pass(INTERVAL)];
    let reports = scene.agent(steps);
    assert_eq!(reports[0].collected, []);
    assert_eq!(reports[1].collected, [one("state", "p", "Died")]);
}

#[test]
fn a_pod_that_lives_without_its_link_or_without_its_path_is_left_alone() {
    let scene = Scene::used(&native());
    let _link_gone = scene.attached("link-gone", &native());
    let (path_gone, address) = scene.attached("path-gone", &native());
    let link = scene.record("link-gone").unwrap()["result"]["interfaces"][0]["name"].clone();
    scene.shell(&format!("ip link delete {}", link.as_str().unwrap()));
    // A process keeps the namespace alive when its name is gone.
    scene.shell("touch /run/kept && mount --bind /run/netns/path-gone /run/kept");
    path_gone.delete().unwrap();
    scene.assert_left_alone();
    assert!(scene.has_record("link-gone") && scene.has_record("path-gone"));
    scene.node.ping(&address).unwrap();
}

#[test]
fn a_pod_that_comes_back_in_time_is_left_alone() {
    let scene = Scene::used(&native());
    let (pod, _) = scene.attached("p", &native());
    pod.delete().unwrap();
    wait_for_link(&scene, 0);
    // As podman does: the same container in a new namespace, without a DEL.
    scene.node.write("/run/conf", native().to_string()).unwrap();
    let again = "ip netns add p
        CNI_COMMAND=ADD CNI_CONTAINERID=p CNI_NETNS=/run/netns/p CNI_IFNAME=eth0 \
        CNI_PATH=/opt/cni/bin /opt/cni/bin/headcni </run/conf >/dev/null";
    let reports = scene.agent(vec![
        Step::pass(0),
        Step::Shell(again.to_owned()),
        Step::pass(GRACE + 1),
        Step::pass(2 * GRACE + 2),
    ]);
    assert_eq!(reports[0].left[3], 1);
    for report in &reports[2..] {
        assert_eq!((report.collected.len(), report.left[3]), (0, 0));
    }
    assert!(scene.has_record("p"));
}

fn is_ours(link: &str) -> bool {
    link.starts_with("hc") && link.len() == 13
}

/// The kernel takes the links of a deleted namespace away in its own time.
pub(crate) fn wait_for_link(scene: &Scene, count: usize) {
    let is_so = || {
        let links = scene.node.links().unwrap();
        let is_pods = |link: &&String| link.starts_with("veth") || is_ours(link);
        (links.iter().filter(is_pods).count() == count).then_some(())
    };
    lab::eventually(lab::DEADLINE, "the link goes", is_so).unwrap();
}
