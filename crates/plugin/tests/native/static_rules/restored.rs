//! Whose ports come back with the rules, and whose don't.

use lab::scenario::PluginNode;
use lab::{EchoServer, Family, Netns};
use rstest::rstest;
use serde_json::{Value, json};

use super::network;
use crate::host_ports::{NODE, Site, at, elements, mapping, publishing};
use crate::networks::{RECORD_DIR, ipv4, plugin_node};

fn publisher() -> Value {
    publishing(ipv4(), &[mapping("tcp", 8080, 80)])
}

fn wipe(plugin: &PluginNode) {
    plugin.node.run(["nft", "flush", "ruleset"]).unwrap();
}

#[test]
fn a_new_pod_does_not_get_the_port_that_a_running_one_has_lost_by_a_wipe() {
    let site = Site::new();
    let (pod, _) = site.plugin.attached("pod", &publisher());
    let published = elements(&site.plugin);
    wipe(&site.plugin);
    let other = site.plugin.pod("other");
    site.plugin.fail("ADD", &publisher(), &other, 11);
    assert_eq!(elements(&site.plugin), published);
    let _server = EchoServer::start(&pod, Family::V4, 80).unwrap();
    site.neighbour.call_echo(at(NODE[0], 8080), "x").unwrap();
}

/// How a pod can have ended without a DEL.
#[derive(Clone, Copy)]
enum End {
    /// With all of its machine.
    Reboot,
    /// With a machine that is a container itself: the kernel goes on.
    Restart,
}

#[rstest]
#[case::reboot(End::Reboot)]
#[case::restart(End::Restart)]
fn ports_of_pods_that_ended_with_the_machine_do_not_come_back(#[case] end: End) {
    let site = Site::new();
    let plugin = &site.plugin;
    let (dead, _) = plugin.attached("dead", &publisher());
    dead.run(["ip", "link", "delete", "eth0"]).unwrap();
    dead.delete().unwrap();
    if matches!(end, End::Reboot) {
        let path = format!("{RECORD_DIR}/dead@eth0.json");
        let record = plugin.node.read(&path).unwrap();
        let mut record: Value = serde_json::from_str(record.lines().last().unwrap()).unwrap();
        record["boot"] = json!("00000000-0000-0000-0000-000000000000");
        plugin.node.write(&path, format!("{record}\n")).unwrap();
    }
    wipe(plugin);

    let other = network("other", "10.8.0.0/24");
    plugin.succeed("ADD", &other, &plugin.pod("first"));
    assert_eq!(elements(plugin), Vec::<String>::new());
    let (pod, _) = plugin.attached("pod", &publisher());
    let published = elements(plugin);
    let _server = EchoServer::start(&pod, Family::V4, 80).unwrap();
    site.neighbour.call_echo(at(NODE[0], 8080), "x").unwrap();
    // The runtime remembers the dead one at last.
    plugin.succeed("DEL", &publisher(), &dead);
    assert_eq!(elements(plugin), published);
}

#[test]
fn the_port_of_a_pod_that_has_gone_since_does_not_come_back() {
    let plugin = plugin_node();
    let (gone, _) = plugin.attached("gone", &publisher());
    let other = network("other", "10.8.0.0/24");
    plugin.succeed("ADD", &other, &plugin.pod("first"));
    wipe(&plugin);
    plugin.succeed("DEL", &publisher(), &gone);
    plugin.succeed("ADD", &other, &plugin.pod("next"));
    assert_eq!(elements(&plugin), Vec::<String>::new());
}
