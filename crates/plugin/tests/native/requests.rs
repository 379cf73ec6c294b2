//! What a runtime may ask of one pod: hardware address, addresses, and the form of the answer.

use lab::{Call, Netns};
use rstest::rstest;
use serde_json::{Value, json};

use crate::networks::{call, dual_stack, ip, ipv4, plugin_node, used_node, with};

const MAC: &str = "02:42:ac:11:00:07";

#[rstest]
#[case::by_runtime_config(json!({ "runtimeConfig": { "mac": MAC } }), "")]
#[case::by_args(json!({ "args": { "cni": { "mac": MAC } } }), "")]
#[case::by_cni_args(json!({}), "IgnoreUnknown=1;MAC=02:42:ac:11:00:07")]
#[case::by_all(json!({ "runtimeConfig": { "mac": MAC }, "args": { "cni": { "mac": MAC } } }),
    "MAC=02:42:AC:11:00:07")]
fn a_requested_hardware_address_is_given(#[case] more: Value, #[case] args: &str) {
    let plugin = plugin_node();
    let pod = plugin.pod("p");
    let conf = merged(dual_stack(), &more);
    let result = plugin
        .run(&asking(&conf, &more, args).pod(&pod))
        .ok_json()
        .unwrap();
    assert_eq!(result["interfaces"][1]["mac"], MAC);
    assert_eq!(pod.link("eth0").unwrap().unwrap()["address"], MAC);
    for family in [0, 1] {
        plugin.node.ping(&ip(&result, family)).unwrap();
    }
    let known = with(conf, "prevResult", result);
    let check = call("CHECK", &known).pod(&pod).args(args);
    plugin.run(&check).ok().unwrap();
}

#[rstest]
#[case::contradiction(json!({ "mac": MAC }), "MAC=02:42:ac:11:00:08", "contradicts")]
#[case::nonsense(json!({ "mac": "02:42" }), "", "runtimeConfig.mac")]
#[case::a_group_s(json!({ "mac": "01:00:5e:00:00:01" }), "", "runtimeConfig.mac")]
#[case::nobody_s(json!({ "mac": "00:00:00:00:00:00" }), "", "runtimeConfig.mac")]
fn a_hardware_address_that_cannot_be_is_refused(
    #[case] runtime: Value,
    #[case] args: &str,
    #[case] part: &str,
) {
    let plugin = used_node(&ipv4());
    let before = plugin.snapshot();
    let pod = plugin.pod("p");
    let conf = with(ipv4(), "runtimeConfig", runtime);
    let outcome = plugin.run(&call("ADD", &conf).pod(&pod).args(args));
    assert_eq!(outcome.err_code(), Some(7), "{outcome:?}");
    assert!(outcome.err_msg().contains(part), "{outcome:?}");
    plugin.node.assert_unchanged(&before);
}

#[rstest]
#[case::by_runtime_config(json!({ "runtimeConfig": { "ips": ["10.9.0.77", "fd00:9::77"] } }), "")]
#[case::with_a_prefix(json!({ "runtimeConfig": { "ips": ["10.9.0.77/24", "fd00:9::77/64"] } }), "")]
#[case::by_args(json!({ "args": { "cni": { "ips": ["10.9.0.77", "fd00:9::77"] } } }), "")]
#[case::by_cni_args(json!({}), "IP=10.9.0.77,fd00:9::77")]
fn requested_addresses_are_given(#[case] more: Value, #[case] args: &str) {
    let plugin = plugin_node();
    let (one, two) = (plugin.pod("one"), plugin.pod("two"));
    let conf = merged(dual_stack(), &more);
    let add = asking(&conf, &more, args);
    let result = plugin.run(&add.clone().pod(&one)).ok_json().unwrap();
    assert_eq!(
        [ip(&result, 0), ip(&result, 1)],
        ["10.9.0.77", "fd00:9::77"]
    );
    for family in [0, 1] {
        plugin.node.ping(&ip(&result, family)).unwrap();
    }

    let before = plugin.snapshot();
    let taken = plugin.run(&add.pod(&two));
    assert_eq!(taken.err_code(), Some(111), "{taken:?}");
    assert!(taken.err_msg().contains("10.9.0.77"), "{taken:?}");
    assert!(two.links().unwrap().is_empty());
    plugin.node.assert_unchanged(&before);
    plugin.node.ping(&ip(&result, 0)).unwrap();
}

#[test]
fn the_mtu_is_on_both_ends_and_in_the_result() {
    let plugin = plugin_node();
    for (name, asked, mtu) in [("a", json!(1400), 1400), ("b", Value::Null, 1280)] {
        let (pod, result) = plugin.attached(name, &with(dual_stack(), "mtu", asked));
        let host = result["interfaces"][0]["name"].as_str().unwrap();
        assert_eq!(pod.link("eth0").unwrap().unwrap()["mtu"], mtu);
        assert_eq!(plugin.node.link(host).unwrap().unwrap()["mtu"], mtu);
        assert_eq!(result["interfaces"][1]["mtu"], mtu);
    }
    let pod = plugin.pod("c");
    let outcome = plugin.fail("ADD", &with(dual_stack(), "mtu", json!(1279)), &pod, 7);
    assert!(outcome.err_msg().contains("mtu 1279"), "{outcome:?}");
}

