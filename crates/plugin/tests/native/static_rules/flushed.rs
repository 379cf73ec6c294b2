//! Rules that somebody has deleted while pods were running.

use lab::{EchoServer, Family, Ignore, Netns};
use rstest::rstest;
use serde_json::{Value, json};

use super::network;
use crate::host_ports::{NODE, Site, at, mapping, mapping_on, publishing};
use crate::networks::{call, dual_stack, plugin_node, with};

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
    let plugin = &site.plugin;
    let other = network("other", "10.8.0.0/24");
    let (server, _) = plugin.attached("server", &publisher());
    let (_client, _) = plugin.attached("client", &other);
    plugin.succeed("DEL", &other, &plugin.attached("gone", &other).0);
    let _server = EchoServer::start(&server, Family::V4, 80).unwrap();
    let files = Ignore::new()
        .path("/var/lib/cni/networks/headcni/other")
        .spare_records("/var/lib/cni/headcni/other");
    let before = plugin.snapshot().ignoring(files);

    plugin.node.run(["nft"].iter().chain(wipe)).unwrap();
    let (next, _) = plugin.attached("next", &other);
    plugin.succeed("DEL", &other, &next);
    plugin.node.assert_unchanged(&before);
    for published in [at(NODE[0], 8080), at("127.0.0.1", 8080)] {
        plugin.node.call_echo(published, "from the host").unwrap();
    }
    let published = at(NODE[0], 8080);
    site.neighbour.call_echo(published, "outside").unwrap();
    server.call_echo(published, "hairpin").unwrap();
}

#[test]
fn check_notices_that_the_rules_are_gone_and_del_does_not_need_them() {
    let plugin = plugin_node();
    let conf = publisher();
    let (pod, result) = plugin.attached("pod", &conf);
    let conf = with(conf, "prevResult", result);
    plugin.succeed("CHECK", &conf, &pod);
    plugin.node.run(["nft", "flush", "ruleset"]).unwrap();
    let outcome = plugin.attempt("CHECK", &conf, &pod);
    assert!(outcome.err_msg().contains("nftables"), "{outcome:?}");
    plugin.succeed("DEL", &conf, &pod);
    assert_eq!(plugin.node.links().unwrap(), Vec::<String>::new());
    // Nobody has asked for rules since.
    assert_eq!(plugin.ruleset(), "");
}

#[test]
fn many_pods_at_once_after_a_wipe_bring_each_port_back_once() {
    let plugin = plugin_node();
    let conf = |port| publishing(dual_stack(), &[mapping("tcp", port, 80)]);
    for port in 8001..8006 {
        plugin.succeed("ADD", &conf(port), &plugin.pod(&format!("old{port}")));
    }
    let before = crate::host_ports::elements(&plugin);
    let ports = |elements: &[String]| elements.join(" ").matches("tcp . ").count();
    assert_eq!(ports(&before), 10, "{before:?}");
    plugin.node.run(["nft", "flush", "ruleset"]).unwrap();
    let pods: Vec<_> = (8006..8014u16)
        .map(|port| (port, plugin.pod(&format!("new{port}"))))
        .collect();
    let running: Vec<_> = pods
        .iter()
        .map(|(port, pod)| {
            let call = call("ADD", &conf(*port)).pod(pod);
            call.spawn(&plugin.node, crate::networks::headcni())
                .unwrap()
        })
        .collect();
    for running in running {
        let output = running.wait(lab::DEADLINE).unwrap();
        assert!(output.status.success(), "{output:?}");
    }
    let after = crate::host_ports::elements(&plugin);
    assert_eq!(ports(&after), 26, "{after:?}");
}

#[test]
fn tables_of_others_are_not_touched_whatever_their_names() {
    let plugin = plugin_node();
    let foreign = "
        table ip headcni { chain c { counter drop; }; }
        table ip6 headcni-ports { set s { type ipv6_addr; elements = { fd00::1 }; }; }
        table inet filter { chain forward { type filter hook forward priority 0; accept; }; }
        table ip nat { chain postrouting { type nat hook postrouting priority 100; }; }
        table inet headcni2 { }
    ";
    plugin.node.write("/run/foreign.nft", foreign).unwrap();
    plugin.node.run(["nft", "-f", "/run/foreign.nft"]).unwrap();
    let before = plugin.ruleset();
    let conf = publisher();
    let (pod, _) = plugin.attached("pod", &conf);
    let (other, _) = plugin.attached("other", &dual_stack());
    other.ping("10.9.0.1").unwrap();
    let tables = plugin.node.run(["nft", "list", "tables"]).unwrap().stdout;
    for table in ["inet headcni\n", "inet headcni-ports\n"] {
        assert!(tables.contains(table), "{tables}");
    }
    plugin.succeed("DEL", &conf, &pod);
    for table in ["headcni", "headcni-ports"] {
        let delete = ["nft", "delete", "table", "inet", table];
        plugin.node.run(delete).unwrap();
    }
    assert_eq!(plugin.ruleset(), before);
}
