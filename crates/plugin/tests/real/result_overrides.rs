//! `mtu` and `magic_dns` show in the result, whichever plugin made it.

use lab::{Netns, Noop};
use rstest::rstest;
use serde_json::{Value, json};

use crate::calls::*;

/// A result in which IPAM, too, has something to say about DNS.
fn with_dns() -> Value {
    json!({
        "cniVersion": "1.1.0",
        "interfaces": [{"name": "br0"}, {"name": "eth0", "sandbox": "/run/netns/p"}],
        "dns": {"nameservers": ["8.8.8.8"], "domain": "ipam.example", "search": ["lan"],
                "options": ["ndots:2"]},
    })
}

fn magic(enable: bool) -> Value {
    json!({"magic_dns": {
        "enable": enable, "base_domain": "cluster.local", "nameservers": ["10.2.0.1"],
        "search_domains": ["c.example", "d.example"],
    }})
}

fn magic_and_ipam() -> Value {
    json!({
        "nameservers": ["10.2.0.1", "8.8.8.8"], "domain": "cluster.local",
        "search": ["c.example", "d.example", "lan"], "options": ["ndots:2"],
    })
}

/// In which place the keys stand.
#[derive(Clone, Copy)]
enum Place {
    Delegate,
    Chain,
    OwnMember,
}

/// The plugin's answer when its delegate gives `with_dns`.
fn shaped(place: Place, more: Value) -> Value {
    let node = node();
    let pod = node.pod("p").unwrap();
    let mut noop = Noop::new().unwrap();
    noop.report_result(&with_dns()).unwrap();
    let delegating = json!({"type": "headcni", "delegate": noop.conf()});
    let conf = match place {
        Place::Delegate => merged(&delegating, json!({"cniVersion": "1.1.0", "name": "net"})),
        Place::Chain => chaining("1.1.0", &[noop.conf()], json!({})),
        Place::OwnMember => {
            return finish(
                &pod,
                &chaining("1.1.0", &[merged(&delegating, more)], json!({})),
            );
        }
    };
    finish(&pod, &merged(&conf, more))
}

fn finish(pod: &lab::Pod, conf: &Value) -> Value {
    ask("ADD", conf, pod).ok_json().unwrap()
}

#[rstest]
fn magic_dns_goes_ahead_of_ipams(
    #[values(Place::Delegate, Place::Chain, Place::OwnMember)] place: Place,
) {
    let result = shaped(place, magic(true));
    assert_eq!(result["dns"], magic_and_ipam());
}

#[rstest]
#[case::switched_off(magic(false))]
#[case::empty(json!({"magic_dns": {}}))]
#[case::absent(json!({}))]
fn without_magic_dns_nothing_changes(
    #[case] more: Value,
    #[values(Place::Delegate, Place::Chain, Place::OwnMember)] place: Place,
) {
    let mut expected = with_dns();
    if !matches!(place, Place::Chain) {
        expected["interfaces"][1]["mtu"] = 1380.into();
    }
    assert_eq!(
        shaped(place, more),
        expected,
        "but for the node's MTU, which a delegate was told"
    );
}

#[rstest]
fn the_mtu_is_told_of_the_pods_interface(
    #[values(Place::Delegate, Place::Chain, Place::OwnMember)] place: Place,
) {
    let result = shaped(place, json!({"mtu": 1333}));
    let mut expected = with_dns();
    expected["interfaces"][1]["mtu"] = 1333.into();
    assert_eq!(result, expected);
}

#[rstest]
#[case::of_a_delegate(delegating("1.1.0", json!({"mtu": 1333})))]
#[case::of_a_chain(chaining(
    "1.1.0", &[json!({"type": "headcni", "delegate": {"bridge": "cni0"}})], json!({"mtu": 1333}),
))]
#[case::of_a_chain_of_others(chaining("1.1.0", &[json!({
    "type": "bridge", "bridge": "cni0", "ipam": {"type": "host-local", "subnet": "10.244.1.0/24"},
})], json!({"mtu": 1333})))]
fn the_mtu_becomes_true(#[case] conf: Value) {
    let node = node();
    let pod = node.pod("p").unwrap();
    let more = merged(&magic(true), json!({}));
    let conf = merged(&conf, more);
    let result = ask("ADD", &conf, &pod).ok_json().unwrap();
    assert_eq!(pod.link("eth0").unwrap().unwrap()["mtu"], 1333);
    assert_eq!(result["interfaces"][2]["mtu"], 1333);
    assert_eq!(result["dns"]["domain"], "cluster.local");
    // A result with our additions is still one that the delegates accept.
    let known = merged(&conf, json!({"prevResult": result}));
    ask("CHECK", &known, &pod).ok().unwrap();
    ask("DEL", &known, &pod).ok().unwrap();
}

#[test]
fn old_versions_have_no_mtu_in_their_result() {
    let node = node();
    for version in ["0.4.0", "1.0.0"] {
        let pod = node.pod(version).unwrap();
        let conf = delegating(version, json!({"mtu": 1333}));
        let result = ask("ADD", &conf, &pod).ok_json().unwrap();
        assert_eq!(result["interfaces"][2].get("mtu"), None, "{result}");
        assert_eq!(pod.link("eth0").unwrap().unwrap()["mtu"], 1333);
    }
}
