//! What can't be collected stays, is told, and is tried again.

use crate::agent::{GRACE, INTERVAL, Step};
use crate::scene::{STATE_DIR, Scene, bridge, looks, one};

#[test]
fn a_del_that_fails_is_told_and_tried_again_when_it_has_rested() {
    let scene = Scene::used(&bridge());
    let before = scene.snapshot();
    let (pod, _) = scene.attached("p", &bridge());
    pod.delete().unwrap();
    let (broken, mended) = (
        "mv /opt/cni/bin/bridge /opt/cni/bin/elsewhere",
        "mv /opt/cni/bin/elsewhere /opt/cni/bin/bridge",
    );
    let due = GRACE + 1;
    let reports = scene.agent(vec![
        Step::Shell(broken.to_owned()),
        Step::pass(0),
        Step::pass(due),
        Step::Shell(mended.to_owned()),
        // It rests.
        Step::pass(due + INTERVAL - 1),
        Step::pass(due + INTERVAL),
    ]);
    let [trouble] = &reports[2].troubles[..] else {
        panic!("{reports:?}")
    };
    for part in ["container p interface eth0", "bridge", "CNI_PATH"] {
        assert!(trouble.contains(part), "{trouble}");
    }
    assert_eq!(reports[2].left[3], 1);
    assert_eq!((reports[4].collected.len(), reports[4].left[3]), (0, 1));
    assert_eq!(reports[5].collected, [one("state", "p", "Died")]);
    scene.node.assert_unchanged(&before);
}

#[test]
fn a_half_made_pod_is_undone_by_its_record_and_by_nothing_else() {
    let scene = Scene::used(&bridge());
    let before = scene.snapshot();
    let (pod, _) = scene.attached("p", &bridge());
    let record = scene.record("p").unwrap().to_string();
    let started = record.replace("\"done\"", "\"started\"");
    let path = format!("{STATE_DIR}/p@eth0.json");
    scene.node.write(path, started).unwrap();
    pod.delete().unwrap();
    scene.shell("mv /opt/cni/bin/bridge /opt/cni/bin/elsewhere");
    let reports = scene.agent(looks());
    assert_eq!(reports[1].troubles.len(), 1, "{reports:?}");
    assert_eq!(reports[1].collected, []);
    assert!(scene.has_record("p"), "what it tells of is there");

    scene.shell("mv /opt/cni/bin/elsewhere /opt/cni/bin/bridge");
    assert_eq!(scene.collected(looks()), [one("state", "p", "HalfMade")]);
    scene.node.assert_unchanged(&before);
}
