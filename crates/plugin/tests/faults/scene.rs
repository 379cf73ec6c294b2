//! A node with the configuration that the tests break: headcni over bridge, portmap and a third.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;

pub(crate) use lab::tools::headcni;
use lab::{Call, Netns, Node, Outcome, Pod, Snapshot, tools};
use serde_json::{Value, json};

/// Where headcni keeps its records of [`NETWORK`].
pub(crate) const STATE_DIR: &str = "/var/lib/cni/headcni/faultnet";
/// Where host-local keeps its leases of [`NETWORK`].
pub(crate) const LEASE_DIR: &str = "/var/lib/cni/networks/faultnet";
pub(crate) const NETWORK: &str = "faultnet";

/// Where scripts that stand for broken plugins lie.
const SCRIPT_DIR: &str = "/opt/faults";
const DIRS: &[&str] = &["/var/lib/cni", "/run", "/etc/cni"];

pub(crate) struct Scene {
    pub(crate) node: Node,
}

impl Scene {
    pub(crate) fn new() -> Self {
        let node = Node::new("faults").unwrap();
        Self { node }
    }

    /// A scene where ADD and DEL have been done once: the bridge and the chains that the
    /// reference plugins keep for the next container are there.
    pub(crate) fn used() -> Self {
        let scene = Self::new();
        let pod = scene.pod("first");
        let conf = chain(&[]);
        scene.done("ADD", &conf, &pod);
        scene.done("DEL", &conf, &pod);
        pod.delete().unwrap();
        scene
    }

    pub(crate) fn pod(&self, name: &str) -> Pod {
        self.node.pod(name).unwrap()
    }

    /// Everything that could remain: links, addresses, routes, rules, leases, records, locks.
    pub(crate) fn snapshot(&self) -> Snapshot {
        // Which address was given last is no trace of the container that had it.
        let last = lab::Ignore::new().path(&format!("{LEASE_DIR}/last_reserved_ip.0"));
        // The kernel's lock of iptables-legacy, and namespaces, which tests make and delete.
        let last = last.path("/run/xtables.lock").path("/run/netns");
        // The layers that /var, /etc and /opt of the node are made of: seen by their own names.
        let last = last.path("/run/lab").spare_records(STATE_DIR);
        self.node.snapshot(DIRS).unwrap().ignoring(last)
    }

    /// Calls headcni for a pod, whatever comes of it.
    pub(crate) fn attempt(&self, verb: &str, conf: &Value, pod: &Pod) -> Outcome {
        self.run(&call(verb, conf).pod(pod))
    }

    /// Calls headcni for a pod; it must succeed.
    #[track_caller]
    pub(crate) fn done(&self, verb: &str, conf: &Value, pod: &Pod) -> Outcome {
        succeeded(self.attempt(verb, conf, pod))
    }

    /// Calls headcni for a pod; it must fail with this code.
    #[track_caller]
    pub(crate) fn refused(&self, verb: &str, conf: &Value, pod: &Pod, code: u32) -> Outcome {
        let outcome = self.attempt(verb, conf, pod);
        assert_eq!(outcome.err_code(), Some(code.into()), "{outcome:?}");
        outcome
    }

    /// Calls headcni, whatever comes of it.
    pub(crate) fn run(&self, call: &Call) -> Outcome {
        call.run(&self.node, headcni()).unwrap()
    }

    /// Collects everything: no attachment is valid.
    pub(crate) fn collect(&self, conf: &Value) -> Outcome {
        let conf = with(conf.clone(), "cni.dev/valid-attachments", json!([]));
        self.run(&call("GC", &conf))
    }

    /// Makes a plugin of a shell script. `$verb` is the verb, stdin is not read.
    pub(crate) fn script(&self, name: &str, body: &str) {
        let path = format!("{SCRIPT_DIR}/{name}");
        let text = format!("#!/bin/sh\nverb=$CNI_COMMAND\n{body}\n");
        self.node.write(&path, text).unwrap();
        let mode = fs::Permissions::from_mode(0o755);
        fs::set_permissions(self.node.path(path), mode).unwrap();
    }

    pub(crate) fn remove_script(&self, name: &str) {
        fs::remove_file(self.node.path(format!("{SCRIPT_DIR}/{name}"))).unwrap();
    }

    /// The record's path on the node.
    pub(crate) fn record_path(&self, container: &str) -> PathBuf {
        self.node.path(format!("{STATE_DIR}/{container}@eth0.json"))
    }

