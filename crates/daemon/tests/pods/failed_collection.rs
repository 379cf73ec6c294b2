//! A failed collection is reported and retried.

use crate::agent::{GRACE, INTERVAL, Step};
use crate::fixture::{PodsNode, STATE_DIR, bridge, observations, orphan};

#[test]
fn a_failed_del_is_reported_and_retried_after_an_interval() {
    let fixture = PodsNode::used(&bridge());
    let before = fixture.snapshot();
    let (pod, _) = fixture.attached("p", &bridge());
    pod.delete().unwrap();
    let (broken, mended) = (
        "mv /opt/cni/bin/bridge /opt/cni/bin/elsewhere",
        "mv /opt/cni/bin/elsewhere /opt/cni/bin/bridge",
    );
    let due = GRACE + 1;
    let reports = fixture.agent(vec![
        Step::Shell(broken.to_owned()),
        Step::pass(0),
        Step::pass(due),
        Step::Shell(mended.to_owned()),
        // Before the retry is due.
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
    assert_eq!(reports[5].collected, [orphan("state", "p", "Died")]);
    fixture.node.assert_unchanged(&before);
}

#[test]
fn an_unfinished_add_is_undone_by_its_record_only() {
    let fixture = PodsNode::used(&bridge());
    let before = fixture.snapshot();
    let (pod, _) = fixture.attached("p", &bridge());
    let record = fixture.record("p").unwrap().to_string();
    let started = record.replace("\"done\"", "\"started\"");
    let path = format!("{STATE_DIR}/p@eth0.json");
    fixture.node.write(path, started).unwrap();
    pod.delete().unwrap();
    fixture.shell("mv /opt/cni/bin/bridge /opt/cni/bin/elsewhere");
    let reports = fixture.agent(observations());
    assert_eq!(reports[1].troubles.len(), 1, "{reports:?}");
    assert_eq!(reports[1].collected, []);
    assert!(fixture.has_record("p"), "its resources still exist");

    fixture.shell("mv /opt/cni/bin/elsewhere /opt/cni/bin/bridge");
    assert_eq!(
        fixture.collected(observations()),
        [orphan("state", "p", "HalfMade")]
    );
    fixture.node.assert_unchanged(&before);
}
