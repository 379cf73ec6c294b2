//! Somebody who rewrites the file again and again costs us little, and loses in the end.

use std::time::Duration;

use lab::{Netns, Running, eventually};
use serde_json::json;

use crate::kept::Kept;
use crate::scene::Scene;

#[test]
fn a_fight_is_bounded_and_over_when_the_other_gives_up() {
    let scene = Scene::new();
    let desired = scene.desired(&json!({}));
    let kept = Kept::new(desired.clone());
    let mut other = scene.node.command("sh");
    other.args([
        "-c",
        "while :; do echo '{}' >/etc/cni/net.d/10-headcni.conflist; done",
    ]);
    let other = Running::spawn(&mut other, b"").unwrap();
    let fought = || (kept.repairs() > 8).then_some(());
    eventually(Duration::from_secs(20), "a fight", fought).unwrap();
    // Ten at once are let pass, then there is one in some seconds.
    assert!(
        !kept.exceeds(8, Duration::from_secs(5)),
        "as often as the other one"
    );
    drop(other);
    let whole = || scene.fault(&desired).is_none().then_some(());
    eventually(Duration::from_secs(10), "peace", whole).unwrap();
}

#[test]
fn a_configuration_that_is_dropped_again_and_again_takes_no_room() {
    let scene = Scene::new();
    let kept = Kept::new(scene.desired(&json!({})));
    for round in 1..=5 {
        scene.shell("echo '{\"name\":\"x\"}' >/etc/cni/net.d/05-late.conf");
        let gone = || (!scene.node.has("/etc/cni/net.d/05-late.conf")).then_some(());
        eventually(Duration::from_secs(10), &format!("round {round}"), gone).unwrap();
    }
    let expected = ["05-late.conf.headcni-aside", "10-headcni.conflist"];
    // An empty file may have been found before it was written.
    let listed = scene.list("/etc/cni/net.d");
    assert!(listed.len() <= 3, "{listed:?}");
    assert!(
        expected
            .iter()
            .all(|name| listed.iter().any(|found| found == name))
    );
    assert!(kept.state().holds);
}
