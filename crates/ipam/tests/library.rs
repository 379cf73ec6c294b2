//! The library in another program's process: every verb, with a whole network configuration.

#![expect(
    clippy::unwrap_used,
    reason = "whatever fails outside the code under test shall end the test"
)]

use std::fs;

use cni::{Attachment, Call, CniArgs, ContainerId, Env, IfName, NetConf, ValidAttachment, Verb};
use serde_json::{Value, json};
use tempfile::TempDir;

/// A configuration as `headcni` gets it: with keys that are none of ours.
fn conf(directory: &TempDir, prev_result: Option<&Value>) -> Value {
    let mut conf = json!({
        "cniVersion": "1.1.0", "name": "net", "type": "headcni", "mtu": 1400,
        "capabilities": { "portMappings": true },
        "ipam": {
            "type": "headcni-ipam", "dataDir": directory.path(),
            "ranges": [[{ "subnet": "10.1.0.0/24" }], [{ "subnet": "fd00::/64" }]],
        },
    });
    if let Some(result) = prev_result {
        conf["prevResult"] = result.clone();
    }
    conf
}

fn call(verb: Verb, conf: &Value) -> Call {
    Call {
        verb,
        conf: NetConf::parse(conf.to_string().as_bytes()).unwrap(),
        env: Env::default(),
    }
}

fn attachment(container: &str) -> Attachment {
    Attachment {
        container: ContainerId::new(container).unwrap(),
        ifname: IfName::new("eth0").unwrap(),
        netns: None,
        args: CniArgs::parse("K8S_POD_NAMESPACE=web;K8S_POD_NAME=web-0").unwrap(),
    }
}

fn boot_id() -> String {
    fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap()
}

fn leased(directory: &TempDir) -> Vec<String> {
    let entries = fs::read_dir(directory.path().join("net")).unwrap();
    let names = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap());
    let mut names: Vec<String> = names
        .filter(|name| name.parse::<std::net::IpAddr>().is_ok())
        .collect();
    names.sort();
    names
}

#[test]
fn every_verb_works_in_process() {
    let directory = TempDir::new().unwrap();
    let plain = conf(&directory, None);
    let (a, b) = (attachment("a"), attachment("b"));
    ipam::status(&call(Verb::Status, &plain)).unwrap();

    let result = ipam::add(&call(Verb::Add, &plain), &a).unwrap();
    let given: Vec<String> = result.ips.iter().map(|ip| ip.address.to_string()).collect();
    assert_eq!(given, ["10.1.0.2/24", "fd00::2/64"]);
    let ips = result.ips.iter().map(|ip| json!({ "address": ip.address }));
    let stated = json!({ "cniVersion": "1.1.0", "ips": ips.collect::<Vec<_>>() });
    let check = call(Verb::Check, &conf(&directory, Some(&stated)));
    ipam::check(&check, &a).unwrap();
    ipam::check(&check, &b).unwrap_err();

    ipam::add(&call(Verb::Add, &plain), &b).unwrap();
    let valid = [ValidAttachment {
        container_id: "b".to_owned(),
        ifname: "eth0".to_owned(),
    }];
    ipam::collect_garbage(&call(Verb::Gc, &plain), &valid).unwrap();
    assert_eq!(leased(&directory), ["10.1.0.3", "fd00::3"]);
    ipam::del(&call(Verb::Del, &plain), &b).unwrap();
    assert!(leased(&directory).is_empty());
}

#[test]
fn a_boot_that_the_caller_knows_is_the_one_that_the_kernel_tells() {
    let directory = TempDir::new().unwrap();
    let plain = conf(&directory, None);
    let (add, del) = (call(Verb::Add, &plain), call(Verb::Del, &plain));
    // With its line break, as it is in the file; and none, which means: look yourself.
    for (container, id) in [("a", boot_id()), ("b", String::new())] {
        ipam::in_boot(&id)
            .add(&add, &attachment(container))
            .unwrap();
    }
    ipam::add(&add, &attachment("c")).unwrap();
    assert_eq!(leased(&directory).len(), 6, "all of one boot");
    ipam::in_boot(&boot_id())
        .del(&del, &attachment("c"))
        .unwrap();
    ipam::del(&del, &attachment("a")).unwrap();
    assert_eq!(leased(&directory), ["10.1.0.3", "fd00::3"]);
}

#[test]
fn a_lease_of_another_boot_is_void() {
    let directory = TempDir::new().unwrap();
    let add = call(Verb::Add, &conf(&directory, None));
    ipam::in_boot("another")
        .add(&add, &attachment("a"))
        .unwrap();
    ipam::in_boot(&boot_id())
        .add(&add, &attachment("b"))
        .unwrap();
    assert_eq!(leased(&directory), ["10.1.0.3", "fd00::3"]);
}