#[test]
fn a_route_has_all_that_is_said_of_it() {
    let plugin = plugin_node();
    let mut conf = dual_stack();
    conf["ipam"]["routes"] = json!([
        { "dst": "0.0.0.0/0", "mtu": 1200, "advmss": 1100, "priority": 50 },
        { "dst": "0.0.0.0/0", "priority": 70, "gw": "10.9.0.9" },
        { "dst": "192.0.2.0/24", "table": 77 },
        { "dst": "198.51.100.0/24", "scope": 253 },
        { "dst": "203.0.113.0/24", "scope": 200 },
        { "dst": "::/0", "mtu": 1300, "priority": 60 },
        { "dst": "2001:db8::/32", "table": 78 },
    ]);
    let (pod, result) = plugin.attached("p", &conf);
    assert_eq!(result["routes"], conf["ipam"]["routes"]);
    let routes = pod.routes().unwrap();
    for (dst, parts) in [
        (
            "default via 10.9.0.1 ",
            &["metric 50", "mtu 1200", "advmss 1100"][..],
        ),
        ("default via 10.9.0.9 ", &["metric 70"]),
        ("192.0.2.0/24 via 10.9.0.1 ", &["table 77"]),
        ("198.51.100.0/24 via 10.9.0.1 ", &[]),
        ("203.0.113.0/24 via 10.9.0.1 ", &["scope site"]),
        ("default via fd00:9::1 ", &["metric 60", "mtu 1300"]),
        ("2001:db8::/32 via fd00:9::1 ", &["table 78"]),
    ] {
        let Some(route) = routes.iter().find(|route| route.starts_with(dst)) else {
            panic!("no {dst} in {routes:#?}");
        };
        for part in parts {
            assert!(route.contains(part), "{part} in {route}");
        }
    }
    plugin.node.ping(&ip(&result, 0)).unwrap();
    plugin.node.ping(&ip(&result, 1)).unwrap();
    plugin.succeed("CHECK", &with(conf, "prevResult", result), &pod);
}

#[rstest]
#[case("0.1.0")]
#[case("0.2.0")]
#[case("0.3.0")]
#[case("0.3.1")]
#[case("0.4.0")]
#[case("1.0.0")]
#[case("1.1.0")]
fn the_answer_is_in_the_version_of_the_question(#[case] version: &str) {
    let plugin = plugin_node();
    let magic = json!({ "enable": true, "nameservers": ["10.2.0.1"] });
    let conf = with(dual_stack(), "magic_dns", magic);
    let conf = with(conf, "cniVersion", json!(version));
    let (pod, result) = plugin.attached("p", &conf);
    assert_eq!(result["cniVersion"], version);
    assert_eq!(result["dns"]["nameservers"], json!(["10.2.0.1"]));
    if version < "0.3" {
        assert_eq!(result["ip4"]["ip"], "10.9.0.2/24");
        assert_eq!(result["ip4"]["gateway"], "10.9.0.1");
        assert_eq!(result["ip4"]["routes"][0]["dst"], "0.0.0.0/0");
        assert_eq!(result["ip6"]["ip"], "fd00:9::2/64");
        assert_eq!(result.get("interfaces"), None);
    } else {
        let has_version = version < "1";
        let stated = result["ips"][0].get("version");
        assert_eq!(stated, has_version.then_some(&json!("4")));
        assert_eq!(result["ips"][1]["interface"], 1);
        assert_eq!(result["interfaces"][1]["sandbox"], pod.netns_path());
        let mtu = result["interfaces"][1].get("mtu");
        assert_eq!(mtu.is_some(), version == "1.1.0", "{result}");
    }
    pod.ping("10.9.0.1").unwrap();
    if version >= "0.4" {
        let known = with(conf.clone(), "prevResult", result);
        plugin.succeed("CHECK", &known, &pod);
    }
    plugin.succeed("DEL", &conf, &pod);
    assert!(pod.links().unwrap().is_empty());
}

#[test]
fn what_a_plugin_before_us_made_stays_in_the_result() {
    let plugin = used_node(&dual_stack());
    let before = plugin.snapshot();
    let list = json!({ "cniVersion": "1.1.0", "name": "net",
        "plugins": [{ "type": "loopback" }, dual_stack()] });
    let file = "/etc/cni/net.d/10-net.conflist";
    plugin.node.write(file, list.to_string()).unwrap();
    let pod = plugin.pod("p");
    let cnitool = |verb: &str| {
        let tool = plugin
            .node
            .cnitool("/etc/cni/net.d", verb, "net", pod.netns_path());
        tool.path(crate::networks::cni_path()).run().unwrap()
    };
    let result = cnitool("add").ok_json().unwrap();
    let interfaces = result["interfaces"].as_array().unwrap();
    let names: Vec<&str> = interfaces
        .iter()
        .map(|one| one["name"].as_str().unwrap())
        .collect();
    assert_eq!([names[0], names[2]], ["lo", "eth0"]);
    let ips = result["ips"].as_array().unwrap();
    let ips: Vec<(&str, u64)> = ips
        .iter()
        .map(|ip| {
            (
                ip["address"].as_str().unwrap(),
                ip["interface"].as_u64().unwrap(),
            )
        })
        .collect();
    assert_eq!(
        ips,
        [
            ("127.0.0.1/8", 0),
            ("::1/128", 0),
            ("10.9.0.3/24", 2),
            ("fd00:9::3/64", 2)
        ]
    );
    plugin.node.ping("10.9.0.3").unwrap();
    cnitool("check").ok().unwrap();
    cnitool("del").ok().unwrap();
    assert!(pod.links().unwrap().is_empty());
    plugin.node.run(["rm", file]).unwrap();
    plugin.node.assert_unchanged(&before);
}

fn merged(mut conf: Value, more: &Value) -> Value {
    for (key, value) in more.as_object().unwrap() {
        conf[key] = value.clone();
    }
    conf
}

/// An ADD that asks by all ways that are in `more` and `args`.
fn asking(conf: &Value, more: &Value, args: &str) -> Call {
    let add = call("ADD", &merged(conf.clone(), more));
    if args.is_empty() { add } else { add.args(args) }
}
