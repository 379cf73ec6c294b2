//! Changes of the files by others are repaired within a second.

use std::time::{Duration, Instant};

use lab::{Netns, Running, eventually};
use rstest::rstest;
use serde_json::json;

use crate::controller::Kept;
use crate::fixture::{CONF_DIR, CniConfNode, OTHER};

/// The test's timeout; the measured time is compared with a second.
const LONG: Duration = Duration::from_secs(10);

#[rstest]
#[case::edited("echo '{}' >/etc/cni/net.d/10-headcni.conflist")]
#[case::edited_in_place("sed -i s/1280/1500/ /etc/cni/net.d/10-headcni.conflist")]
#[case::deleted("rm /etc/cni/net.d/10-headcni.conflist")]
#[case::renamed("mv /etc/cni/net.d/10-headcni.conflist /etc/cni/net.d/10-headcni.conflist.bak")]
#[case::opened_for_all("chmod 666 /etc/cni/net.d/10-headcni.conflist")]
#[case::given_away("chown 1234 /etc/cni/net.d/10-headcni.conflist")]
#[case::linked("ln -sf /etc/hostname /etc/cni/net.d/10-headcni.conflist")]
#[case::replaced("echo x >/etc/cni/y; mv /etc/cni/y /etc/cni/net.d/10-headcni.conflist")]
#[case::all_deleted("rm -r /etc/cni/net.d")]
#[case::all_above_deleted("rm -r /etc/cni")]
#[case::moved_away("mv /etc/cni /etc/cni.away")]
#[case::deleted_and_made("rm -r /etc/cni; mkdir -p /etc/cni/net.d")]
#[case::subnets_edited("echo HEADCNI_MTU=9000 >>/run/headcni/subnet.env")]
#[case::subnets_deleted("rm /run/headcni/subnet.env")]
#[case::run_deleted("rm -r /run/headcni")]
#[case::copy_deleted("rm /var/lib/headcni/subnet.env")]
#[case::state_deleted("rm -r /var/lib/headcni")]
fn damaged_files_are_restored_within_a_second(#[case] harm: &str) {
    let fixture = CniConfNode::new();
    let desired = fixture.desired(&json!({}));
    let kept = Kept::new(desired.clone());
    // Twice, because the watches must be restored as well.
    for _ in 0..2 {
        fixture.assert_in_place(&desired);
        let before = kept.repairs();
        // `rm` may fail if the file is restored meanwhile.
        fixture.node.attempt(["sh", "-c", harm]).unwrap();
        let start = Instant::now();
        let repaired = || (kept.repairs() > before).then_some(());
        eventually(LONG, "a repair", repaired).unwrap();
        let whole = || fixture.fault(&desired).is_none().then_some(());
        eventually(LONG, "all repaired", whole).unwrap();
        assert!(
            start.elapsed() < Duration::from_secs(1),
            "{:?}",
            start.elapsed()
        );
        fixture.shell("rm -rf /etc/cni.away");
    }
    let holds = || kept.state().is_true().then_some(());
    eventually(LONG, "the condition", holds).unwrap();
}

#[rstest]
#[case::written("cat >/etc/cni/net.d/05-late.conflist")]
#[case::moved_in("cat >/etc/cni/tmp; mv /etc/cni/tmp /etc/cni/net.d/05-late.conflist")]
#[case::linked("cat >/etc/cni/tmp; ln /etc/cni/tmp /etc/cni/net.d/05-late.conflist")]
fn a_new_conflist_of_another_cni_is_renamed_within_a_second(#[case] write: &str) {
    let fixture = CniConfNode::new();
    let _kept = Kept::new(fixture.desired(&json!({})));
    fixture.shell(&format!("echo '{OTHER}' | ({write})"));
    let start = Instant::now();
    let aside = format!("{CONF_DIR}/05-late.conflist.headcni-aside");
    eventually(LONG, "set aside", || fixture.node.has(&aside).then_some(())).unwrap();
    assert!(
        start.elapsed() < Duration::from_secs(1),
        "{:?}",
        start.elapsed()
    );
    assert!(!fixture.node.has(format!("{CONF_DIR}/05-late.conflist")));
    assert_eq!(fixture.node.read(&aside).unwrap().trim(), OTHER);
}

#[test]
fn our_own_writes_and_unrelated_files_trigger_no_reconcile() {
    let fixture = CniConfNode::new();
    let kept = Kept::new(fixture.desired(&json!({})));
    kept.rest();
    let before = kept.passes();
    fixture.shell(
        "touch /etc/cni/net.d/notes /etc/cni/net.d/.headcni-x.new /etc/x /run/headcni/events.spool
         mkdir /etc/cni/net.d/multus.d; touch /var/lib/headcni/else /run/y; rm /etc/x /run/y",
    );
    assert!(
        !kept.exceeds(0, Duration::from_millis(500)),
        "woken for nothing"
    );
    assert_eq!(kept.passes(), before);
}

#[test]
fn a_failure_is_retried_with_backoff_until_its_cause_is_gone() {
    let fixture = CniConfNode::new();
    fixture.shell("mkdir -p /etc/cni/net.d/10-headcni.conflist");
    let desired = fixture.desired(&json!({}));
    let kept = Kept::new(desired.clone());
    let failing = || (!kept.state().is_true()).then(|| kept.state().message);
    let message = eventually(LONG, "failure", || {
        failing().filter(|text| text.contains("remove"))
    });
    assert!(message.unwrap().contains("10-headcni.conflist"));
    // At once because of its own writes, then after 1 and 2 seconds.
    assert!(
        !kept.exceeds(4, Duration::from_secs(4)),
        "tried all the time"
    );
    fixture.shell("rmdir /etc/cni/net.d/10-headcni.conflist");
    let start = Instant::now();
    eventually(LONG, "recovery", || kept.state().is_true().then_some(())).unwrap();
    assert!(
        start.elapsed() < Duration::from_secs(1),
        "{:?}",
        start.elapsed()
    );
    fixture.assert_in_place(&desired);
}

#[test]
fn a_conf_dir_that_is_mounted_over_is_detected() {
    let fixture = CniConfNode::new();
    let desired = fixture.desired(&json!({}));
    let kept = Kept::new(desired.clone());
    kept.rest();
    let mut busy = fixture.node.command("sh");
    busy.args(["-c", "while :; do : >/etc/busy; rm /etc/busy; done"]);
    let _busy = Running::spawn(&mut busy, b"").unwrap();
    fixture.shell("mount -t tmpfs tmpfs /etc/cni/net.d");
    // inotify does not report mounts: it is found when watches are renewed.
    let whole = || fixture.fault(&desired).is_none().then_some(());
    eventually(Duration::from_secs(40), "the new directory", whole).unwrap();
    fixture.shell("umount /etc/cni/net.d; rm /etc/cni/net.d/10-headcni.conflist");
    eventually(LONG, "the old directory", whole).unwrap();
    assert!(kept.state().is_true());
}

#[rstest]
#[case::no_instance_left("inject=inotify_init1:error=EMFILE:when=1")]
#[case::no_watch_left("inject=inotify_add_watch:error=ENOSPC:when=1")]
fn failed_inotify_calls_are_retried(#[case] injection: &str) {
    let fixture = CniConfNode::ready();
    let start = Instant::now();
    let output = fixture.watch_inside(injection);
    assert!(output.status.success(), "{output:?}");
    assert!(start.elapsed() > Duration::from_secs(9), "it did not wait");
    let trace = fixture.node.read("/run/trace").unwrap();
    assert_eq!(trace.matches("inotify_init1(").count(), 2, "{trace}");
}
