//! Who takes back which port.

use lab::scenario::PluginNode;
use lab::{EchoServer, Family, Netns, Pod};
use rstest::rstest;
use serde_json::{Value, json};

use super::{NODE, Site, at, elements, mapping, mapping_on, publishing};
use crate::networks::{call, dual_stack, ipv4, plugin_node, used_node, with};

fn everything() -> Value {
    let mappings = [
        mapping("tcp", 53, 53),
        mapping("udp", 53, 53),
        mapping_on(NODE[0], 8080, 80),
        mapping_on(NODE[1], 8080, 80),
    ];
    let conf = with(dual_stack(), "hostport_localhost", json!(true));
    publishing(conf, &mappings)
}

/// How a pod can leave.
#[derive(Clone, Copy)]
enum Way {
    /// DEL with all that the runtime knows.
    Complete,
    /// DEL with neither the ports nor the result of the ADD.
    Forgetful,
    /// DEL when its namespace is gone.
    Late,
    /// GC, because the runtime knows nothing of it.
    Collected,
}

#[rstest]
#[case::complete(Way::Complete)]
#[case::forgetful(Way::Forgetful)]
#[case::late(Way::Late)]
#[case::collected(Way::Collected)]
fn a_pod_that_leaves_takes_all_its_ports_with_it(#[case] way: Way) {
    let plugin = used_node(&everything());
    let before = plugin.snapshot();
    let (pod, result) = plugin.attached("pod", &everything());
    assert_eq!(elements(&plugin).len(), 6, "{:?}", elements(&plugin));
    let complete = with(everything(), "prevResult", result);
    match way {
        Way::Complete => drop(plugin.succeed("DEL", &complete, &pod)),
        Way::Forgetful => drop(plugin.succeed("DEL", &dual_stack(), &pod)),
        Way::Late => {
            pod.delete().unwrap();
            plugin.succeed("DEL", &complete, &pod);
        }
        Way::Collected => {
            let conf = with(dual_stack(), "cni.dev/valid-attachments", json!([]));
            plugin.run(&call("GC", &conf)).ok().unwrap();
        }
    }
    assert_eq!(elements(&plugin), Vec::<String>::new());
    plugin.node.assert_unchanged(&before);
}

/// A port, asked for by pods that get one address after the other, or all the same one.
fn one_port(of_how_many: u8) -> Value {
    let range = json!({ "type": "headcni-ipam", "subnet": "10.9.0.0/24",
        "rangeStart": "10.9.0.10", "rangeEnd": format!("10.9.0.{}", 9 + of_how_many) });
    publishing(
        with(ipv4(), "ipam", range),
        &[mapping("tcp", 8080, 80), mapping("udp", 8080, 80)],
    )
}

#[rstest]
#[case::with_another_address(one_port(9))]
#[case::with_the_same_address(one_port(1))]
fn a_late_del_leaves_the_port_to_the_pod_that_has_it_now(#[case] conf: Value) {
    let site = Site::new();
    let (earlier, result) = site.plugin.attached("earlier", &conf);
    site.plugin.succeed("DEL", &conf, &earlier);
    let (pod, _) = site.plugin.attached("pod", &conf);
    let published = elements(&site.plugin);

    // With and without what the runtime remembers, with and without a namespace.
    let remembering = with(conf.clone(), "prevResult", result);
    site.plugin.succeed("DEL", &conf, &earlier);
    site.plugin.succeed("DEL", &remembering, &earlier);
    earlier.delete().unwrap();
    site.plugin.succeed("DEL", &remembering, &earlier);
    assert_eq!(elements(&site.plugin), published);
    let _server = EchoServer::start(&pod, Family::V4, 80).unwrap();
    site.neighbour.call_echo(at(NODE[0], 8080), "x").unwrap();
}

#[test]
fn a_failed_del_of_a_pod_whose_port_was_refused_leaves_it_to_its_holder() {
    let plugin = plugin_node();
    let conf = one_port(9);
    let (_holder, _) = plugin.attached("holder", &conf);
    let published = elements(&plugin);
    let pod = plugin.pod("pod");
    plugin.attempt("ADD", &conf, &pod).ok().unwrap_err();
    plugin.succeed("DEL", &conf, &pod);
    assert_eq!(elements(&plugin), published);
}

#[rstest]
#[case::of_every_address("by_port4", "{ tcp . 53 }", "53")]
#[case::of_udp("by_port6", "{ udp . 53 }", "53")]
#[case::of_one_address("by_address4", "{ 192.0.2.1 . tcp . 8080 }", "8080")]
#[case::of_the_loopback("by_address4", "{ 127.0.0.1 . tcp . 53 }", "127.0.0.1")]
fn check_notices_a_port_that_is_missing(
    #[case] map: &str,
    #[case] element: &str,
    #[case] part: &str,
) {
    let plugin = plugin_node();
    let (pod, result) = plugin.attached("pod", &everything());
    let conf = with(everything(), "prevResult", result);
    plugin.succeed("CHECK", &conf, &pod);
    remove(&plugin, map, element);
    let outcome = plugin.attempt("CHECK", &conf, &pod);
    assert!(outcome.err_msg().contains(part), "{outcome:?}");
    assert!(
        outcome.err_code().is_some_and(|code| code >= 100),
        "{outcome:?}"
    );
    // What is gone already can't stop the rest from going.
    plugin.succeed("DEL", &conf, &pod);
    assert_eq!(elements(&plugin), Vec::<String>::new());
}

#[test]
fn check_notices_a_port_that_leads_elsewhere() {
    let plugin = plugin_node();
    let conf = one_port(9);
    let (pod, result) = plugin.attached("pod", &conf);
    remove(&plugin, "by_port4", "{ tcp . 8080 }");
    let element = "{ tcp . 8080 : 10.9.0.99 . 80 }";
    let add = ["nft", "add", "element", "inet", "headcni-ports", "by_port4"];
    plugin.node.run(add.iter().chain(&[element])).unwrap();
    let conf = with(conf, "prevResult", result);
    plugin.attempt("CHECK", &conf, &pod).ok().unwrap_err();
    // It isn't this pod's, so it stays.
    plugin.succeed("DEL", &conf, &pod);
    let left = elements(&plugin);
    assert!(left.len() == 1 && left[0].contains("10.9.0.99"), "{left:?}");
}

fn remove(plugin: &PluginNode, map: &str, element: &str) {
    let delete = ["nft", "delete", "element", "inet", "headcni-ports", map];
    plugin.node.run(delete.iter().chain(&[element])).unwrap();
}

#[test]
fn two_interfaces_of_one_pod_keep_their_ports_apart() {
    let plugin = plugin_node();
    let [one, two] = [8081, 8082].map(|port| publishing(ipv4(), &[mapping("tcp", port, 80)]));
    let pod: Pod = plugin.pod("pod");
    plugin.succeed("ADD", &one, &pod);
    let first = elements(&plugin);
    let second = |verb, conf| call(verb, conf).pod(&pod).ifname("eth1");
    plugin.run(&second("ADD", &two)).ok().unwrap();
    assert_ne!(elements(&plugin), first);
    plugin.run(&second("DEL", &two)).ok().unwrap();
    assert_eq!(elements(&plugin), first);
}
