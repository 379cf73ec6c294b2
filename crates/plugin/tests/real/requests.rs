//! What a runtime asks for reaches the plugin that can give it.

use lab::{Netns, Noop};
use rstest::rstest;
use serde_json::{Value, json};

use crate::calls::*;
use crate::witness_plugin::Witness;

/// The ways to ask for an address.
#[rstest]
#[case::by_cni_args("IgnoreUnknown=1;IP=10.244.1.77", json!({}))]
#[case::by_args_cni("", json!({"args": {"cni": {"ips": ["10.244.1.77"]}}}))]
#[case::by_capability("", json!({
    "capabilities": {"ips": true}, "runtimeConfig": {"ips": ["10.244.1.77/24"]},
}))]
fn an_address_can_be_asked_for(
    #[case] args: &str,
    #[case] more: Value,
    #[values(false, true)] is_chain: bool,
) {
    let node = node();
    let pod = node.pod("p").unwrap();
    let member = json!({
        "type": "headcni", "delegate": {"bridge": "cni0"}, "capabilities": {"ips": true},
    });
    let conf = if is_chain {
        chaining("1.1.0", &[member], more)
    } else {
        delegating("1.1.0", more)
    };
    let outcome = run(&node, &call("ADD", &conf).pod(&pod).args(args));
    assert_eq!(address(&outcome.ok_json().unwrap()), "10.244.1.77");
}

#[test]
fn ranges_of_the_runtime_stand_in_for_the_subnet_file() {
    let node = lab::Node::new("n1").unwrap();
    let pod = node.pod("p").unwrap();
    let ranges = json!({"ipRanges": [[{"subnet": "10.9.0.0/24"}]]});
    let more = json!({"capabilities": {"ipRanges": true}, "runtimeConfig": ranges});
    let result = ask("ADD", &delegating("1.1.0", more), &pod);
    assert_eq!(address(&result.ok_json().unwrap()), "10.9.0.2");
}

#[test]
fn a_chain_of_many_real_plugins_leaves_nothing() {
    let node = node();
    let pod = node.pod("p").unwrap();
    let members = [
        json!({"type": "headcni", "delegate": {"bridge": "cni0", "ipMasq": true}}),
        json!({"type": "tuning", "sysctl": {"net.ipv4.conf.eth0.accept_redirects": "0"},
               "capabilities": {"mac": true}}),
        json!({"type": "portmap", "capabilities": {"portMappings": true}}),
        json!({"type": "firewall"}),
    ];
    let more = json!({
        "capabilities": {"mac": true, "portMappings": true},
        "runtimeConfig": {
            "mac": "02:11:22:33:44:55", "portMappings": [{"hostPort": 80, "containerPort": 80, "protocol": "tcp"}],
        },
    });
    let conf = chaining("1.1.0", &members, more);
    let lasting = lasting("net").firewall();
    let before = node.snapshot(DIRS).unwrap().ignoring(lasting);
    let outcome = ask("ADD", &conf, &pod);
    assert_eq!(outcome.stderr, "");
    let result = outcome.ok_json().unwrap();
    let mac = "02:11:22:33:44:55";
    assert_eq!(pod.link("eth0").unwrap().unwrap()["address"], mac);
    assert_eq!(result["interfaces"][2]["mac"], mac, "the last word counts");
    pod.ping("10.244.1.1").unwrap();
    let known = merged(&conf, json!({"prevResult": result}));
    ask("CHECK", &known, &pod).ok().unwrap();
    let outcome = ask("STATUS", &conf, &pod);
    outcome.ok().unwrap();
    ask("DEL", &known, &pod).ok().unwrap();
    node.assert_unchanged(&before);
}

#[test]
fn the_first_directory_of_cni_path_wins() {
    let node = node();
    let pod = node.pod("p").unwrap();
    let result = |address: &str| json!({"cniVersion": "1.1.0", "ips": [{"address": address}]});
    let near = Witness::new(&["mine"], &result("10.0.0.1/24"));
    let far = Witness::new(&["mine"], &result("10.0.0.2/24"));
    let conf = delegating("1.1.0", json!({"delegate": {"type": "mine"}}));
    let path = format!("/nonexistent:{}:{}", near.path(), far.path());
    let outcome = run(&node, &call("ADD", &conf).pod(&pod).path(path));
    assert_eq!(address(&outcome.ok_json().unwrap()), "10.0.0.1");
    assert!(far.calls().is_empty());
}

#[rstest]
#[case::the_default(json!({}), "", "/var/lib/cni/headcni")]
#[case::the_variable(json!({}), "/run/by-variable", "/run/by-variable")]
#[case::the_key(json!({"dataDir": "/run/by-key"}), "/run/by-variable", "/run/by-key")]
fn records_go_where_told(#[case] more: Value, #[case] variable: &str, #[case] dir: &str) {
    let node = node();
    let pod = node.pod("p").unwrap();
    let mut noop = Noop::new().unwrap();
    noop.report_result(&json!({"cniVersion": "1.1.0"})).unwrap();
    let conf = merged(&delegating("1.1.0", more), json!({"delegate": noop.conf()}));
    let ask = |verb| {
        let call = call(verb, &conf).pod(&pod);
        run(&node, &call.env("HEADCNI_DATA_DIR", variable))
            .ok()
            .unwrap();
    };
    ask("ADD");
    assert!(node.has(format!("{dir}/net/p@eth0.json")));
    ask("DEL");
    assert!(!node.has(format!("{dir}/net")));
}
