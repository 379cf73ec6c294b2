//! Several interfaces in one pod: each is reached by its own address, and leaves nothing behind.

mod setup;

use lab::{Ignore, Netns};
use rstest::rstest;
use serde_json::{Value, json};

use self::setup::{Stage, addresses, answering, traces};
use crate::networks::{call, dual_stack, ip, ipv4, plugin_node, with};

/// A second network.
fn other() -> Value {
    json!({
        "cniVersion": "1.1.0", "name": "other", "type": "headcni",
        "ipam": { "type": "headcni-ipam",
            "ranges": [[{ "subnet": "10.8.0.0/24" }], [{ "subnet": "fd00:8::/64" }]] },
    })
}

/// The second network with routes of its own, which don't collide with anybody's.
fn other_with_routes() -> Value {
    let mut conf = other();
    conf["ipam"]["routes"] = json!([{ "dst": "192.0.2.0/24" }, { "dst": "2001:db8::/32" }]);
    conf
}

/// The first network with routes that lead everywhere but by two halves.
fn halves() -> Value {
    let mut conf = dual_stack();
    conf["ipam"]["routes"] = json!([{ "dst": "0.0.0.0/1" }, { "dst": "128.0.0.0/1" },
        { "dst": "::/1" }, { "dst": "8000::/1" }]);
    conf
}

fn version(conf: Value, version: &str) -> Value {
    with(conf, "cniVersion", json!(version))
}

#[rstest]
#[case::one_network(dual_stack(), dual_stack())]
#[case::one_network_ipv4(ipv4(), ipv4())]
#[case::two_networks(dual_stack(), other())]
#[case::one_family_more(ipv4(), other())]
#[case::other_routes(dual_stack(), other_with_routes())]
#[case::half_routes(halves(), other())]
#[case::default_after_others(other_with_routes(), dual_stack())]
#[case::version_1_0(version(dual_stack(), "1.0.0"), version(dual_stack(), "1.0.0"))]
#[case::version_0_4(version(dual_stack(), "0.4.0"), version(other(), "0.4.0"))]
fn both_interfaces_are_reached_and_either_can_go_first(
    #[case] first: Value,
    #[case] second: Value,
    #[values("net1", "eth0")] goes_first: &str,
) {
    let stage = Stage::new();
    let (neighbour, _) = stage.plugin.attached("neighbour", &dual_stack());
    // So that whatever the second network needs for all of its pods is there.
    let early = stage.plugin.pod("early");
    for conf in [&first, &second] {
        stage.ask("ADD", conf, &early, "eth0");
        stage.ask("DEL", conf, &early, "eth0");
    }
    let last = Ignore::new().host_local("/var/lib/cni/networks/headcni/other");
    let before = stage.plugin.snapshot().ignoring(last);
    let pod = stage.plugin.pod("p");
    let _server = answering(&pod);
    let untouched = traces(&pod);
    let of_first = stage.ask("ADD", &first, &pod, "eth0").unwrap();
    let alone = traces(&pod);
    let of_second = stage.ask("ADD", &second, &pod, "net1").unwrap();
    stage.assert_reached(&neighbour, &addresses(&of_first));
    stage.assert_reached(&neighbour, &addresses(&of_second));

    let known_first = with(first, "prevResult", of_first.clone());
    let known_second = with(second, "prevResult", of_second.clone());
    stage.ask("CHECK", &known_first, &pod, "eth0");
    stage.ask("CHECK", &known_second, &pod, "net1");
    if goes_first == "net1" {
        stage.ask("DEL", &known_second, &pod, "net1");
        assert_eq!(pod.links().unwrap(), ["eth0"]);
        assert_eq!(traces(&pod), alone);
        // Alone, it answers where its routes lead.
        if known_first["ipam"] != other_with_routes()["ipam"] {
            stage.assert_reached(&neighbour, &addresses(&of_first));
        }
        stage.ask("CHECK", &known_first, &pod, "eth0");
        stage.ask("DEL", &known_first, &pod, "eth0");
    } else {
        stage.ask("DEL", &known_first, &pod, "eth0");
        assert_eq!(pod.links().unwrap(), ["net1"]);
        stage.assert_reached(&neighbour, &addresses(&of_second));
        stage.ask("CHECK", &known_second, &pod, "net1");
        stage.ask("DEL", &known_second, &pod, "net1");
    }
    assert_eq!(traces(&pod), untouched);
    stage.plugin.node.assert_unchanged(&before);
}

