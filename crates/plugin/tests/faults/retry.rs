//! A DEL that failed for a real reason: it says so, does the rest, and can be tried again.

use lab::{Noop, tools};
use rstest::rstest;
use serde_json::json;

use crate::scene::{Scene, chain, with};

const GOOD: &str = r#"echo $verb >> /run/faults-calls; echo '{"cniVersion":"1.1.0"}'"#;
const BAD: &str = r#"echo '{"code":77,"msg":"can not let go","details":"yet"}'; exit 1"#;

#[rstest]
#[case::fails(Some(BAD), 77, "third: can not let go")]
#[case::dies(Some("kill -9 $$"), 100, "signal: 9")]
#[case::hangs(Some("sleep 1000"), 101, "third")]
#[case::is_missing(None, 7, "third")]
fn a_member_that_fails_on_del_does_not_keep_the_others_from_theirs(
    #[case] body: Option<&str>,
    #[case] code: u32,
    #[case] part: &str,
) {
    let scene = Scene::used();
    let pod = scene.pod("p");
    let before = scene.snapshot();
    let conf = chain(&[json!({ "type": "third" })]);
    let conf = with(conf, "delegate_timeout_seconds", json!(3));
    let pass = r#"echo '{"cniVersion":"1.1.0"}'"#;
    scene.script("third", pass);
    scene.done("ADD", &conf, &pod);
    match body {
        Some(body) => scene.script("third", body),
        None => scene.remove_script("third"),
    }
    for _ in 0..2 {
        let outcome = scene.refused("DEL", &conf, &pod, code);
        assert!(outcome.err_msg().contains(part), "{outcome:?}");
        assert_eq!(scene.leases(), [""; 0], "bridge was undone");
        assert!(!scene.has_port_rules(), "portmap was undone");
        assert!(
            scene.record("p").is_some(),
            "something remains, so does the record"
        );
    }
    scene.script("third", GOOD);
    scene.done("DEL", &conf, &pod);
    assert_eq!(scene.node.read("/run/faults-calls").unwrap(), "DEL\n");
    scene.done("DEL", &conf, &pod);
    std::fs::remove_file(scene.node.path("/run/faults-calls")).unwrap();
    scene.node.assert_unchanged(&before);
}

#[test]
fn the_first_member_can_fail_on_del_as_well() {
    let scene = Scene::used();
    let pod = scene.pod("p");
    let before = scene.snapshot();
    let mut third = Noop::new().unwrap();
    third.pass_through().unwrap();
    let conf = chain(&[third.conf()]);
    scene.done("ADD", &conf, &pod);
    scene.script("bridge", "[ $verb = GC ] || exit 9");
    let outcome = scene.refused("DEL", &conf, &pod, 100);
    assert!(outcome.err_msg().contains("\"bridge\""), "{outcome:?}");
    assert!(!scene.has_port_rules());
    assert_eq!(scene.leases().len(), 1);
    assert_eq!(third.verbs().unwrap(), ["ADD", "DEL"]);

    third.reset().unwrap();
    // A garbage collection fails as well and keeps the record; then it succeeds.
    let outcome = scene.collect(&conf);
    assert_eq!(outcome.err_code(), Some(100), "{outcome:?}");
    assert!(scene.record("p").is_some());
    scene.remove_script("bridge");
    let outcome = scene.collect(&conf);
    assert!(outcome.status.success(), "{outcome:?}");
    scene.node.assert_unchanged(&before);
}

#[test]
fn all_errors_of_a_del_are_told() {
    let scene = Scene::used();
    let pod = scene.pod("p");
    let before = scene.snapshot();
    scene.script("third", GOOD);
    let conf = chain(&[json!({ "type": "third" })]);
    scene.done("ADD", &conf, &pod);
    scene.script("third", BAD);
    scene.script("portmap", "exit 9");
    let outcome = scene.refused("DEL", &conf, &pod, 77);
    let details = outcome.err_details();
    assert!(
        details.contains("yet") && details.contains("portmap"),
        "{outcome:?}"
    );
    let real = tools::cni_plugin_dir().join("portmap");
    scene.script("portmap", &format!("exec {}", real.display()));
    scene.script("third", GOOD);
    scene.done("DEL", &conf, &pod);
    std::fs::remove_file(scene.node.path("/run/faults-calls")).unwrap();
    scene.node.assert_unchanged(&before);
}
