//! Which addresses and routes a pod gets: from ranges, from the subnet file, from other plugins.

use lab::scenario::PluginNode;
use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt;

use lab::{Netns, Noop, Pod};
use rstest::rstest;
use serde_json::{Value, json};

use crate::networks::{call, cni_path, dual_stack, ip, ipv4, plugin_node, used_node, with};

const SUBNET_ENV: &str = "\
HEADCNI_NETWORK=10.244.0.0/16
HEADCNI_SUBNET=10.244.1.0/24
HEADCNI_IPV6_NETWORK=fd00:244::/48
HEADCNI_IPV6_SUBNET=fd00:244:0:1::/64
HEADCNI_MTU=1400
HEADCNI_IPMASQ=true
";

/// The pod's routes that somebody made, in the main table.
fn routes(pod: &Pod) -> Vec<String> {
    let all = pod.routes().unwrap().into_iter();
    let mut made: Vec<String> = all
        .filter(|route| !route.contains(" proto kernel "))
        .filter(|route| !route.contains(" table "))
        .map(|route| route.replace(" proto 104", "").replace(" pref medium", ""))
        .collect();
    made.sort();
    made
}

#[test]
fn without_routes_everything_goes_by_the_gateway_of_its_family() {
    let plugin = plugin_node();
    let (pod, result) = plugin.attached("p", &dual_stack());
    assert_eq!(
        result["routes"],
        json!([{ "dst": "0.0.0.0/0", "gw": "10.9.0.1" }, { "dst": "::/0", "gw": "fd00:9::1" }])
    );
    assert_eq!(
        routes(&pod),
        [
            "10.9.0.1 dev eth0 scope link",
            "default via 10.9.0.1 dev eth0 onlink",
            "default via fd00:9::1 dev eth0 metric 1024 onlink",
            "fd00:9::1 dev eth0 metric 1024",
        ]
    );
}

#[test]
fn given_routes_are_all_there_are_but_for_the_pod_s_own_subnet() {
    let plugin = plugin_node();
    let mut conf = dual_stack();
    conf["ipam"]["routes"] = json!([
        { "dst": "192.0.2.0/24" }, { "dst": "198.51.100.0/24", "gw": "10.9.0.200" },
        { "dst": "2001:db8::/32" },
    ]);
    let (one, first) = plugin.attached("one", &conf);
    let (_two, second) = plugin.attached("two", &conf);
    assert_eq!(first["routes"], conf["ipam"]["routes"]);
    assert_eq!(
        routes(&one),
        [
            "10.9.0.0/24 via 10.9.0.1 dev eth0 onlink",
            "10.9.0.1 dev eth0 scope link",
            "10.9.0.200 dev eth0 scope link",
            "192.0.2.0/24 via 10.9.0.1 dev eth0 onlink",
            "198.51.100.0/24 via 10.9.0.200 dev eth0 onlink",
            "2001:db8::/32 via fd00:9::1 dev eth0 metric 1024 onlink",
            "fd00:9::/64 via fd00:9::1 dev eth0 metric 1024 onlink",
            "fd00:9::1 dev eth0 metric 1024",
        ]
    );
    for family in [0, 1] {
        one.ping(&ip(&second, family)).unwrap();
        plugin.node.ping(&ip(&first, family)).unwrap();
    }
    let nowhere = one.attempt(["ip", "route", "get", "203.0.113.1"]).unwrap();
    assert!(nowhere.stderr.contains("unreachable"), "{nowhere:?}");
    plugin.succeed("CHECK", &with(conf, "prevResult", first), &one);
}

#[rstest]
#[case::both_by_default(json!({}), &["10.244.1.2/24", "fd00:244:0:1::2/64"])]
#[case::both(json!({ "enable_ipv6": true }), &["10.244.1.2/24", "fd00:244:0:1::2/64"])]
#[case::ipv4(json!({ "enable_ipv6": false }), &["10.244.1.2/24"])]
#[case::by_host_local(json!({ "enable_ipv6": true, "ipam": { "type": "host-local" } }),
    &["10.244.1.2/24", "fd00:244:0:1::2/64"])]
fn enable_ipv6_chooses_among_the_node_s_subnets(#[case] more: Value, #[case] addresses: &[&str]) {
    let plugin = plugin_node();
    plugin
        .node
        .write(api::paths::SUBNET_FILE, SUBNET_ENV)
        .unwrap();
    let mut conf = json!({ "cniVersion": "1.1.0", "name": "net", "type": "headcni" });
    conf.as_object_mut()
        .unwrap()
        .extend(more.as_object().unwrap().clone());
    let (one, first) = plugin.attached("one", &conf);
    let (_two, second) = plugin.attached("two", &conf);
    let given = first["ips"].as_array().unwrap();
    let given: Vec<&str> = given
        .iter()
        .map(|ip| ip["address"].as_str().unwrap())
        .collect();
    assert_eq!(given, addresses);
    assert_eq!(one.link("eth0").unwrap().unwrap()["mtu"], 1400);
    for family in 0..addresses.len() {
        one.ping(&ip(&second, family)).unwrap();
    }
    // Other nodes' pods see this one's own address: the whole cluster is exempt.
    assert!(plugin.ruleset().contains("10.244.0.0/16"));
    plugin.succeed("CHECK", &with(conf.clone(), "prevResult", first), &one);
    plugin.succeed("DEL", &conf, &one);
}