#[test]
fn three_interfaces_are_reached_and_go_in_any_order() {
    let stage = Stage::new();
    let (neighbour, _) = stage.plugin.attached("neighbour", &dual_stack());
    let pod = stage.plugin.pod("p");
    let _server = answering(&pod);
    let untouched = traces(&pod);
    let names = ["eth0", "net1", "net2"];
    let confs = [dual_stack(), other(), dual_stack()];
    let mut known = Vec::new();
    for (name, conf) in names.iter().zip(&confs) {
        let result = stage.ask("ADD", conf, &pod, name).unwrap();
        known.push((name, with(conf.clone(), "prevResult", result)));
    }
    let reach = |known: &[(&&str, Value)]| {
        for (name, conf) in known {
            stage.assert_reached(&neighbour, &addresses(&conf["prevResult"]));
            stage.ask("CHECK", conf, &pod, name);
        }
    };
    reach(&known);
    for gone in [1, 0, 0] {
        let (name, conf) = known.remove(gone);
        stage.ask("DEL", &conf, &pod, name);
        reach(&known);
    }
    assert_eq!(traces(&pod), untouched);
}

#[test]
fn a_second_interface_that_comes_back_works_again() {
    let stage = Stage::new();
    let (neighbour, _) = stage.plugin.attached("neighbour", &dual_stack());
    let pod = stage.plugin.pod("p");
    let _server = answering(&pod);
    let first = stage.ask("ADD", &dual_stack(), &pod, "eth0").unwrap();
    let alone = traces(&pod);
    for _ in 0..3 {
        let second = stage.ask("ADD", &other(), &pod, "net1").unwrap();
        stage.assert_reached(&neighbour, &addresses(&second));
        stage.assert_reached(&neighbour, &addresses(&first));
        // As a runtime that remembers nothing: the record has to do.
        stage.ask("DEL", &other(), &pod, "net1");
        assert_eq!(traces(&pod), alone);
    }
}

#[test]
fn a_port_of_the_second_interface_leads_to_its_address() {
    let stage = Stage::new();
    let pod = stage.plugin.pod("p");
    let first = stage.ask("ADD", &dual_stack(), &pod, "eth0").unwrap();
    let ports = json!([{ "hostPort": 8080, "containerPort": 80, "protocol": "tcp" }]);
    let conf = with(other(), "runtimeConfig", json!({ "portMappings": ports }));
    let second = stage.ask("ADD", &conf, &pod, "net1").unwrap();
    let _server = answering(&pod);
    let host_port = "192.168.7.1:8080".parse().unwrap();
    stage.outside.call_echo(host_port, "hello").unwrap();
    let leads_to = format!("tcp . 8080 : {} . 80", ip(&second, 0));
    assert!(stage.plugin.ruleset().contains(&leads_to));
    let known = with(conf, "prevResult", second);
    stage.ask("CHECK", &known, &pod, "net1");

    let known_first = with(dual_stack(), "prevResult", first);
    stage.ask("DEL", &known_first, &pod, "eth0");
    stage.outside.call_echo(host_port, "still here").unwrap();
    stage.ask("DEL", &known, &pod, "net1");
    assert!(!stage.plugin.ruleset().contains("8080"));
}

#[test]
fn beside_the_interface_of_another_plugin_ours_keep_their_rules() {
    let plugin = plugin_node();
    let pod = plugin.pod("p");
    let foreign = "ip link add eth0 type veth peer name other
        ip address add 192.0.2.2/24 dev eth0
        ip link set eth0 up; ip link set other up
        ip route add default via 192.0.2.1 dev eth0";
    pod.run(["sh", "-ec", foreign]).unwrap();
    let conf = ipv4();
    let on = |verb, ifname| plugin.run(&call(verb, &conf).pod(&pod).ifname(ifname));
    let one = on("ADD", "net1").ok_json().unwrap();
    let two = on("ADD", "net2").ok_json().unwrap();
    plugin.node.ping(&ip(&one, 0)).unwrap();
    plugin.node.ping(&ip(&two, 0)).unwrap();

    on("DEL", "net2").ok().unwrap();
    plugin.node.ping(&ip(&one, 0)).unwrap();
    on("DEL", "net1").ok().unwrap();
}
