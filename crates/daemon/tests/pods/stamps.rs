//! A DEL that is for one state of a record does nothing to another.

use lab::Netns;

use crate::scene::{Scene, call, native};

#[test]
fn a_del_for_a_record_that_has_changed_is_refused_and_changes_nothing() {
    let scene = Scene::used(&native());
    let (pod, address) = scene.attached("p", &native());
    let before = scene.snapshot();
    let del = call("DEL", &native()).pod(&pod);
    let outcome = scene.run(&del.clone().env("HEADCNI_RECORD_STAMP", "1:2:3.4"));
    assert_eq!(outcome.err_code(), Some(11), "{outcome:?}");
    assert!(outcome.err_msg().contains("container p interface eth0"));
    scene.node.assert_unchanged(&before);
    scene.node.ping(&address).unwrap();

    scene.run(&del).ok().unwrap();
    let before = scene.snapshot();
    let late = del.env("HEADCNI_RECORD_STAMP", "1:2:3.4");
    assert_eq!(scene.run(&late).err_code(), Some(11));
    scene.node.assert_unchanged(&before);
}
