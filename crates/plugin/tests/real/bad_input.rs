//! Bad input gets an error object with the right code and words, and changes nothing.

use lab::{Call, Node};
use rstest::rstest;
use serde_json::{Value, json};

use crate::calls::*;

/// Makes one call on a fresh node; it must fail with `code`, a message with all of `words`, and
/// no trace.
#[track_caller]
fn assert_refused(call: impl FnOnce(Call) -> Call, code: u64, words: &[&str]) {
    let node = node();
    let pod = node.pod("p").unwrap();
    let before = node.snapshot(DIRS).unwrap();
    let add = call(self::call("ADD", &delegating("1.1.0", json!({}))).pod(&pod));
    let outcome = run(&node, &add);
    let message = refused(&outcome, code);
    for word in words {
        assert!(message.contains(word), "no {word:?} in {message:?}");
    }
    assert!(message.len() < 2000, "too long to read: {message}");
    assert_eq!(lab::Netns::links(&pod).unwrap(), [""; 0]);
    node.assert_unchanged(&before);
}

/// An ADD with a good configuration but for these keys.
#[track_caller]
fn assert_conf_refused(more: Value, code: u64, words: &[&str]) {
    let conf = delegating("1.1.0", more);
    assert_refused(|call| call.conf(&conf), code, words);
}

#[test]
fn the_call_that_the_others_vary_is_good() {
    let node = node();
    let pod = node.pod("p").unwrap();
    ask("ADD", &delegating("1.1.0", json!({})), &pod)
        .ok()
        .unwrap();
}

#[rstest]
#[case::empty("", 6, "empty")]
#[case::blank(" \n\t ", 6, "empty")]
#[case::torn(r#"{"cniVersion": "1.1.0", "name": "ne"#, 6, "JSON")]
#[case::two_documents(r#"{"cniVersion":"1.1.0","name":"n"} {}"#, 6, "JSON")]
#[case::not_json("hello", 6, "JSON")]
#[case::a_list("[]", 6, "[]")]
#[case::a_number("42", 6, "42")]
#[case::null("null", 6, "null")]
fn bad_documents(#[case] stdin: &str, #[case] code: u64, #[case] word: &str) {
    assert_refused(|call| call.stdin(stdin), code, &["stdin", word]);
}

#[rstest]
#[case::deep("[".repeat(100_000), 6)]
#[case::not_utf8("{\"cniVersion\":\"1.1.0\",\"name\":\"\u{1}".to_owned(), 6)]
fn hostile_documents(#[case] stdin: String, #[case] code: u64) {
    assert_refused(|call| call.stdin(stdin), code, &["stdin"]);
}

#[test]
fn bytes_that_are_no_text() {
    let stdin = b"{\"cniVersion\":\"1.1.0\",\"name\":\"\xff\xfe\"}".to_vec();
    assert_refused(|call| call.stdin(stdin), 6, &["stdin"]);
}

#[test]
fn a_document_without_end() {
    let limit = usize::try_from(cni::MAX_DOCUMENT_BYTES).unwrap();
    let conf = delegating("1.1.0", json!({"pad": "x".repeat(limit)}));
    assert_refused(|call| call.conf(&conf), 5, &["stdin", &limit.to_string()]);
}

#[rstest]
#[case(json!({"cniVersion": "9.9.9"}), 1, &["cniVersion", "9.9.9"])]
#[case(json!({"cniVersion": "1.1"}), 1, &["cniVersion", "1.1"])]
#[case(json!({"cniVersion": 1}), 6, &["cniVersion", "1"])]
#[case(json!({"name": ""}), 7, &["name"])]
#[case(json!({"name": null}), 7, &["name"])]
#[case(json!({"name": 7}), 6, &["name", "7"])]
#[case(json!({"name": "../evil"}), 7, &["name", "../evil"])]
#[case(json!({"name": "a/b"}), 7, &["name", "a/b"])]
#[case(json!({"name": "-dash"}), 7, &["name", "-dash"])]
#[case(json!({"name": "网络"}), 7, &["name", "网络"])]
#[case(json!({"type": "../headcni"}), 7, &["type", "../headcni"])]
#[case(json!({"prevResult": "text"}), 6, &["prevResult", "text"])]
#[case(json!({"prevResult": {"cniVersion": "7.0.0"}}), 6, &["prevResult", "7.0.0"])]
#[case(json!({"prevResult": {"ips": [{"address": "nine"}]}}), 6, &["prevResult"])]
fn keys_of_the_protocol(#[case] more: Value, #[case] code: u64, #[case] words: &[&str]) {
    assert_conf_refused(more, code, words);
}

