//! A DEL for one version of a record does not apply to another.

use lab::Netns;

use crate::fixture::{PodsNode, call, native};

#[test]
fn a_del_with_an_outdated_stamp_is_refused() {
    let fixture = PodsNode::used(&native());
    let (pod, address) = fixture.attached("p", &native());
    let before = fixture.snapshot();
    let del = call("DEL", &native()).pod(&pod);
    let outcome = fixture.run(&del.clone().env("HEADCNI_RECORD_STAMP", "1:2:3.4"));
    assert_eq!(outcome.err_code(), Some(11), "{outcome:?}");
    assert!(outcome.err_msg().contains("container p interface eth0"));
    fixture.node.assert_unchanged(&before);
    fixture.node.ping(&address).unwrap();

    fixture.run(&del).ok().unwrap();
    let before = fixture.snapshot();
    let late = del.env("HEADCNI_RECORD_STAMP", "1:2:3.4");
    assert_eq!(fixture.run(&late).err_code(), Some(11));
    fixture.node.assert_unchanged(&before);
}
