//! What the node's subnets make of a delegate: addresses, gateway, routes, MTU, masquerading.

use std::net::IpAddr;

use lab::{Call, EchoServer, Family, Netns, Node};
use rstest::rstest;
use serde_json::{Value, json};

use crate::calls::*;

const DUAL: &str = "\
HEADCNI_NETWORK=10.244.0.0/16
HEADCNI_SUBNET=10.244.1.0/24
HEADCNI_IPV6_NETWORK=fd00:244::/48
HEADCNI_IPV6_SUBNET=fd00:244:0:1::/64
HEADCNI_MTU=1400
HEADCNI_IPMASQ=true
";

#[test]
fn pods_get_an_address_of_each_family() {
    let node = node_with(DUAL);
    let (one, two) = (node.pod("one").unwrap(), node.pod("two").unwrap());
    let conf = delegating("1.1.0", json!({}));
    let before = node.snapshot(DIRS).unwrap().ignoring(lasting("net"));
    let first = ask("ADD", &conf, &one).ok_json().unwrap();
    let second = ask("ADD", &conf, &two).ok_json().unwrap();
    assert_eq!(first["ips"].as_array().unwrap().len(), 2);
    assert_eq!(nth_address(&first, 0), "10.244.1.2");
    assert_eq!(nth_address(&first, 1), "fd00:244:0:1::2");
    for index in 0..2 {
        one.ping(&nth_address(&second, index)).unwrap();
        let gateway = first["ips"][index]["gateway"].as_str().unwrap();
        one.ping(gateway).unwrap();
    }
    let routes = main_routes(&one);
    for expected in [
        "default via 10.244.1.1 dev eth0",
        "10.244.0.0/16 via 10.244.1.1 dev eth0",
        "default via fd00:244:0:1::1 dev eth0 metric 1024 pref medium",
        "fd00:244::/48 via fd00:244:0:1::1 dev eth0 metric 1024 pref medium",
    ] {
        assert!(routes.iter().any(|route| route == expected), "{routes:?}");
    }
    assert_eq!(one.link("eth0").unwrap().unwrap()["mtu"], 1400);
    for (pod, result) in [(&one, first), (&two, second)] {
        let conf = merged(&conf, json!({"prevResult": result}));
        ask("CHECK", &conf, pod).ok().unwrap();
        ask("DEL", &conf, pod).ok().unwrap();
    }
    node.assert_unchanged(&before);
}

#[test]
fn ipv6_alone_is_enough() {
    let env = "HEADCNI_IPV6_NETWORK=fd00:244::/48\nHEADCNI_IPV6_SUBNET=fd00:244:0:1::/64\n\
               HEADCNI_MTU=1280\nHEADCNI_IPMASQ=true\n";
    let node = node_with(env);
    let pod = node.pod("p").unwrap();
    let result = ask("ADD", &delegating("1.1.0", json!({})), &pod);
    let result = result.ok_json().unwrap();
    assert_eq!(result["ips"].as_array().unwrap().len(), 1);
    assert_eq!(address(&result), "fd00:244:0:1::2");
    pod.ping("fd00:244:0:1::1").unwrap();
}

#[test]
fn host_bits_name_the_gateway() {
    let node = node_with(&SUBNET_ENV.replace("10.244.1.0/24", "10.244.1.254/24"));
    let pod = node.pod("p").unwrap();
    let result = ask("ADD", &delegating("1.1.0", json!({})), &pod);
    let result = result.ok_json().unwrap();
    assert_eq!(address(&result), "10.244.1.1", "the first one is free now");
    assert_eq!(result["ips"][0]["gateway"], "10.244.1.254");
    let routes = main_routes(&pod);
    assert!(
        routes.contains(&"default via 10.244.1.254 dev eth0".to_owned()),
        "{routes:?}"
    );
    pod.ping("10.244.1.254").unwrap();
}

#[test]
fn a_node_can_have_several_subnets() {
    let env = SUBNET_ENV.replace("10.244.1.0/24", "10.244.1.0/30,10.244.9.0/30");
    let node = node_with(&env);
    let pods = ["a", "b"].map(|name| node.pod(name).unwrap());
    // Not a bridge: that has one IPv4 address, so that its pods have one gateway.
    let conf = delegating("1.1.0", json!({"delegate": {"type": "ptp"}}));
    let add = |pod| address(&ask("ADD", &conf, pod).ok_json().unwrap());
    assert_eq!(add(&pods[0]), "10.244.1.2");
    assert_eq!(add(&pods[1]), "10.244.9.2", "when the first one is full");
}

fn with_all_variables(call: Call) -> Call {
    call.env("HEADCNI_NETWORK", "10.250.0.0/16")
        .env("HEADCNI_SUBNET", "10.250.7.0/24")
        .env("HEADCNI_MTU", "1301")
        .env("HEADCNI_IPMASQ", "true")
}

#[rstest]
#[case::alone(None)]
#[case::against_a_file(Some(SUBNET_ENV))]
#[case::without_reading_a_torn_file(Some("HEADCNI_NETW"))]
fn the_environment_says_it_all(#[case] file: Option<&str>) {
    let node = Node::new("n1").unwrap();
    if let Some(file) = file {
        node.write(api::paths::SUBNET_FILE, file).unwrap();
    }
    let pod = node.pod("p").unwrap();
    let call = with_all_variables(call("ADD", &delegating("1.1.0", json!({}))).pod(&pod));
    let result = run(&node, &call).ok_json().unwrap();
    assert_eq!(address(&result), "10.250.7.2");
    assert_eq!(pod.link("eth0").unwrap().unwrap()["mtu"], 1301);
    let routes = main_routes(&pod);
    assert!(
        routes.contains(&"10.250.0.0/16 via 10.250.7.1 dev eth0".to_owned()),
        "{routes:?}"
    );
}

