//! A node on which tests call the plugin for pods.

use std::fs;
use std::net::IpAddr;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;

use serde_json::{Value, json};

use crate::tools::headcni;
use crate::{Call, Ignore, Node, Outcome, Pod, Snapshot};

/// Scripts that replace plugins.
const SCRIPT_DIR: &str = "/opt/scripts";

/// A node with one network. Its methods panic where the set-up fails.
pub struct PluginNode {
    /// The node itself.
    pub node: Node,
    network: String,
    lease_dir: String,
    ignore: Ignore,
    snapshot_dirs: &'static [&'static str],
}

#[expect(
    clippy::unwrap_used,
    clippy::missing_panics_doc,
    reason = "a test ends if its set-up fails"
)]
impl PluginNode {
    /// A node without pods. The leases of `network` are in `lease_dir`.
    pub fn new(network: &str, lease_dir: &str) -> Self {
        Self {
            node: Node::new("n1").unwrap(),
            network: network.to_owned(),
            lease_dir: lease_dir.to_owned(),
            ignore: Ignore::new()
                .host_local(lease_dir)
                .spare_records(&format!("/var/lib/cni/headcni/{network}")),
            snapshot_dirs: &["/var/lib/cni", "/etc/cni", "/run/headcni"],
        }
    }

    /// Compares the files of these directories in snapshots.
    #[must_use]
    pub fn snapshot_dirs(mut self, dirs: &'static [&'static str]) -> Self {
        self.snapshot_dirs = dirs;
        self
    }

    /// Leaves more out of snapshots.
    #[must_use]
    pub fn ignoring(mut self, ignore: Ignore) -> Self {
        self.ignore = self.ignore.and(ignore);
        self
    }

    /// Adds and deletes a first pod, so that everything exists that plugins create once per node.
    #[track_caller]
    #[must_use]
    pub fn used(self, conf: &Value) -> Self {
        let pod = self.pod("first");
        self.succeed("ADD", conf, &pod);
        self.succeed("DEL", conf, &pod);
        pod.delete().unwrap();
        self
    }

    /// A new pod without interface.
    pub fn pod(&self, name: &str) -> Pod {
        self.node.pod(name).unwrap()
    }

    /// A new pod with `eth0`, and the result of its ADD.
    #[track_caller]
    pub fn attached(&self, name: &str, conf: &Value) -> (Pod, Value) {
        let pod = self.pod(name);
        let result = self.succeed("ADD", conf, &pod).ok_json().unwrap();
        (pod, result)
    }

    /// A call of the plugin that lacks only the attachment.
    pub fn call(verb: &str, conf: &Value) -> Call {
        let path = format!("{SCRIPT_DIR}:{}", crate::tools::cni_path());
        Call::new(verb).path(path).conf(conf)
    }

    /// Runs a call.
    pub fn run(&self, call: &Call) -> Outcome {
        call.run(&self.node, headcni()).unwrap()
    }

    /// Calls the plugin for `eth0` of a pod.
    pub fn attempt(&self, verb: &str, conf: &Value, pod: &Pod) -> Outcome {
        self.run(&Self::call(verb, conf).pod(pod))
    }

    /// Calls the plugin for `eth0` of a pod, successfully.
    #[track_caller]
    pub fn succeed(&self, verb: &str, conf: &Value, pod: &Pod) -> Outcome {
        let outcome = self.attempt(verb, conf, pod);
        if let Err(error) = outcome.ok() {
            panic!("{verb}: {error}");
        }
        outcome
    }

    /// Calls the plugin for `eth0` of a pod, which fails with this code.
    #[track_caller]
    pub fn fail(&self, verb: &str, conf: &Value, pod: &Pod, code: u64) -> Outcome {
        let outcome = self.attempt(verb, conf, pod);
        assert_eq!(outcome.err_code(), Some(code), "{outcome:?}");
        outcome
    }

    /// A GC for which `eth0` of these containers is valid.
    pub fn gc_call(conf: &Value, valid: &[&str]) -> Call {
        let attachment = |id: &&str| json!({ "containerID": id, "ifname": "eth0" });
        let valid: Vec<_> = valid.iter().map(attachment).collect();
        let mut conf = conf.clone();
        conf["cni.dev/valid-attachments"] = json!(valid);
        Self::call("GC", &conf)
    }

    /// Runs a GC for which `eth0` of these containers is valid.
    pub fn gc(&self, conf: &Value, valid: &[&str]) -> Outcome {
        self.run(&Self::gc_call(conf, valid))
    }

    /// Links, addresses, routes, neighbours, rules, leases and records.
    pub fn snapshot(&self) -> Snapshot {
        let snapshot = self.node.snapshot(self.snapshot_dirs).unwrap();
        snapshot.ignoring(self.ignore.clone())
    }

    /// The nft ruleset without counters.
    pub fn ruleset(&self) -> String {
        self.node.nft_ruleset().unwrap()
    }

    /// Installs a shell script as a plugin. `$verb` is the verb.
    pub fn script(&self, name: &str, body: &str) {
        let path = format!("{SCRIPT_DIR}/{name}");
        let text = format!("#!/bin/sh\nverb=$CNI_COMMAND\n{body}\n");
        self.node.write(&path, text).unwrap();
        let mode = fs::Permissions::from_mode(0o755);
        fs::set_permissions(self.node.path(path), mode).unwrap();
    }

    /// Removes a script.
    pub fn remove_script(&self, name: &str) {
        fs::remove_file(self.node.path(format!("{SCRIPT_DIR}/{name}"))).unwrap();
    }

    /// The directory of the records.
    pub fn record_dir(&self) -> String {
        format!("/var/lib/cni/headcni/{}", self.network)
    }

    /// The path of a record outside of the node.
    pub fn record_path(&self, container: &str) -> PathBuf {
        let path = format!("{}/{container}@eth0.json", self.record_dir());
        self.node.path(path)
    }

    /// The record of `eth0` of a container.
    pub fn record(&self, container: &str) -> Option<Value> {
        let text = fs::read_to_string(self.record_path(container)).ok()?;
        // The last line counts.
        Some(serde_json::from_str(text.lines().last()?).unwrap())
    }

    /// Replaces the record of `eth0` of a container.
    pub fn write_record(&self, container: &str, text: &str) {
        let path = format!("{}/{container}@eth0.json", self.record_dir());
        self.node.write(path, text).unwrap();
    }

    /// The sorted names of the files in a directory of the node.
    pub fn files(&self, dir: &str) -> Vec<String> {
        let entries = fs::read_dir(self.node.path(dir)).into_iter().flatten();
        let name = |entry: fs::DirEntry| entry.file_name().to_string_lossy().into_owned();
        let mut names: Vec<_> = entries.map(|entry| name(entry.unwrap())).collect();
        names.sort();
        names
    }

    /// The files of the records, without those of removed ones.
    pub fn records(&self) -> Vec<String> {
        let mut names = self.files(&self.record_dir());
        names.retain(|name| !name.starts_with("new."));
        names
    }

    /// The leased addresses.
    pub fn leases(&self) -> Vec<String> {
        let mut names = self.files(&self.lease_dir);
        names.retain(|name| name.parse::<IpAddr>().is_ok());
        names
    }
}
