//! Rules that somebody has deleted while pods were running.

use lab::{EchoServer, Family, Ignore, Netns};
use rstest::rstest;
use serde_json::{Value, json};

use super::network;
use crate::host_ports::{NODE, Site, at, mapping, mapping_on, publishing};
use crate::scene::{Scene, call, dual_stack, with};

/// A network with everything that leaves a trace in the ruleset.
fn publisher() -> Value {
    let mappings = [
        mapping("tcp", 8080, 80),
        mapping("udp", 8080, 80),
        mapping_on(NODE[0], 9090, 90),
    ];
    let conf = with(
        dual_stack(),
        "service_cidr",
        json!("10.96.0.0/12,fd00:96::/112"),
    );
    let conf = with(conf, "hostport_localhost", json!(true));
    publishing(conf, &mappings)
}

#[rstest]
#[case::everything(&["flush", "ruleset"])]
#[case::the_rules_for_pods(&["delete", "table", "inet", "headcni"])]
#[case::the_host_ports(&["delete", "table", "inet", "headcni-ports"])]
fn the_next_pod_of_any_network_brings_all_rules_back(#[case] wipe: &[&str]) {
    let site = Site::new();
    let scene = &site.scene;
    let other = network("other", "10.8.0.0/24");
    let (server, _) = scene.attached("server", &publisher());
    let (_client, _) = scene.attached("client", &other);
    scene.done("DEL", &other, &scene.attached("gone", &other).0);
    let _server = EchoServer::start(&server, Family::V4, 80).unwrap();
    let files = Ignore::new()
        .path("/var/lib/cni/networks/headcni/other")
        .spare_records("/var/lib/cni/headcni/other");
    let before = scene.snapshot().ignoring(files);

    scene.node.run(["nft"].iter().chain(wipe)).unwrap();
    let (next, _) = scene.attached("next", &other);
    scene.done("DEL", &other, &next);
    scene.node.assert_unchanged(&before);
    for published in [at(NODE[0], 8080), at("127.0.0.1", 8080)] {
        scene.node.call_echo(published, "from the host").unwrap();
    }
    let published = at(NODE[0], 8080);
    site.neighbour.call_echo(published, "outside").unwrap();
    server.call_echo(published, "hairpin").unwrap();
}

#[test]
fn check_notices_that_the_rules_are_gone_and_del_does_not_need_them() {
    let scene = Scene::new();
    let conf = publisher();
    let (pod, result) = scene.attached("pod", &conf);
    let conf = with(conf, "prevResult", result);
    scene.done("CHECK", &conf, &pod);
    scene.node.run(["nft", "flush", "ruleset"]).unwrap();
    let outcome = scene.attempt("CHECK", &conf, &pod);
    assert!(outcome.err_msg().contains("nftables"), "{outcome:?}");
    scene.done("DEL", &conf, &pod);
    assert_eq!(scene.node.links().unwrap(), Vec::<String>::new());
    // Nobody has asked for rules since.
    assert_eq!(scene.ruleset(), "");
}

#[test]
fn many_pods_at_once_after_a_wipe_bring_each_port_back_once() {
    let scene = Scene::new();
    let conf = |port| publishing(dual_stack(), &[mapping("tcp", port, 80)]);
    for port in 8001..8006 {
        scene.done("ADD", &conf(port), &scene.pod(&format!("old{port}")));
    }
    let before = crate::host_ports::elements(&scene);
    let ports = |elements: &[String]| elements.join(" ").matches("tcp . ").count();
    assert_eq!(ports(&before), 10, "{before:?}");
    scene.node.run(["nft", "flush", "ruleset"]).unwrap();
    let pods: Vec<_> = (8006..8014u16)
        .map(|port| (port, scene.pod(&format!("new{port}"))))
        .collect();
    let running: Vec<_> = pods
        .iter()
        .map(|(port, pod)| {
            let call = call("ADD", &conf(*port)).pod(pod);
            call.spawn(&scene.node, crate::scene::headcni()).unwrap()
        })
        .collect();
    for running in running {
        let output = running.wait(lab::DEADLINE).unwrap();
        assert!(output.status.success(), "{output:?}");
    }
    let after = crate::host_ports::elements(&scene);
    assert_eq!(ports(&after), 26, "{after:?}");
}

#[test]
fn tables_of_others_are_not_touched_whatever_their_names() {
    let scene = Scene::new();
    let foreign = "
        table ip headcni { chain c { counter drop; }; }
        table ip6 headcni-ports { set s { type ipv6_addr; elements = { fd00::1 }; }; }
        table inet filter { chain forward { type filter hook forward priority 0; accept; }; }
        table ip nat { chain postrouting { type nat hook postrouting priority 100; }; }
        table inet headcni2 { }
    ";
    scene.node.write("/run/foreign.nft", foreign).unwrap();
    scene.node.run(["nft", "-f", "/run/foreign.nft"]).unwrap();
    let before = scene.ruleset();
    let conf = publisher();
    let (pod, _) = scene.attached("pod", &conf);
    let (other, _) = scene.attached("other", &dual_stack());
    other.ping("10.9.0.1").unwrap();
    let tables = scene.node.run(["nft", "list", "tables"]).unwrap().stdout;
    for table in ["inet headcni\n", "inet headcni-ports\n"] {
        assert!(tables.contains(table), "{tables}");
    }
    scene.done("DEL", &conf, &pod);
    for table in ["headcni", "headcni-ports"] {
        let delete = ["nft", "delete", "table", "inet", table];
        scene.node.run(delete).unwrap();
    }
    assert_eq!(scene.ruleset(), before);
}
