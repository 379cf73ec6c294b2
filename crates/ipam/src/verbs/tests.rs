use std::cell::RefCell;
use std::fs;

use cni::{ContainerId, Env, IfName, NetConf, Verb};
use serde_json::{Value, json};
use tempfile::TempDir;

use super::*;
use crate::store::fault_injection;

/// The configuration of `headcni`: it has keys that IPAM ignores.
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

fn verbs(call: &Call) -> Verbs<'_> {
    Verbs::new(call)
}

#[test]
fn every_verb_works_in_process() {
    let directory = TempDir::new().unwrap();
    let plain = conf(&directory, None);
    let (a, b) = (attachment("a"), attachment("b"));
    verbs(&call(Verb::Status, &plain)).status().unwrap();

    let add = call(Verb::Add, &plain);
    let result = verbs(&add).add(&a).unwrap();
    let given: Vec<String> = result.ips.iter().map(|ip| ip.address.to_string()).collect();
    assert_eq!(given, ["10.1.0.2/24", "fd00::2/64"]);
    let ips = result.ips.iter().map(|ip| json!({ "address": ip.address }));
    let prev_result = json!({ "cniVersion": "1.1.0", "ips": ips.collect::<Vec<_>>() });
    let check = call(Verb::Check, &conf(&directory, Some(&prev_result)));
    verbs(&check).check(&a).unwrap();
    verbs(&check).check(&b).unwrap_err();

    verbs(&add).add(&b).unwrap();
    let valid = [ValidAttachment {
        container_id: "b".to_owned(),
        ifname: "eth0".to_owned(),
    }];
    verbs(&call(Verb::Gc, &plain)).gc(&valid).unwrap();
    assert_eq!(leased(&directory), ["10.1.0.3", "fd00::3"]);
    verbs(&call(Verb::Del, &plain)).del(&b).unwrap();
    assert!(leased(&directory).is_empty());
}

#[test]
fn a_given_boot_id_equals_the_one_of_the_kernel() {
    let directory = TempDir::new().unwrap();
    let plain = conf(&directory, None);
    let (add, del) = (call(Verb::Add, &plain), call(Verb::Del, &plain));
    // With the newline of the file in /proc, and empty: read it from the kernel.
    for (container, id) in [("a", boot_id()), ("b", String::new())] {
        let verbs = verbs(&add).boot_id(&id);
        verbs.add(&attachment(container)).unwrap();
    }
    verbs(&add).add(&attachment("c")).unwrap();
    assert_eq!(leased(&directory).len(), 6, "all of one boot");
    let id = boot_id();
    verbs(&del).boot_id(&id).del(&attachment("c")).unwrap();
    verbs(&del).del(&attachment("a")).unwrap();
    assert_eq!(leased(&directory), ["10.1.0.3", "fd00::3"]);
}

#[test]
fn a_lease_of_another_boot_is_stale() {
    let directory = TempDir::new().unwrap();
    let add = call(Verb::Add, &conf(&directory, None));
    for (container, id) in [("a", "another"), ("b", &*boot_id())] {
        let verbs = verbs(&add).boot_id(id);
        verbs.add(&attachment(container)).unwrap();
    }
    assert_eq!(leased(&directory), ["10.1.0.3", "fd00::3"]);
}

/// The checkpoints of a lease before it is committed.
const UNCOMMITTED_STEPS: u32 = 4;

#[test]
fn add_and_del_retry_after_an_io_error() {
    let directory = TempDir::new().unwrap();
    let plain = conf(&directory, None);
    let (add, del) = (call(Verb::Add, &plain), call(Verb::Del, &plain));
    verbs(&add).add(&attachment("first")).unwrap();
    for step in 0..UNCOMMITTED_STEPS {
        let messages = RefCell::new(Vec::new());
        let debug = |text: fmt::Arguments<'_>| messages.borrow_mut().push(text.to_string());
        fault_injection::fail_once_after(step);
        let result = verbs(&add).debug(&debug).add(&attachment("a")).unwrap();
        assert_eq!(result.ips.len(), 2, "step {step}");
        assert_eq!(leased(&directory).len(), 4, "step {step}");
        fault_injection::fail_once_after(0);
        verbs(&del).debug(&debug).del(&attachment("a")).unwrap();
        assert_eq!(leased(&directory).len(), 2, "step {step}");
        let messages = messages.into_inner();
        let retries = messages.iter().filter(|text| text.starts_with("retrying"));
        assert_eq!(retries.count(), 2, "{messages:?}");
    }
}

#[test]
fn an_address_that_is_released_in_the_meantime_is_leased_at_a_retry() {
    let directory = TempDir::new().unwrap();
    let mut plain = conf(&directory, None);
    plain["ipam"]["ranges"] = json!([[{ "subnet": "10.1.0.0/30" }]]);
    let (add, del) = (call(Verb::Add, &plain), call(Verb::Del, &plain));
    verbs(&add).add(&attachment("a")).unwrap();
    // The debug message comes before the retry: release the only address there.
    let release = |text: fmt::Arguments<'_>| {
        if text.to_string().contains("is full") {
            verbs(&del).del(&attachment("a")).unwrap();
        }
    };
    verbs(&add).debug(&release).add(&attachment("b")).unwrap();
    let error = verbs(&add).add(&attachment("c")).unwrap_err();
    assert_eq!(error.code, ipam_code::EXHAUSTED);
}
