//! Things in the data directory that headcni did not put there.

use std::fs;
use std::os::unix::fs::symlink;
use std::time::Duration;

use lab::Netns;
use rstest::rstest;
use serde_json::json;

use crate::networks::{RECORD_DIR, chain, succeeded, used_node, with};

const TARGET: &str = "/etc/faults-target";

#[test]
fn gc_ignores_files_that_are_no_records() {
    let plugin = used_node();
    let pod = plugin.pod("p");
    plugin.succeed("ADD", &chain(&[]), &pod);
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
        plugin
            .node
            .write(format!("{RECORD_DIR}/{name}"), name)
            .unwrap();
    }
    fs::create_dir_all(plugin.node.path(format!("{RECORD_DIR}/directory/below"))).unwrap();
    let outcome = succeeded(plugin.gc(&chain(&[]), &[]));
    assert_eq!(outcome.stdout, "");
    assert_eq!(plugin.leases(), [""; 0]);
    assert_eq!(
        plugin.records().len(),
        names.len() + 1,
        "{:?}",
        plugin.records()
    );
    assert_eq!(plugin.node.read(format!("{RECORD_DIR}/@")).unwrap(), "@");
    plugin.succeed("DEL", &chain(&[]), &pod);
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
    let plugin = used_node();
    let pod = plugin.pod("p");
    plugin.succeed("ADD", &chain(&[]), &pod);
    plugin.node.write(TARGET, "important").unwrap();
    plugin
        .node
        .run(["sh", "-c", &format!("cd {RECORD_DIR}; {command}")])
        .unwrap();

    let conf = with(chain(&[]), "cni.dev/valid-attachments", json!([]));
    let conf = with(conf, "delegate_timeout_seconds", json!(3));
    let gc = crate::networks::call("GC", &conf).deadline(Duration::from_secs(10));
    let outcome = gc.run(&plugin.node, crate::networks::headcni());
    let outcome = outcome.expect("it neither blocks nor spins");
    assert!(plugin.record("p").is_none(), "{outcome:?}");
    assert_eq!(plugin.leases(), [""; 0]);
    assert_eq!(pod.links().unwrap(), [""; 0]);
    assert_eq!(plugin.node.read(TARGET).unwrap(), "important");
    assert!(plugin.node.has("/etc/hostname"));
}

#[test]
fn an_add_does_not_write_through_a_link() {
    let plugin = used_node();
    let pod = plugin.pod("p");
    plugin.node.write(TARGET, "important").unwrap();
    let dir = plugin.node.path(RECORD_DIR);
    fs::create_dir_all(&dir).unwrap();
    for name in ["p@eth0.json", "p@eth0.tmp"] {
        symlink(TARGET, dir.join(name)).unwrap();
    }
    let outcome = plugin.attempt("ADD", &chain(&[]), &pod);
    assert_eq!(
        plugin.node.read(TARGET).unwrap(),
        "important",
        "{outcome:?}"
    );
    plugin.succeed("DEL", &chain(&[]), &pod);
    assert_eq!(plugin.leases(), [""; 0]);
    assert_eq!(plugin.node.read(TARGET).unwrap(), "important");
}

#[rstest]
#[case("../evil")]
#[case("/run/evil")]
#[case("sub/evil")]
#[case("")]
#[case("..")]
fn a_recorded_type_that_leads_out_of_cni_path_is_not_executed(#[case] kind: &str) {
    let plugin = used_node();
    let pod = plugin.pod("p");
    let before = plugin.snapshot();
    // One of the directories of CNI_PATH is /opt/faults.
    for path in ["/opt/evil", "/run/evil", "/opt/faults/sub/evil"] {
        plugin
            .node
            .write(path, "#!/bin/sh\ntouch /run/faults-executed\n")
            .unwrap();
        plugin.node.run(["chmod", "+x", path]).unwrap();
    }
    plugin.succeed("ADD", &chain(&[]), &pod);
    let mut record = plugin.record("p").unwrap();
    let mut evil = record["steps"][1].clone();
    evil["plugin"]["delegate"]["type"] = json!(kind);
    evil["plugin"]["delegate"]["config"]["type"] = json!(kind);
    record["steps"].as_array_mut().unwrap().push(evil);
    for verb in ["DEL", "GC"] {
        plugin.write_record("p", &record.to_string());
        let outcome = match verb {
            "DEL" => plugin.attempt("DEL", &chain(&[]), &pod),
            _ => plugin.gc(&chain(&[]), &[]),
        };
        assert!(!plugin.node.has("/run/faults-executed"), "{outcome:?}");
        assert_eq!(
            plugin.leases(),
            [""; 0],
            "the others were undone: {outcome:?}"
        );
    }
    plugin.node.run(["rm", "/run/evil"]).unwrap();
    plugin.node.assert_unchanged(&before);
}

#[test]
fn a_pipe_for_a_namespace_holds_nobody_up() {
    let plugin = used_node();
    let before = plugin.snapshot();
    plugin.node.run(["mkfifo", "/run/pipe"]).unwrap();
    for verb in ["ADD", "DEL"] {
        let call = crate::networks::call(verb, &chain(&[]))
            .container_id("p")
            .ifname("eth0");
        let call = call.netns("/run/pipe").deadline(Duration::from_secs(20));
        call.run(&plugin.node, crate::networks::headcni())
            .expect("it ends");
    }
    plugin.node.run(["rm", "/run/pipe"]).unwrap();
    plugin.node.assert_unchanged(&before);
}
