//! A DEL that failed for a real reason: it says so, does the rest, and can be tried again.

use lab::{Noop, tools};
use rstest::rstest;
use serde_json::json;

use crate::networks::{chain, has_port_rules, used_node, with};

const GOOD: &str = r#"echo $verb >> /run/faults-calls; echo '{"cniVersion":"1.1.0"}'"#;
const BAD: &str = r#"echo '{"code":77,"msg":"can not let go","details":"yet"}'; exit 1"#;

#[rstest]
#[case::fails(Some(BAD), 77, "third: can not let go")]
#[case::dies(Some("kill -9 $$"), 100, "signal: 9")]
#[case::hangs(Some("sleep 1000"), 101, "third")]
#[case::is_missing(None, 7, "third")]
fn a_member_that_fails_on_del_does_not_keep_the_others_from_theirs(
    #[case] body: Option<&str>,
    #[case] code: u64,
    #[case] part: &str,
) {
    let plugin = used_node();
    let pod = plugin.pod("p");
    let before = plugin.snapshot();
    let conf = chain(&[json!({ "type": "third" })]);
    let conf = with(conf, "delegate_timeout_seconds", json!(3));
    let pass = r#"echo '{"cniVersion":"1.1.0"}'"#;
    plugin.script("third", pass);
    plugin.succeed("ADD", &conf, &pod);
    match body {
        Some(body) => plugin.script("third", body),
        None => plugin.remove_script("third"),
    }
    for _ in 0..2 {
        let outcome = plugin.fail("DEL", &conf, &pod, code);
        assert!(outcome.err_msg().contains(part), "{outcome:?}");
        assert_eq!(plugin.leases(), [""; 0], "bridge was undone");
        assert!(!has_port_rules(&plugin), "portmap was undone");
        assert!(
            plugin.record("p").is_some(),
            "something remains, so does the record"
        );
    }
    plugin.script("third", GOOD);
    plugin.succeed("DEL", &conf, &pod);
    assert_eq!(plugin.node.read("/run/faults-calls").unwrap(), "DEL\n");
    plugin.succeed("DEL", &conf, &pod);
    std::fs::remove_file(plugin.node.path("/run/faults-calls")).unwrap();
    plugin.node.assert_unchanged(&before);
}

#[test]
fn the_first_member_can_fail_on_del_as_well() {
    let plugin = used_node();
    let pod = plugin.pod("p");
    let before = plugin.snapshot();
    let mut third = Noop::new().unwrap();
    third.pass_through().unwrap();
    let conf = chain(&[third.conf()]);
    plugin.succeed("ADD", &conf, &pod);
    plugin.script("bridge", "[ $verb = GC ] || exit 9");
    let outcome = plugin.fail("DEL", &conf, &pod, 100);
    assert!(outcome.err_msg().contains("\"bridge\""), "{outcome:?}");
    assert!(!has_port_rules(&plugin));
    assert_eq!(plugin.leases().len(), 1);
    assert_eq!(third.verbs().unwrap(), ["ADD", "DEL"]);

    third.reset().unwrap();
    // A garbage collection fails as well and keeps the record; then it succeeds.
    let outcome = plugin.gc(&conf, &[]);
    assert_eq!(outcome.err_code(), Some(100), "{outcome:?}");
    assert!(plugin.record("p").is_some());
    plugin.remove_script("bridge");
    let outcome = plugin.gc(&conf, &[]);
    assert!(outcome.status.success(), "{outcome:?}");
    plugin.node.assert_unchanged(&before);
}

#[test]
fn all_errors_of_a_del_are_told() {
    let plugin = used_node();
    let pod = plugin.pod("p");
    let before = plugin.snapshot();
    plugin.script("third", GOOD);
    let conf = chain(&[json!({ "type": "third" })]);
    plugin.succeed("ADD", &conf, &pod);
    plugin.script("third", BAD);
    plugin.script("portmap", "exit 9");
    let outcome = plugin.fail("DEL", &conf, &pod, 77);
    let details = outcome.err_details();
    assert!(
        details.contains("yet") && details.contains("portmap"),
        "{outcome:?}"
    );
    let real = tools::cni_plugin_dir().join("portmap");
    plugin.script("portmap", &format!("exec {}", real.display()));
    plugin.script("third", GOOD);
    plugin.succeed("DEL", &conf, &pod);
    std::fs::remove_file(plugin.node.path("/run/faults-calls")).unwrap();
    plugin.node.assert_unchanged(&before);
}
