//! A program that overwrites the conflist repeatedly costs little, and loses in the end.

use std::time::Duration;

use lab::{Netns, Running, eventually};
use serde_json::json;

use crate::controller::Kept;
use crate::fixture::CniConfNode;

#[test]
fn repairs_of_an_overwritten_conflist_are_rate_limited() {
    let fixture = CniConfNode::new();
    let desired = fixture.desired(&json!({}));
    let kept = Kept::new(desired.clone());
    let mut other = fixture.node.command("sh");
    other.args([
        "-c",
        "while :; do echo '{}' >/etc/cni/net.d/10-headcni.conflist; done",
    ]);
    let other = Running::spawn(&mut other, b"").unwrap();
    let fought = || (kept.repairs() > 8).then_some(());
    eventually(Duration::from_secs(20), "a fight", fought).unwrap();
    // A burst of ten, then one every few seconds.
    assert!(
        !kept.exceeds(8, Duration::from_secs(5)),
        "as often as the other one"
    );
    drop(other);
    let whole = || fixture.fault(&desired).is_none().then_some(());
    eventually(Duration::from_secs(10), "peace", whole).unwrap();
}

#[test]
fn a_conflist_that_reappears_repeatedly_leaves_one_copy() {
    let fixture = CniConfNode::new();
    let kept = Kept::new(fixture.desired(&json!({})));
    for round in 1..=5 {
        fixture.shell("echo '{\"name\":\"x\"}' >/etc/cni/net.d/05-late.conf");
        let gone = || (!fixture.node.has("/etc/cni/net.d/05-late.conf")).then_some(());
        eventually(Duration::from_secs(10), &format!("round {round}"), gone).unwrap();
    }
    let expected = ["05-late.conf.headcni-aside", "10-headcni.conflist"];
    // The file may have been renamed before it was written.
    let listed = fixture.list("/etc/cni/net.d");
    assert!(listed.len() <= 3, "{listed:?}");
    assert!(
        expected
            .iter()
            .all(|name| listed.iter().any(|found| found == name))
    );
    assert!(kept.state().is_true());
}