#[test]
fn one_variable_replaces_one_line_of_the_file() {
    let node = node();
    let pod = node.pod("p").unwrap();
    let call = call("ADD", &delegating("1.1.0", json!({}))).pod(&pod);
    let call = call.env("HEADCNI_SUBNET", "10.244.77.0/24");
    let result = run(&node, &call).ok_json().unwrap();
    assert_eq!(address(&result), "10.244.77.2");
    assert_eq!(
        pod.link("eth0").unwrap().unwrap()["mtu"],
        1380,
        "the file's"
    );
}

#[test]
fn the_subnet_file_is_by_key_then_variable_then_default() {
    let node = node();
    for (file, subnet) in [
        ("/etc/by-variable", "10.244.2.0"),
        ("/etc/by-key", "10.244.3.0"),
    ] {
        node.write(file, SUBNET_ENV.replace("10.244.1.0", subnet))
            .unwrap();
    }
    let keyed = json!({"subnetFile": "/etc/by-key"});
    for (more, variable, expected) in [
        (json!({}), "", "10.244.1.2"),
        (json!({}), "/etc/by-variable", "10.244.2.2"),
        (keyed, "/etc/by-variable", "10.244.3.2"),
    ] {
        let pod = node.pod(&format!("p{expected}")).unwrap();
        let delegate = json!({"bridge": format!("b{expected}")});
        let conf = merged(&delegating("1.1.0", more), json!({"delegate": delegate}));
        let call = call("ADD", &conf).pod(&pod);
        let result = run(&node, &call.env("HEADCNI_SUBNET_FILE", variable));
        assert_eq!(address(&result.ok_json().unwrap()), expected);
    }
}

#[test]
fn the_configs_own_ipam_wins_and_needs_no_file() {
    let node = Node::new("n1").unwrap();
    let pod = node.pod("p").unwrap();
    let ipam = json!({
        "type": "host-local", "subnet": "10.9.8.0/24", "routes": [{"dst": "10.0.0.0/8"}],
    });
    let result = ask("ADD", &delegating("1.1.0", json!({"ipam": ipam})), &pod);
    assert_eq!(address(&result.ok_json().unwrap()), "10.9.8.2");
    let expected = [
        "10.0.0.0/8 via 10.9.8.1 dev eth0",
        "10.9.8.0/24 dev eth0 proto kernel scope link src 10.9.8.2",
    ];
    assert_eq!(main_routes(&pod), expected);
}

#[test]
fn the_configs_own_ipam_is_the_base_for_the_file() {
    let node = node();
    let pod = node.pod("p").unwrap();
    let ipam = json!({
        "type": "host-local", "dataDir": "/run/leases", "routes": [{"dst": "10.0.0.0/8"}],
    });
    let delegate = json!({"bridge": "cni0", "mtu": 1290, "ipam": ipam});
    let conf = merged(
        &delegating("1.1.0", json!({})),
        json!({"delegate": delegate}),
    );
    let result = ask("ADD", &conf, &pod).ok_json().unwrap();
    assert_eq!(address(&result), "10.244.1.2", "the file's subnet");
    assert!(node.has("/run/leases/net/10.244.1.2"));
    let expected = [
        "10.0.0.0/8 via 10.244.1.1 dev eth0",
        "10.244.1.0/24 dev eth0 proto kernel scope link src 10.244.1.2",
    ];
    assert_eq!(main_routes(&pod), expected, "but not the file's routes");
    assert_eq!(pod.link("eth0").unwrap().unwrap()["mtu"], 1290);
}

#[rstest]
#[case::the_node_masquerades("true", json!({}), "10.244.1.2")]
#[case::the_delegate_masquerades("false", json!({}), "192.0.2.1")]
#[case::the_delegate_says_that_nobody_does("false", json!({"ipMasq": false}), "10.244.1.2")]
#[case::the_delegate_says_that_it_does("true", json!({"ipMasq": true}), "192.0.2.1")]
fn the_world_sees(#[case] ipmasq: &str, #[case] more: Value, #[case] source: IpAddr) {
    let env = SUBNET_ENV.replace("IPMASQ=true", &format!("IPMASQ={ipmasq}"));
    let (node, outside) = (node_with(&env), Node::new("outside").unwrap());
    node.wire("up0", "192.0.2.1/24", &outside, "192.0.2.2/24")
        .unwrap();
    let back = ["ip", "route", "add", "10.244.1.0/24", "via", "192.0.2.1"];
    outside.run(back).unwrap();
    let pod = node.pod("p").unwrap();
    let delegate = merged(&json!({"bridge": "cni0"}), more);
    let conf = merged(
        &delegating("1.1.0", json!({})),
        json!({"delegate": delegate}),
    );
    let before = node.snapshot(DIRS).unwrap().ignoring(lasting("net"));
    ask("ADD", &conf, &pod).ok().unwrap();
    let _server = EchoServer::start(&outside, Family::V4, 7000).unwrap();
    let server = "192.0.2.2:7000".parse().unwrap();
    assert_eq!(pod.call_echo(server, "hello").unwrap(), source);
    ask("DEL", &conf, &pod).ok().unwrap();
    node.assert_unchanged(&before);
}
