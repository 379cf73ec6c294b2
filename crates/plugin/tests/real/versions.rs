//! Every version of the protocol gets its own form of result, and only the verbs that it has.

use lab::{Node, Pod, tools};
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

/// Replaces what differs from pod to pod, so that the rest can be compared as a whole.
fn steady(mut result: Value) -> Value {
    let interfaces = result.get_mut("interfaces").and_then(Value::as_array_mut);
    for interface in interfaces.into_iter().flatten() {
        let mac = interface["mac"].as_str().unwrap();
        assert_eq!(mac.len(), "00:00:00:00:00:00".len(), "{mac}");
        interface["mac"] = "MAC".into();
        if interface["name"].as_str().unwrap().starts_with("veth") {
            interface["name"] = "VETH".into();
        }
    }
    // Go can't leave out an empty object.
    let keys = result.as_object_mut().unwrap();
    keys.retain(|key, value| key != "dns" || *value != json!({}));
    result
}

/// Results of 0.1.0 and 0.2.0: one address per family, with its routes.
fn by_family(version: &str) -> Value {
    json!({
        "cniVersion": version,
        "ip4": {
            "ip": "10.244.1.2/24", "gateway": "10.244.1.1",
            "routes": [{"dst": "10.244.0.0/16"}, {"dst": "0.0.0.0/0"}],
        },
        "ip6": {
            "ip": "fd00:244:0:1::2/64", "gateway": "fd00:244:0:1::1",
            "routes": [{"dst": "fd00:244::/48"}, {"dst": "::/0"}],
        },
    })
}

/// Results of 1.0.0.
fn by_lists(version: &str) -> Value {
    json!({
        "cniVersion": version,
        "interfaces": [
            {"name": "cni0", "mac": "MAC"},
            {"name": "VETH", "mac": "MAC"},
            {"name": "eth0", "mac": "MAC", "sandbox": "/run/netns/p"},
        ],
        "ips": [
            {"interface": 2, "address": "10.244.1.2/24", "gateway": "10.244.1.1"},
            {"interface": 2, "address": "fd00:244:0:1::2/64", "gateway": "fd00:244:0:1::1"},
        ],
        "routes": [
            {"dst": "10.244.0.0/16"}, {"dst": "0.0.0.0/0"},
            {"dst": "fd00:244::/48"}, {"dst": "::/0"},
        ],
    })
}

/// Results of 0.3.0 to 0.4.0: each address says its family.
fn by_lists_with_family(version: &str) -> Value {
    let mut result = by_lists(version);
    result["ips"][0]["version"] = "4".into();
    result["ips"][1]["version"] = "6".into();
    result
}

/// Results of 1.1.0: the pod's interface has its MTU.
fn by_lists_with_mtu(version: &str) -> Value {
    let mut result = by_lists(version);
    result["interfaces"][2]["mtu"] = 1400.into();
    result
}

#[rstest]
#[case("0.1.0", by_family)]
#[case("0.2.0", by_family)]
#[case("0.3.0", by_lists_with_family)]
#[case("0.3.1", by_lists_with_family)]
#[case("0.4.0", by_lists_with_family)]
#[case("1.0.0", by_lists)]
#[case("1.1.0", by_lists_with_mtu)]
fn the_result_has_the_form_of_its_version(
    #[case] version: &str,
    #[case] expected: fn(&str) -> Value,
) {
    let node = node_with(DUAL);
    let pod = node.pod("p").unwrap();
    let before = node.snapshot(DIRS).unwrap().ignoring(lasting("net"));
    let conf = delegating(version, json!({}));
    let result = ask("ADD", &conf, &pod).ok_json().unwrap();
    assert_eq!(steady(result.clone()), expected(version));

    let known = merged(&conf, json!({"prevResult": result}));
    if version >= "0.4.0" {
        ask("CHECK", &known, &pod).ok().unwrap();
    }
    let outcome = ask("DEL", &known, &pod);
    outcome.ok().unwrap();
    assert_eq!(outcome.stdout, "");
    node.assert_unchanged(&before);
    // The reference plugin says the same, but for the MTU, which it never tells.
    let mut direct = direct(version);
    if version == "1.1.0" {
        direct["interfaces"][2]["mtu"] = 1400.into();
    }
    assert_eq!(steady(result), steady(direct));
}

/// What `bridge` itself answers in the same situation.
fn direct(version: &str) -> Value {
    let node = Node::new("n2").unwrap();
    let pod: Pod = node.pod("p").unwrap();
    let conf = json!({
        "cniVersion": version, "name": "net", "type": "bridge", "bridge": "cni0",
        "isGateway": true, "mtu": 1400,
        "ipam": {
            "type": "host-local",
            "ranges": [[{"subnet": "10.244.1.0/24"}], [{"subnet": "fd00:244:0:1::/64"}]],
            "routes": [
                {"dst": "10.244.0.0/16"}, {"dst": "0.0.0.0/0"},
                {"dst": "fd00:244::/48"}, {"dst": "::/0"},
            ],
        },
    });
    let call = call("ADD", &conf).pod(&pod);
    let outcome = call.run(&node, tools::cni_plugin_dir().join("bridge"));
    outcome.unwrap().ok_json().unwrap()
}

#[test]
fn a_configuration_without_a_version_is_of_the_first() {
    let node = node_with(DUAL);
    let pod = node.pod("p").unwrap();
    let mut conf = delegating("", json!({}));
    conf.as_object_mut().unwrap().remove("cniVersion");
    let result = ask("ADD", &conf, &pod).ok_json().unwrap();
    assert_eq!(steady(result), by_family("0.1.0"));
}

#[rstest]
fn a_verb_that_is_younger_than_the_version_is_refused(
    #[values("0.1.0", "0.2.0", "0.3.0", "0.3.1", "0.4.0", "1.0.0", "1.1.0")] version: &str,
) {
    let node = node_with(DUAL);
    let pod = node.pod("p").unwrap();
    let conf = delegating(version, json!({}));
    for (verb, since) in [("CHECK", "0.4.0"), ("GC", "1.1.0"), ("STATUS", "1.1.0")] {
        let outcome = ask(verb, &conf, &pod);
        if version < since {
            let message = refused(&outcome, 1);
            assert!(
                message.contains(since) && message.contains(verb),
                "{message}"
            );
            assert_eq!(outcome.json.unwrap()["cniVersion"], version);
        } else {
            assert_ne!(outcome.err_code(), Some(1), "{verb} {version}");
        }
    }
}

#[test]
fn the_versions_are_told_in_the_version_asked_in() {
    let node = Node::new("n1").unwrap();
    let all = [
        "0.1.0", "0.2.0", "0.3.0", "0.3.1", "0.4.0", "1.0.0", "1.1.0",
    ];
    for version in all {
        let outcome = run(&node, &call("VERSION", &json!({"cniVersion": version})));
        let expected = json!({"cniVersion": version, "supportedVersions": all});
        assert_eq!(outcome.ok_json().unwrap(), expected);
    }
    // Nothing but the command is needed.
    let bare = lab::Call::new("VERSION");
    let answer = run(&node, &bare).ok_json().unwrap();
    assert_eq!(answer["supportedVersions"], json!(all));
}