    /// What is on record about `eth0` of a container.
    pub(crate) fn record(&self, container: &str) -> Option<Value> {
        let text = fs::read_to_string(self.record_path(container)).ok()?;
        // A line is added with every step.
        Some(serde_json::from_str(text.lines().last()?).unwrap())
    }

    /// Replaces what is on record about `eth0` of a container.
    pub(crate) fn write_record(&self, container: &str, text: &str) {
        let path = format!("{STATE_DIR}/{container}@eth0.json");
        self.node.write(path, text).unwrap();
    }

    /// The names of the files in a directory of the node, sorted; none if there is none.
    pub(crate) fn files(&self, dir: &str) -> Vec<String> {
        let entries = fs::read_dir(self.node.path(dir)).into_iter().flatten();
        let name = |entry: fs::DirEntry| entry.file_name().to_string_lossy().into_owned();
        let mut names: Vec<_> = entries.map(|entry| name(entry.unwrap())).collect();
        names.sort();
        names
    }

    /// The files of records, without those that are kept for the next one.
    pub(crate) fn records(&self) -> Vec<String> {
        let mut names = self.files(STATE_DIR);
        names.retain(|name| !name.starts_with("new."));
        names
    }

    /// The addresses that are leased in this network.
    pub(crate) fn leases(&self) -> Vec<String> {
        let mut names = self.files(LEASE_DIR);
        names.retain(|name| name.parse::<std::net::IpAddr>().is_ok());
        names
    }

    /// Whether portmap has rules for a container.
    pub(crate) fn has_port_rules(&self) -> bool {
        let rules = self.node.run(["iptables-save", "-t", "nat"]).unwrap();
        rules.stdout.contains("CNI-DN-")
    }
}

/// A call with this configuration, which lacks only the attachment. `CNI_PATH` has the scripts of
/// the scene, the real plugins and the test plugins.
pub(crate) fn call(verb: &str, conf: &Value) -> Call {
    let dirs = [tools::cni_plugin_dir(), tools::test_plugin_dir()];
    let dirs = dirs.map(|dir| dir.display().to_string());
    let path = format!("{SCRIPT_DIR}:{}", dirs.join(":"));
    Call::new(verb).path(path).conf(conf)
}

/// The same outcome, which must be a success.
#[track_caller]
pub(crate) fn succeeded(outcome: Outcome) -> Outcome {
    assert!(outcome.status.success(), "{outcome:?}");
    outcome
}

/// A chain of bridge with host-local, portmap with a host port, and `more`.
pub(crate) fn chain(more: &[Value]) -> Value {
    let bridge = json!({
        "type": "bridge", "bridge": "faultbr0", "isGateway": true, "ipMasq": true,
        "ipam": {
            "type": "host-local", "ranges": [[{ "subnet": "10.66.0.0/24" }]],
            "routes": [{ "dst": "0.0.0.0/0" }],
        },
    });
    let portmap = json!({ "type": "portmap", "capabilities": { "portMappings": true } });
    let plugins: Vec<_> = [bridge, portmap]
        .into_iter()
        .chain(more.iter().cloned())
        .collect();
    json!({
        "cniVersion": "1.1.0", "name": NETWORK, "type": "headcni",
        "capabilities": { "portMappings": true },
        "runtimeConfig": { "portMappings": [
            { "hostPort": 8080, "containerPort": 80, "protocol": "tcp" },
        ] },
        "delegate_timeout_seconds": 20,
        "plugins": plugins,
    })
}

/// The same chain where bridge does not masquerade: it forgets its rules when the namespace is gone
/// at DEL, which is not headcni's fault (containernetworking/plugins#810).
pub(crate) fn unmasqueraded_chain() -> Value {
    let mut conf = chain(&[]);
    conf["plugins"][0]["ipMasq"] = json!(false);
    conf
}

/// One delegate, bridge, with subnets from the subnet file.
pub(crate) fn delegate() -> Value {
    json!({
        "cniVersion": "1.1.0", "name": NETWORK, "type": "headcni",
        "delegate": { "bridge": "faultbr0" },
    })
}

pub(crate) const SUBNET_FILE: &str = "/run/headcni/subnet.env";
pub(crate) const SUBNETS: &str = "HEADCNI_NETWORK=10.66.0.0/16\nHEADCNI_SUBNET=10.66.0.1/24\n\
     HEADCNI_MTU=1280\nHEADCNI_IPMASQ=true\n";

/// The same configuration with one key set.
pub(crate) fn with(mut conf: Value, key: &str, value: Value) -> Value {
    conf[key] = value;
    conf
}
