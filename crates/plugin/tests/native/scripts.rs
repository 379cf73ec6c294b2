//! An IPAM plugin that is executed and misbehaves: three tries with a DEL between them, and
//! everything is given back.

use lab::Netns;
use rstest::rstest;
use serde_json::{Value, json};

use crate::killing::with_all;
use crate::scene::{Scene, call, cni_path, ip, ipv4, with};
use crate::traces::snapshot;

const SCRIPTS: &str = "/opt/scripts";
const RESULT: &str =
    r#"{ "cniVersion": "1.1.0", "ips": [{ "address": "10.9.0.7/24", "gateway": "10.9.0.1" }] }"#;

/// A network whose addresses come from a shell script, which notes each of its calls.
fn scripted(scene: &Scene, body: &str) -> Value {
    let path = format!("{SCRIPTS}/scripted-ipam");
    let note = "echo $CNI_COMMAND >> /run/calls; cat > /dev/null; tries=$(grep -c ADD /run/calls)";
    let text = format!("#!/bin/sh\n{note}\n[ $CNI_COMMAND = ADD ] || exit 0\n{body}\n");
    scene.node.write(&path, text).unwrap();
    scene.node.run(["chmod", "755", &path]).unwrap();
    with(with_all(ipv4()), "ipam", json!({ "type": "scripted-ipam" }))
}

fn calls(scene: &Scene) -> Vec<String> {
    let text = scene.node.read("/run/calls").unwrap_or_default();
    text.lines().map(str::to_owned).collect()
}

fn path() -> String {
    format!("{SCRIPTS}:{}", cni_path())
}

#[rstest]
#[case::says_why(
    r#"echo '{ "code": 123, "msg": "out of luck" }'; exit 1"#,
    "out of luck"
)]
#[case::says_nothing("exit 3", "3")]
#[case::dies("kill -9 $$", "9")]
#[case::prints_garbage("echo 'no { json'", "no { json")]
#[case::prints_nothing("", "nothing")]
fn an_ipam_plugin_that_always_fails_is_tried_three_times(#[case] body: &str, #[case] part: &str) {
    let scene = Scene::used(&ipv4());
    let conf = scripted(&scene, body);
    let pod = scene.pod("p");
    let before = snapshot(&scene);
    let outcome = scene.run(&call("ADD", &conf).pod(&pod).path(path()));
    assert!(outcome.err_code().is_some(), "{outcome:?}");
    let told = outcome.err_msg();
    assert!(
        told.contains("scripted-ipam") && told.contains(part),
        "{outcome:?}"
    );
    assert_eq!(calls(&scene), ["ADD", "DEL", "ADD", "DEL", "ADD", "DEL"]);
    assert_eq!(pod.links().unwrap(), [""; 0]);
    scene.node.assert_unchanged(&before);
}

#[test]
fn an_ipam_plugin_that_recovers_is_forgiven() {
    let scene = Scene::used(&with_all(ipv4()));
    let conf = scripted(
        &scene,
        &format!("[ $tries = 3 ] || exit 1\necho '{RESULT}'"),
    );
    let pod = scene.pod("p");
    let before = snapshot(&scene);
    let on_pod = |verb| call(verb, &conf).pod(&pod).path(path());
    let result = scene.run(&on_pod("ADD")).ok_json().unwrap();
    assert_eq!(calls(&scene), ["ADD", "DEL", "ADD", "DEL", "ADD"]);
    assert_eq!(ip(&result, 0), "10.9.0.7");
    scene.node.ping("10.9.0.7").unwrap();
    scene.run(&on_pod("DEL")).ok().unwrap();
    assert_eq!(calls(&scene).last().unwrap(), "DEL");
    scene.node.assert_unchanged(&before);
}

#[rstest]
#[case::no_address(r#"echo '{ "cniVersion": "1.1.0" }'"#)]
#[case::no_number(r#"echo '{ "cniVersion": "1.1.0", "ips": [{ "address": "10.9.0.700/24" }] }'"#)]
#[case::a_route_that_cannot_be(
    r#"echo '{ "cniVersion": "1.1.0", "ips": [{ "address": "10.9.0.7/24" }],
        "routes": [{ "dst": "fd00:1::/64", "gw": "10.9.0.1" }] }'"#
)]
fn a_result_that_cannot_be_made_true_is_rolled_back(#[case] body: &str) {
    let scene = Scene::used(&with_all(ipv4()));
    let conf = scripted(&scene, body);
    let pod = scene.pod("p");
    let before = snapshot(&scene);
    let outcome = scene.run(&call("ADD", &conf).pod(&pod).path(path()));
    assert!(outcome.err_code().is_some(), "{outcome:?}");
    assert_eq!(calls(&scene).last().unwrap(), "DEL");
    assert_eq!(pod.links().unwrap(), [""; 0]);
    scene.node.assert_unchanged(&before);
}
