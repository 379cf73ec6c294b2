//! GC where files are lost: links say themselves whose they are, leases and ports by their address.

use lab::{Netns, Pod};
use rstest::rstest;
use serde_json::Value;

use crate::gc::{collect, collect_at_once, with_port};
use crate::networks::{LEASE_DIR, RECORD_DIR, dual_stack, host_link, ip, ipv4, used_node};

#[rstest]
#[case::with_records("true", true)]
#[case::without_records("rm -r /var/lib/cni/headcni", true)]
#[case::without_leases("rm -r /var/lib/cni/networks/headcni", false)]
#[case::without_anything("rm -r /var/lib/cni", false)]
fn what_is_left_of_an_attachment_is_found(#[case] accident: &str, #[case] has_leases: bool) {
    let plugin = used_node(&dual_stack());
    let conf = dual_stack();
    let (keep, kept) = plugin.attached("keep", &conf);
    let (lost, result) = plugin.attached("lost", &conf);
    let (gone, _) = plugin.attached("gone", &conf);
    gone.delete().unwrap();
    plugin.node.run(["sh", "-c", accident]).unwrap();
    collect(&plugin, &conf, &[("keep", "eth0")]);
    assert_eq!(plugin.node.links().unwrap(), [host_link(&kept)]);
    assert_eq!(keep.links().unwrap(), ["eth0"]);
    assert!(lost.links().unwrap().is_empty());
    let lease = |result: &Value, family| format!("{LEASE_DIR}/{}", ip(result, family));
    for family in [0, 1] {
        plugin.node.ping(&ip(&kept, family)).unwrap();
        assert!(!plugin.node.has(lease(&result, family)));
        assert_eq!(plugin.node.has(lease(&kept, family)), has_leases);
        let routes = plugin.node.routes().unwrap().join("\n");
        assert!(
            !routes.contains(&format!("{} ", ip(&result, family))),
            "{routes}"
        );
    }
    assert!(!plugin.node.has(format!("{RECORD_DIR}/lost@eth0.json")));
}

#[test]
fn links_without_a_record_go_in_one_batch() {
    let plugin = used_node(&ipv4());
    let pods: Vec<Pod> = (0..50)
        .map(|n| plugin.attached(&format!("p{n}"), &ipv4()).0)
        .collect();
    plugin.node.run(["rm", "-r", RECORD_DIR]).unwrap();
    collect_at_once(&plugin, &ipv4());
    assert!(plugin.node.links().unwrap().is_empty());
    assert!(pods.iter().all(|pod| pod.links().unwrap().is_empty()));
}

#[test]
fn a_port_whose_pod_is_collected_can_be_had_again() {
    let plugin = used_node(&dual_stack());
    let conf = with_port(&dual_stack(), 8080);
    let (_lost, _) = plugin.attached("lost", &conf);
    plugin.node.run(["rm", "-r", RECORD_DIR]).unwrap();
    collect(&plugin, &dual_stack(), &[]);
    let (next, result) = plugin.attached("next", &conf);
    let rules = plugin.ruleset();
    assert!(
        rules.contains(&format!("{} . 80", ip(&result, 0))),
        "{rules}"
    );
    plugin.succeed("DEL", &conf, &next);
    assert!(!plugin.ruleset().contains("8080"));
}