#[rstest]
#[case(json!({"delegate": "bridge"}), &["delegate", "bridge"])]
#[case(json!({"delegate": {"type": 5}}), &["delegate.type", "5"])]
#[case(json!({"delegate": {"type": "../bridge"}}), &["delegate.type", "../bridge"])]
#[case(json!({"delegate": {"type": "/bin/sh"}}), &["delegate.type", "/bin/sh"])]
#[case(json!({"delegate": {"type": ""}}), &["delegate.type"])]
#[case(json!({"delegate": {"type": ".."}}), &["delegate.type", ".."])]
#[case(json!({"delegate": {"type": "nonesuch"}}), &["nonesuch", "CNI_PATH"])]
#[case(json!({"delegate": {"type": "headcni"}}), &["delegate.type", "headcni"])]
#[case(json!({"delegate": {}, "plugins": [{"type": "bridge"}]}), &["plugins", "delegate"])]
#[case(json!({"delegate": {"ipMasq": "yes"}}), &["delegate.ipMasq", "yes"])]
#[case(json!({"delegate": {"name": "other"}}), &["delegate.name", "other", "net"])]
#[case(json!({"delegate": {"cniVersion": "0.4.0"}}), &["delegate.cniVersion", "0.4.0", "1.1.0"])]
#[case(json!({"delegate": {"mtu": 1400}, "mtu": 1300}), &["mtu 1300", "delegate.mtu 1400"])]
#[case(json!({"delegate": {"ipam": {"type": "a"}}, "ipam": {"type": "b"}}), &["ipam contradicts delegate.ipam"])]
#[case(json!({"ipam": {"type": "../host-local"}}), &["ipam.type", "../host-local"])]
#[case(json!({"ipam": {"type": 1}}), &["ipam.type", "1"])]
#[case(json!({"ipam": []}), &["ipam", "[]"])]
#[case(json!({"delegate": {"ipam": {"type": "a/b"}}}), &["ipam.type", "a/b"])]
#[case(json!({"delegate": {"ipam": 5}}), &["delegate.ipam", "5"])]
#[case(json!({"mtu": 12}), &["mtu", "12"])]
#[case(json!({"mtu": "1500"}), &["mtu", "1500"])]
#[case(json!({"mtu": -1}), &["mtu", "-1"])]
#[case(json!({"delegate": {"mtu": "1500"}}), &["delegate.mtu", "1500"])]
#[case(json!({"subnetFile": 5}), &["subnetFile", "5"])]
#[case(json!({"subnetFile": "subnet.env"}), &["subnetFile", "subnet.env"])]
#[case(json!({"dataDir": "state"}), &["dataDir", "state"])]
#[case(json!({"log_level": "loud"}), &["log_level", "loud"])]
#[case(json!({"log_file": "x.log"}), &["log_file", "x.log"])]
#[case(json!({"delegate_timeout_seconds": 0}), &["delegate_timeout_seconds", "0"])]
#[case(json!({"magic_dns": true}), &["magic_dns", "true"])]
#[case(json!({"magic_dns": {"enable": "yes"}}), &["magic_dns.enable", "yes"])]
#[case(json!({"magic_dns": {"nameservers": ["dns"]}}), &["magic_dns.nameservers", "dns"])]
#[case(json!({"capabilities": [], "delegate": {}}), &["capabilities", "[]"])]
#[case(json!({"runtimeConfig": 5}), &["runtimeConfig", "5"])]
fn keys_of_ours(#[case] more: Value, #[case] words: &[&str]) {
    assert_conf_refused(more, 7, words);
}

#[rstest]
#[case(json!([]), &["plugins", "[]"])]
#[case(json!({}), &["plugins", "{}"])]
#[case(json!(["bridge"]), &["plugins", "bridge"])]
#[case(json!([{}]), &["plugins[0].type"])]
#[case(json!([{"type": 5}]), &["plugins[0].type", "5"])]
#[case(json!([{"type": "headcni", "delegate": {}}, {"type": "../portmap"}]), &["plugins[1].type", "../portmap"])]
#[case(json!([{"type": "headcni", "delegate": {}}, {"type": "nonesuch"}]), &["nonesuch"])]
#[case(json!([{"type": "headcni", "plugins": [{"type": "bridge"}]}]), &["plugins[0].plugins"])]
#[case(json!([{"type": "headcni", "delegate": {"type": "headcni"}}]), &["plugins[0].delegate.type"])]
#[case(json!([{"type": "headcni", "delegate": {}, "mtu": 1}]), &["plugins[0].mtu", "1"])]
#[case(json!([{"type": "bridge", "capabilities": 1}]), &["plugins[0].capabilities", "1"])]
#[case(json!([{"type": "bridge", "ipam": {"type": "../x"}}]), &["plugins[0].ipam.type", "../x"])]
fn members_of_a_chain(#[case] members: Value, #[case] words: &[&str]) {
    assert_conf_refused(json!({"plugins": members, "delegate": null}), 7, words);
}

