//! Several interfaces in one pod: each is reached by its own address, and leaves nothing behind.

use std::net::SocketAddr;

use lab::{EchoServer, Family, Ignore, Netns, Node, Pod};
use rstest::rstest;
use serde_json::{Value, json};

use crate::scene::{Scene, call, dual_stack, ip, ipv4, with};

const PORT: u16 = 80;

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

/// A machine with a pod on it, a neighbour of that pod, and a machine outside.
struct Stage {
    outside: Node,
    scene: Scene,
}

impl Stage {
    fn new() -> Self {
        let (scene, outside) = (Scene::new(), Node::new("outside").unwrap());
        for (link, ours, theirs, networks) in [
            (
                "w4",
                "192.168.7.1",
                "192.168.7.2",
                ["10.9.0.0/24", "10.8.0.0/24"],
            ),
            (
                "w6",
                "fd00:7::1",
                "fd00:7::2",
                ["fd00:9::/64", "fd00:8::/64"],
            ),
        ] {
            let length = if link == "w4" { 24 } else { 64 };
            let (our_end, their_end) = (format!("{ours}/{length}"), format!("{theirs}/{length}"));
            scene
                .node
                .wire(link, &our_end, &outside, &their_end)
                .unwrap();
            for network in networks {
                outside
                    .run(["ip", "route", "add", network, "via", ours])
                    .unwrap();
            }
        }
        Self { outside, scene }
    }

    #[track_caller]
    fn ask(&self, verb: &str, conf: &Value, pod: &Pod, ifname: &str) -> Option<Value> {
        let outcome = self.scene.run(&call(verb, conf).pod(pod).ifname(ifname));
        if let Err(error) = outcome.ok() {
            panic!("{verb} of {ifname}: {error}");
        }
        outcome.json
    }

    /// Asserts that all of these addresses answer to a neighbour, to the host and to the outside.
    #[track_caller]
    fn assert_reached(&self, neighbour: &Pod, addresses: &[String]) {
        for address in addresses {
            let server = SocketAddr::new(address.parse().unwrap(), PORT);
            for (who, answer) in [
                ("a neighbour", neighbour.call_echo(server, "hello")),
                ("the host", self.scene.node.call_echo(server, "hello")),
                ("the outside", self.outside.call_echo(server, "hello")),
            ] {
                if let Err(error) = answer {
                    panic!("{address} doesn't answer to {who}: {error:#}");
                }
            }
        }
    }
}

/// A server on all addresses of a pod: one for IPv6 takes IPv4, too.
fn answering(pod: &Pod) -> EchoServer {
    EchoServer::start(pod, Family::V6, PORT).unwrap()
}

fn addresses(result: &Value) -> Vec<String> {
    let count = result["ips"].as_array().unwrap().len();
    (0..count).map(|index| ip(result, index)).collect()
}

/// What a pod has of rules and routes beside those that every namespace has.
fn traces(pod: &Pod) -> Vec<String> {
    let mut lines = pod.routes().unwrap();
    // A table that no rule leads to is as good as none, and goes with its link.
    lines.retain(|route| !route.contains(" table "));
    for family in ["-4", "-6"] {
        let rules = pod.run(["ip", family, "rule"]).unwrap().stdout;
        lines.extend(rules.lines().map(|line| format!("rule {family} {line}")));
        let known = ["ip", family, "neighbour", "show", "nud", "permanent"];
        let known = pod.run(known).unwrap().stdout;
        lines.extend(known.lines().map(|line| format!("neighbour {line}")));
    }
    lines.sort();
    lines
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
    let (neighbour, _) = stage.scene.attached("neighbour", &dual_stack());
    // So that whatever the second network needs for all of its pods is there.
    let early = stage.scene.pod("early");
    for conf in [&first, &second] {
        stage.ask("ADD", conf, &early, "eth0");
        stage.ask("DEL", conf, &early, "eth0");
    }
    let last = Ignore::new().host_local("/var/lib/cni/networks/headcni/other");
    let before = stage.scene.snapshot().ignoring(last);
    let pod = stage.scene.pod("p");
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
    stage.scene.node.assert_unchanged(&before);
}

#[test]
fn three_interfaces_are_reached_and_go_in_any_order() {
    let stage = Stage::new();
    let (neighbour, _) = stage.scene.attached("neighbour", &dual_stack());
    let pod = stage.scene.pod("p");
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
    let (neighbour, _) = stage.scene.attached("neighbour", &dual_stack());
    let pod = stage.scene.pod("p");
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
    let pod = stage.scene.pod("p");
    let first = stage.ask("ADD", &dual_stack(), &pod, "eth0").unwrap();
    let ports = json!([{ "hostPort": 8080, "containerPort": 80, "protocol": "tcp" }]);
    let conf = with(other(), "runtimeConfig", json!({ "portMappings": ports }));
    let second = stage.ask("ADD", &conf, &pod, "net1").unwrap();
    let _server = answering(&pod);
    let host_port = "192.168.7.1:8080".parse().unwrap();
    stage.outside.call_echo(host_port, "hello").unwrap();
    let leads_to = format!("tcp . 8080 : {} . 80", ip(&second, 0));
    assert!(stage.scene.ruleset().contains(&leads_to));
    let known = with(conf, "prevResult", second);
    stage.ask("CHECK", &known, &pod, "net1");

    let known_first = with(dual_stack(), "prevResult", first);
    stage.ask("DEL", &known_first, &pod, "eth0");
    stage.outside.call_echo(host_port, "still here").unwrap();
    stage.ask("DEL", &known, &pod, "net1");
    assert!(!stage.scene.ruleset().contains("8080"));
}
