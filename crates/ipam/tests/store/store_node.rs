//! A node with a data directory for the two IPAM plugins.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File};
use std::io::Write;
use std::net::IpAddr;
use std::path::{Path, PathBuf};

use lab::{Call, Node, Outcome, tools};
use serde_json::{Value, json};
use tempfile::TempDir;

pub(crate) const NETWORK: &str = "net";

#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Plugin {
    Ours,
    HostLocal,
}

impl Plugin {
    pub(crate) fn path(self) -> PathBuf {
        match self {
            Self::Ours => tools::headcni_bin_dir().join("headcni-ipam"),
            Self::HostLocal => tools::cni_plugin_dir().join("host-local"),
        }
    }

    pub(crate) fn other(self) -> Self {
        match self {
            Self::Ours => Self::HostLocal,
            Self::HostLocal => Self::Ours,
        }
    }
}

pub(crate) struct StoreNode {
    pub(crate) node: Node,
    dir: TempDir,
}

impl StoreNode {
    pub(crate) fn new() -> Self {
        Self {
            node: Node::new("ipam").unwrap(),
            dir: TempDir::with_prefix("ipam-").unwrap(),
        }
    }

    pub(crate) fn data_dir(&self) -> &Path {
        self.dir.path()
    }

    /// A file of the store as the node sees it: there may be a mount.
    pub(crate) fn file(&self, name: &str) -> PathBuf {
        self.node.path(self.dir.path().join(NETWORK)).join(name)
    }

    /// A configuration with these keys in `ipam`.
    pub(crate) fn conf(&self, ipam: &Value) -> Value {
        let ours = json!({"type": "headcni-ipam", "dataDir": self.dir.path()});
        json!({
            "cniVersion": "1.1.0", "name": NETWORK, "type": "test", "ipam": merged(&ours, ipam),
        })
    }

    /// A configuration with one range set per subnet.
    pub(crate) fn subnets(&self, subnets: &[&str]) -> Value {
        let sets: Vec<_> = subnets.iter().map(|s| json!([{"subnet": s}])).collect();
        self.conf(&json!({"ranges": sets}))
    }

    pub(crate) fn run(&self, plugin: Plugin, call: &Call) -> Outcome {
        call.run(&self.node, plugin.path()).unwrap()
    }

    /// Runs a plugin for `eth0` of a container.
    pub(crate) fn call(
        &self,
        plugin: Plugin,
        verb: &str,
        container: &str,
        conf: &Value,
    ) -> Outcome {
        self.run(plugin, &call(verb, container, conf))
    }

    /// The addresses of an ADD, which must succeed.
    #[track_caller]
    pub(crate) fn add(&self, plugin: Plugin, container: &str, conf: &Value) -> Vec<String> {
        addresses(&result_of(&self.call(plugin, "ADD", container, conf)))
    }

    /// A DEL, which must succeed.
    #[track_caller]
    pub(crate) fn del(&self, plugin: Plugin, container: &str, conf: &Value) {
        assert_ok(&self.call(plugin, "DEL", container, conf));
    }

    /// The message of a call of headcni-ipam, which must fail with this code.
    #[track_caller]
    pub(crate) fn assert_error(
        &self,
        verb: &str,
        container: &str,
        conf: &Value,
        code: u64,
    ) -> String {
        assert_error(&self.call(Plugin::Ours, verb, container, conf), code)
    }

    /// Every address file with its content.
    pub(crate) fn leases(&self) -> BTreeMap<IpAddr, String> {
        let entries = fs::read_dir(self.file("")).into_iter().flatten();
        let lease = |entry: fs::DirEntry| {
            let address = entry.file_name().to_str()?.parse().ok()?;
            let text = fs::read(entry.path()).unwrap_or_default();
            Some((address, String::from_utf8_lossy(&text).into_owned()))
        };
        entries.filter_map(|entry| lease(entry.unwrap())).collect()
    }

    /// The addresses of `eth0` of a container.
    pub(crate) fn leases_of(&self, container: &str) -> BTreeSet<String> {
        let text = format!("{container}\r\neth0");
        let leases = self.leases().into_iter();
        leases
            .filter(|(_, owner)| *owner == text)
            .map(|(address, _)| address.to_string())
            .collect()
    }

    /// Every file and directory below the data directory, with the content of files.
    pub(crate) fn files(&self) -> BTreeMap<PathBuf, Option<Vec<u8>>> {
        let mut files = BTreeMap::new();
        list(&self.node.path(self.data_dir()), &mut files);
        files
    }

    /// Writes a file into the store.
    pub(crate) fn write(&self, name: &str, contents: impl AsRef<[u8]>) {
        let path = self.file(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        File::create(path)
            .unwrap()
            .write_all(contents.as_ref())
            .unwrap();
    }
}

fn list(dir: &Path, files: &mut BTreeMap<PathBuf, Option<Vec<u8>>>) {
    for entry in fs::read_dir(dir).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            list(&path, files);
            files.insert(path, None);
        } else {
            let contents = fs::read(&path).unwrap_or_default();
            files.insert(path, Some(contents));
        }
    }
}

/// A call for `eth0` of a container.
pub(crate) fn call(verb: &str, container: &str, conf: &Value) -> Call {
    Call::new(verb)
        .container_id(container)
        .ifname("eth0")
        .netns("/run/netns/none")
        .path("/nowhere")
        .conf(conf)
}

/// The object with the keys of `more` added or replaced.
pub(crate) fn merged(object: &Value, more: &Value) -> Value {
    let mut all = object.as_object().unwrap().clone();
    all.extend(more.as_object().unwrap().clone());
    all.into()
}

#[track_caller]
pub(crate) fn assert_ok(outcome: &Outcome) {
    outcome.ok().unwrap();
}

/// The result of a call, which must succeed.
#[track_caller]
pub(crate) fn result_of(outcome: &Outcome) -> Value {
    outcome.ok_json().unwrap()
}

/// The message of a call, which must fail with this code.
#[track_caller]
pub(crate) fn assert_error(outcome: &Outcome, code: u64) -> String {
    assert!(!outcome.status.success(), "it result_of: {outcome:?}");
    assert_eq!(outcome.err_code(), Some(code), "{outcome:?}");
    assert!(!outcome.err_msg().is_empty(), "{outcome:?}");
    format!("{}: {}", outcome.err_msg(), outcome.err_details())
}

/// The addresses of a result, without prefix lengths.
pub(crate) fn addresses(result: &Value) -> Vec<String> {
    let ips = result["ips"].as_array().unwrap().iter();
    ips.map(|ip| {
        let cidr = ip["address"].as_str().unwrap();
        cidr.split_once('/').unwrap().0.to_owned()
    })
    .collect()
}

pub(crate) fn overwrite(path: &Path, contents: &[u8]) {
    File::create(path).unwrap().write_all(contents).unwrap();
}
