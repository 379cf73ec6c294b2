//! DEL of what is unknown, half made or gone succeeds, and releases what is left.

use lab::Netns;
use rstest::rstest;
use serde_json::{Value, json};

use crate::scene::{
    STATE_DIR, SUBNET_FILE, SUBNETS, Scene, call, chain, delegate, succeeded, unmasqueraded_chain,
    with,
};

#[rstest]
#[case::no_variable(None)]
#[case::empty(Some(""))]
#[case::never_existed(Some("/run/netns/never"))]
#[case::a_living_one(Some("/run/netns/p"))]
fn del_of_an_unknown_container_succeeds_and_changes_nothing(#[case] netns: Option<&str>) {
    let scene = Scene::used();
    let _pod = scene.pod("p");
    let before = scene.snapshot();
    let mut del = call("DEL", &chain(&[]))
        .container_id("unknown")
        .ifname("eth0");
    if let Some(netns) = netns {
        del = del.netns(netns);
    }
    for _ in 0..2 {
        let outcome = succeeded(scene.run(&del));
        assert_eq!(outcome.stdout, "");
    }
    scene.node.assert_unchanged(&before);
}

#[test]
fn del_on_a_node_that_never_had_a_pod_succeeds() {
    let scene = Scene::new();
    let del = call("DEL", &chain(&[]))
        .container_id("unknown")
        .ifname("eth0");
    succeeded(scene.run(&del));
    assert!(!scene.node.has(STATE_DIR));
    assert_eq!(scene.leases(), [""; 0]);
}

#[rstest]
#[case::empty("")]
#[case::its_path("/run/netns/p")]
#[case::another("/run/netns/never")]
fn del_after_the_namespace_went_releases_everything(#[case] netns: &str) {
    let conf = unmasqueraded_chain();
    let scene = Scene::used();
    let before = scene.snapshot();
    for prev_result in [false, true] {
        let pod = scene.pod("p");
        let result = scene.done("ADD", &conf, &pod).ok_json().unwrap();
        assert!(scene.has_port_rules());
        pod.delete().unwrap();
        let mut conf = conf.clone();
        if prev_result {
            conf["prevResult"] = result;
        }
        let del = call("DEL", &conf)
            .container_id("p")
            .ifname("eth0")
            .netns(netns);
        succeeded(scene.run(&del));
        scene.node.assert_unchanged(&before);
        succeeded(scene.run(&del));
        scene.node.assert_unchanged(&before);
    }
}

#[test]
fn del_with_a_record_needs_no_subnet_file() {
    let scene = Scene::used();
    let pod = scene.pod("p");
    let before = scene.snapshot();
    scene.node.write(SUBNET_FILE, SUBNETS).unwrap();
    scene.done("ADD", &delegate(), &pod);
    assert_eq!(scene.leases().len(), 1);
    scene.node.run(["rm", SUBNET_FILE]).unwrap();
    scene.done("DEL", &delegate(), &pod);
    scene.node.assert_unchanged(&before);
}

#[rstest]
#[case::gone(None)]
#[case::torn(Some("HEADCNI_NETWORK=10.66.0.0/16\nHEADCNI_SUB"))]
#[case::empty(Some(""))]
fn del_without_record_and_subnet_file_goes_by_the_result(#[case] file: Option<&str>) {
    let scene = Scene::used();
    let pod = scene.pod("p");
    let before = scene.snapshot();
    scene.node.write(SUBNET_FILE, SUBNETS).unwrap();
    let result = scene.done("ADD", &delegate(), &pod).ok_json().unwrap();
    scene
        .node
        .run(["rm", "-r", STATE_DIR, SUBNET_FILE])
        .unwrap();
    if let Some(text) = file {
        scene.node.write(SUBNET_FILE, text).unwrap();
    }
    scene.done("DEL", &with(delegate(), "prevResult", result), &pod);
    if file.is_some() {
        scene.node.run(["rm", SUBNET_FILE]).unwrap();
    }
    scene.node.assert_unchanged(&before);
}

#[rstest]
#[case::gone(None)]
#[case::torn(Some("HEADCNI_NETWORK=10.66.0.0/16\nHEADCNI_SUB"))]
fn del_of_an_unknown_container_needs_no_subnet_file(#[case] file: Option<&str>) {
    let scene = Scene::new();
    let pod = scene.pod("p");
    if let Some(text) = file {
        scene.node.write(SUBNET_FILE, text).unwrap();
    }
    for prev_result in [Value::Null, json!({}), json!({ "cniVersion": "1.1.0" })] {
        scene.done("DEL", &with(delegate(), "prevResult", prev_result), &pod);
    }
}

const DAMAGES: [&str; 5] = ["", "{", "garbage\0", "[]", r#"{"boot":"x"}"#];

#[test]
fn del_by_a_damaged_record_goes_by_the_configuration_and_warns() {
    let scene = Scene::used();
    let pod = scene.pod("p");
    let before = scene.snapshot();
    let conf = chain(&[]);
    for damage in DAMAGES {
        scene.done("ADD", &conf, &pod);
        scene.write_record("p", damage);
        let outcome = scene.done("DEL", &conf, &pod);
        assert!(
            outcome.stderr.contains("p@eth0.json is damaged"),
            "{damage}: {outcome:?}"
        );
        scene.node.assert_unchanged(&before);
    }
}

#[test]
fn gc_by_a_damaged_record_goes_by_the_configuration_and_warns() {
    let scene = Scene::used();
    let conf = unmasqueraded_chain();
    let before = scene.snapshot();
    for damage in DAMAGES {
        let pod = scene.pod("p");
        scene.done("ADD", &conf, &pod);
        scene.write_record("p", damage);
        pod.delete().unwrap();
        let outcome = succeeded(scene.collect(&conf));
        assert!(
            outcome.stderr.contains("p@eth0.json is damaged"),
            "{damage}: {outcome:?}"
        );
        assert_eq!(
            scene.leases(),
            [""; 0],
            "{damage}: and no file tells of this lease any more"
        );
        scene.node.assert_unchanged(&before);
    }
}

#[test]
fn an_add_after_a_damaged_record_works() {
    let scene = Scene::used();
    let conf = unmasqueraded_chain();
    let before = scene.snapshot();
    for damage in DAMAGES {
        // As after a reboot: the namespace is new, the lease is not.
        let pod = scene.pod("p");
        scene.done("ADD", &conf, &pod);
        scene.write_record("p", damage);
        pod.delete().unwrap();
        let pod = scene.pod("p");
        let outcome = scene.attempt("ADD", &conf, &pod);
        assert!(outcome.status.success(), "{damage}: {outcome:?}");
        scene.done("DEL", &conf, &pod);
        pod.delete().unwrap();
        scene.node.assert_unchanged(&before);
    }
}

#[test]
fn a_del_that_cannot_be_leaves_nothing_of_its_own() {
    let scene = Scene::used();
    let pod = scene.pod("p");
    let before = scene.snapshot();
    let conf = chain(&[json!({ "type": "not-there" })]);
    scene.refused("DEL", &conf, &pod, 7);
    scene.node.assert_unchanged(&before);
}