#[test]
fn a_member_that_contradicts_the_outer_mtu() {
    let members = json!([{"type": "headcni", "delegate": {}, "mtu": 1400}]);
    let more = json!({"plugins": members, "delegate": null, "mtu": 1300});
    assert_conf_refused(more, 7, &["mtu 1300", "plugins[0].mtu 1400"]);
}

#[rstest]
#[case("CNI_COMMAND", "", &[])]
#[case("CNI_COMMAND", "FROB", &["FROB"])]
#[case("CNI_COMMAND", "add", &["add"])]
#[case("CNI_CONTAINERID", "", &["missing"])]
#[case("CNI_CONTAINERID", "../../etc", &["../../etc"])]
#[case("CNI_CONTAINERID", "a b", &["a b"])]
#[case("CNI_CONTAINERID", "-x", &["-x"])]
#[case("CNI_NETNS", "", &["missing"])]
#[case("CNI_IFNAME", "", &["missing"])]
#[case("CNI_IFNAME", "..", &[".."])]
#[case("CNI_IFNAME", "eth/0", &["eth/0"])]
#[case("CNI_IFNAME", "eth:0", &["eth:0"])]
#[case("CNI_IFNAME", "eth 0", &["eth 0"])]
#[case("CNI_IFNAME", "sixteen-letters0", &["sixteen-letters0"])]
#[case("CNI_ARGS", "no-equals-sign", &["no-equals-sign"])]
#[case("CNI_PATH", "", &["missing"])]
fn variables(#[case] name: &str, #[case] value: &str, #[case] words: &[&str]) {
    let words: Vec<_> = words.iter().copied().chain([name]).collect();
    assert_refused(|call| call.env(name, value), 4, &words);
}

#[test]
fn all_missing_variables_are_named_at_once() {
    let node = Node::new("n1").unwrap();
    let outcome = run(
        &node,
        &Call::new("ADD").conf(&delegating("1.1.0", json!({}))),
    );
    let message = refused(&outcome, 4);
    for name in ["CNI_CONTAINERID", "CNI_NETNS", "CNI_IFNAME"] {
        assert!(message.contains(name), "{message}");
    }
}

#[test]
fn the_error_has_the_version_of_the_input() {
    let node = node();
    let pod = node.pod("p").unwrap();
    for version in ["0.2.0", "0.4.0", "1.0.0"] {
        let outcome = ask("ADD", &delegating(version, json!({"mtu": 1})), &pod);
        refused(&outcome, 7);
        assert_eq!(outcome.json.unwrap()["cniVersion"], version);
    }
}

#[rstest]
#[case("CHECK")]
#[case("DEL")]
fn a_bad_container_id_is_refused_by_every_verb(#[case] verb: &str) {
    let node = node();
    let pod = node.pod("p").unwrap();
    let before = node.snapshot(DIRS).unwrap();
    let call = call(verb, &delegating("1.1.0", json!({}))).pod(&pod);
    let outcome = run(&node, &call.container_id("../../x"));
    assert!(refused(&outcome, 4).contains("CNI_CONTAINERID"));
    node.assert_unchanged(&before);
}

#[rstest]
#[case(json!("all"), "all")]
#[case(json!([{"containerID": 5, "ifname": "eth0"}]), "containerID")]
#[case(json!([{"containerID": "a"}]), "ifname")]
fn a_wrong_list_of_valid_attachments_collects_nothing(#[case] list: Value, #[case] word: &str) {
    let node = node();
    let pod = node.pod("p").unwrap();
    let conf = delegating("1.1.0", json!({}));
    ask("ADD", &conf, &pod).ok().unwrap();
    let before = node.snapshot(DIRS).unwrap();
    let conf = merged(&conf, json!({"cni.dev/valid-attachments": list}));
    let outcome = run(&node, &call("GC", &conf));
    let message = refused(&outcome, 7);
    assert!(message.contains("cni.dev/valid-attachments"), "{message}");
    assert!(message.contains(word), "{message}");
    node.assert_unchanged(&before);
}