#[rstest]
#[case::with_a_gateway(json!("10.10.0.1"))]
#[case::without_a_gateway(Value::Null)]
fn the_real_static_plugin_gives_addresses(#[case] gateway: Value) {
    let conf = |address: &str| {
        let mut address = json!({ "address": address });
        if !gateway.is_null() {
            address["gateway"] = gateway.clone();
        }
        with(
            ipv4(),
            "ipam",
            json!({ "type": "static", "addresses": [address] }),
        )
    };
    let confs = [conf("10.10.0.5/24"), conf("10.10.0.6/24")];
    let plugin = used_node(&confs[0]);
    // A machine has an address, and without a gateway nobody else gives this one any.
    let address = ["ip", "address", "add", "192.168.7.1/32", "dev", "lo"];
    plugin.node.run(address).unwrap();
    let before = plugin.snapshot();
    let (one, first) = plugin.attached("one", &confs[0]);
    let (two, second) = plugin.attached("two", &confs[1]);
    assert_eq!(first["ips"][0]["address"], "10.10.0.5/24");
    assert_eq!(
        first["ips"][0].get("gateway"),
        Some(&gateway).filter(|gw| !gw.is_null())
    );
    one.ping("10.10.0.6").unwrap();
    plugin.node.ping("10.10.0.5").unwrap();
    if let Some(gateway) = gateway.as_str() {
        one.ping(gateway).unwrap();
    }
    for (pod, conf, result) in [(&one, &confs[0], first), (&two, &confs[1], second)] {
        plugin.succeed("CHECK", &with(conf.clone(), "prevResult", result), pod);
        plugin.succeed("DEL", conf, pod);
    }
    plugin.node.assert_unchanged(&before);
}

/// An IPAM plugin that fails the first `failures` times, and writes down what it is called for.
fn flaky(plugin: &PluginNode, failures: u32) -> String {
    let script = format!(
        "#!/bin/sh\n\
         echo $CNI_COMMAND >> /run/asked\n\
         [ $CNI_COMMAND = ADD ] || exit 0\n\
         if [ $(grep -c ADD /run/asked) -le {failures} ]; then\n\
           echo '{{\"cniVersion\":\"1.1.0\",\"code\":11,\"msg\":\"not in the mood\"}}'; exit 1\n\
         fi\n\
         echo '{{\"cniVersion\":\"1.1.0\",\"ips\":[{{\"address\":\"10.9.0.7/24\"}}]}}'\n"
    );
    let file = "/opt/flaky/flaky";
    plugin.node.write(file, script).unwrap();
    let executable = Permissions::from_mode(0o755);
    std::fs::set_permissions(plugin.node.path(file), executable).unwrap();
    format!("/opt/flaky:{}", cni_path())
}

#[rstest]
#[case::at_once(0, &["ADD"])]
#[case::second_time(1, &["ADD", "DEL", "ADD"])]
#[case::third_time(2, &["ADD", "DEL", "ADD", "DEL", "ADD"])]
fn an_ipam_plugin_is_asked_three_times_with_a_del_between(
    #[case] failures: u32,
    #[case] verbs: &[&str],
) {
    let plugin = plugin_node();
    let pod = plugin.pod("p");
    let path = flaky(&plugin, failures);
    let conf = with(ipv4(), "ipam", json!({ "type": "flaky" }));
    let outcome = plugin.run(&call("ADD", &conf).pod(&pod).path(path));
    assert_eq!(ip(&outcome.ok_json().unwrap(), 0), "10.9.0.7");
    let asked = plugin.node.read("/run/asked").unwrap();
    assert_eq!(asked.split_whitespace().collect::<Vec<_>>(), verbs);
}

#[test]
fn an_ipam_plugin_that_fails_three_times_fails_the_add() {
    let plugin = used_node(&ipv4());
    let before = plugin.snapshot();
    let pod = plugin.pod("p");
    let path = flaky(&plugin, 3);
    let conf = with(ipv4(), "ipam", json!({ "type": "flaky" }));
    let outcome = plugin.run(&call("ADD", &conf).pod(&pod).path(path));
    assert_eq!(outcome.err_code(), Some(11), "{outcome:?}");
    assert!(outcome.err_msg().contains("not in the mood"), "{outcome:?}");
    let asked = plugin.node.read("/run/asked").unwrap();
    let asked: Vec<&str> = asked.split_whitespace().collect();
    assert_eq!(asked, ["ADD", "DEL", "ADD", "DEL", "ADD", "DEL"]);
    plugin.node.assert_unchanged(&before);
}

#[test]
fn an_answer_that_is_none_counts_as_a_failure() {
    let plugin = plugin_node();
    let pod = plugin.pod("p");
    let mut noop = Noop::new().unwrap();
    noop.report_garbage("{").unwrap();
    // An IPAM plugin gets the network's configuration, and noop looks for its own keys there.
    let mut conf = with(ipv4(), "ipam", json!({ "type": "noop" }));
    for key in ["debugFile", "commandLog"] {
        conf[key] = noop.conf()[key].clone();
    }
    let outcome = plugin.attempt("ADD", &conf, &pod);
    assert!(!outcome.status.success());
    let asked = noop.verbs().unwrap();
    assert_eq!(asked, ["ADD", "DEL", "ADD", "DEL", "ADD", "DEL"]);
    assert!(pod.links().unwrap().is_empty());
}
