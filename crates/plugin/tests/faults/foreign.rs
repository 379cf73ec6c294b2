//! Things in the data directory that headcni did not put there.

use std::fs;
use std::os::unix::fs::symlink;
use std::time::Duration;

use lab::Netns;
use rstest::rstest;
use serde_json::json;

use crate::scene::{STATE_DIR, Scene, chain, succeeded, with};

const TARGET: &str = "/etc/faults-target";

#[test]
fn gc_ignores_files_that_are_no_records() {
    let scene = Scene::used();
    let pod = scene.pod("p");
    scene.done("ADD", &chain(&[]), &pod);
    let names = [
        "README",
        "@",
        "@eth0.json",
        "p@.json",
        "p@eth0",
        ".hidden",
        "a b@eth0.json",
        "-p@eth0.json",
        "p@sixteen-bytes.xy.json",
        "p@a b.json",
        "ümlaut@eth0.json",
        "p@eth0.json~",
    ];
    for name in names {
        scene
            .node
            .write(format!("{STATE_DIR}/{name}"), name)
            .unwrap();
    }
    fs::create_dir_all(scene.node.path(format!("{STATE_DIR}/directory/below"))).unwrap();
    let outcome = succeeded(scene.collect(&chain(&[])));
    assert_eq!(outcome.stdout, "");
    assert_eq!(scene.leases(), [""; 0]);
    assert_eq!(
        scene.records().len(),
        names.len() + 1,
        "{:?}",
        scene.records()
    );
    assert_eq!(scene.node.read(format!("{STATE_DIR}/@")).unwrap(), "@");
    scene.done("DEL", &chain(&[]), &pod);
}

#[rstest]
#[case::directories("mkdir -p x@eth0.json/below y@eth0.json z@eth0.tmp")]
#[case::links(
    "ln -s /etc/faults-target x@eth0.json; ln -s /etc/faults-target y@eth0.json; \
    ln -s /etc/faults-target z@eth0.tmp; ln -s /nowhere/at/all w@eth0.json"
)]
#[case::a_link_to_a_directory("ln -s /etc x@eth0.json; ln -s /etc y@eth0.json")]
#[case::pipes("mkfifo x@eth0.json y@eth0.json z@eth0.tmp")]
fn gc_collects_the_rest_whatever_lies_beside_it(#[case] command: &str) {
    let scene = Scene::used();
    let pod = scene.pod("p");
    scene.done("ADD", &chain(&[]), &pod);
    scene.node.write(TARGET, "important").unwrap();
    scene
        .node
        .run(["sh", "-c", &format!("cd {STATE_DIR}; {command}")])
        .unwrap();

    let conf = with(chain(&[]), "cni.dev/valid-attachments", json!([]));
    let conf = with(conf, "delegate_timeout_seconds", json!(3));
    let gc = crate::scene::call("GC", &conf).deadline(Duration::from_secs(10));
    let outcome = gc.run(&scene.node, crate::scene::headcni());
    let outcome = outcome.expect("it neither blocks nor spins");
    assert!(scene.record("p").is_none(), "{outcome:?}");
    assert_eq!(scene.leases(), [""; 0]);
    assert_eq!(pod.links().unwrap(), [""; 0]);
    assert_eq!(scene.node.read(TARGET).unwrap(), "important");
    assert!(scene.node.has("/etc/hostname"));
}

#[test]
fn an_add_does_not_write_through_a_link() {
    let scene = Scene::used();
    let pod = scene.pod("p");
    scene.node.write(TARGET, "important").unwrap();
    let dir = scene.node.path(STATE_DIR);
    fs::create_dir_all(&dir).unwrap();
    for name in ["p@eth0.json", "p@eth0.tmp"] {
        symlink(TARGET, dir.join(name)).unwrap();
    }
    let outcome = scene.attempt("ADD", &chain(&[]), &pod);
    assert_eq!(scene.node.read(TARGET).unwrap(), "important", "{outcome:?}");
    scene.done("DEL", &chain(&[]), &pod);
    assert_eq!(scene.leases(), [""; 0]);
    assert_eq!(scene.node.read(TARGET).unwrap(), "important");
}

#[rstest]
#[case("../evil")]
#[case("/run/evil")]
#[case("sub/evil")]
#[case("")]
#[case("..")]
fn a_recorded_type_that_leads_out_of_cni_path_is_not_executed(#[case] kind: &str) {
    let scene = Scene::used();
    let pod = scene.pod("p");
    let before = scene.snapshot();
    // One of the directories of CNI_PATH is /opt/faults.
    for path in ["/opt/evil", "/run/evil", "/opt/faults/sub/evil"] {
        scene
            .node
            .write(path, "#!/bin/sh\ntouch /run/faults-executed\n")
            .unwrap();
        scene.node.run(["chmod", "+x", path]).unwrap();
    }
    scene.done("ADD", &chain(&[]), &pod);
    let mut record = scene.record("p").unwrap();
    let mut evil = record["steps"][1].clone();
    evil["plugin"]["delegate"]["type"] = json!(kind);
    evil["plugin"]["delegate"]["config"]["type"] = json!(kind);
    record["steps"].as_array_mut().unwrap().push(evil);
    for verb in ["DEL", "GC"] {
        scene.write_record("p", &record.to_string());
        let outcome = match verb {
            "DEL" => scene.attempt("DEL", &chain(&[]), &pod),
            _ => scene.collect(&chain(&[])),
        };
        assert!(!scene.node.has("/run/faults-executed"), "{outcome:?}");
        assert_eq!(
            scene.leases(),
            [""; 0],
            "the others were undone: {outcome:?}"
        );
    }
    scene.node.run(["rm", "/run/evil"]).unwrap();
    scene.node.assert_unchanged(&before);
}

#[test]
fn a_pipe_for_a_namespace_holds_nobody_up() {
    let scene = Scene::used();
    let before = scene.snapshot();
    scene.node.run(["mkfifo", "/run/pipe"]).unwrap();
    for verb in ["ADD", "DEL"] {
        let call = crate::scene::call(verb, &chain(&[]))
            .container_id("p")
            .ifname("eth0");
        let call = call.netns("/run/pipe").deadline(Duration::from_secs(20));
        call.run(&scene.node, crate::scene::headcni())
            .expect("it ends");
    }
    scene.node.run(["rm", "/run/pipe"]).unwrap();
    scene.node.assert_unchanged(&before);
}
