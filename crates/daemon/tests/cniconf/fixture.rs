//! A node with a reconciled CNI configuration.

use std::path::Path;

use ipnet::IpNet;
use lab::{Netns, Node};
use node_cniconf::{CniConfError, Desired, Ensured, desired, ensure};
use node_config::Config;
use node_config::Dirs;
use serde_json::{Value, json};

pub(crate) const CONF_DIR: &str = "/etc/cni/net.d";
pub(crate) const CONFLIST: &str = "/etc/cni/net.d/10-headcni.conflist";
pub(crate) const SUBNET_ENV: &str = "/run/headcni/subnet.env";
pub(crate) const KEPT: &str = "/var/lib/headcni/subnet.env";
pub(crate) const LEDGER: &str = "/var/lib/headcni/set-aside.json";

pub(crate) const BOTH: [&str; 2] = ["10.244.1.0/24", "fd00:244:0:1::/64"];

/// A conflist of another CNI.
pub(crate) const OTHER: &str =
    r#"{"cniVersion":"1.0.0","name":"other","plugins":[{"type":"bridge"}]}"#;

pub(crate) struct CniConfNode {
    pub(crate) node: Node,
}

impl CniConfNode {
    /// A node without any CNI configuration.
    pub(crate) fn new() -> Self {
        let node = Node::new("n1").unwrap();
        let fixture = Self { node };
        fixture.shell("rm -rf /etc/cni /opt/cni /var/lib/cni /var/lib/headcni /var/lib/rancher");
        fixture
    }

    /// With our configuration.
    pub(crate) fn ready() -> Self {
        let fixture = Self::new();
        fixture.ensure(&json!({})).unwrap();
        fixture
    }

    pub(crate) fn shell(&self, line: &str) -> String {
        self.node.run(["sh", "-ec", line]).unwrap().stdout
    }

    /// The paths by which this process sees the node's directories.
    pub(crate) fn dirs(&self, keys: &Value) -> Dirs {
        Dirs::locate(&config(keys).cni, &self.node.path("/"))
    }

    /// The desired files with these configuration keys.
    pub(crate) fn desired(&self, keys: &Value) -> Desired {
        self.desired_for(keys, &BOTH)
    }

    pub(crate) fn desired_for(&self, keys: &Value, local: &[&str]) -> Desired {
        desired_below(&self.node.path("/"), keys, local)
    }

    pub(crate) fn ensure(&self, keys: &Value) -> Result<Ensured, CniConfError> {
        ensure(&self.desired(keys))
    }

    pub(crate) fn list(&self, dir: &str) -> Vec<String> {
        let listed = self.shell(&format!("ls -A {dir}"));
        listed.lines().map(str::to_owned).collect()
    }

    /// Mode and owner, such as `600 0`.
    pub(crate) fn permissions(&self, path: &str) -> String {
        self.shell(&format!("stat -c '%a %u' {path}"))
            .trim()
            .to_owned()
    }

    #[track_caller]
    pub(crate) fn assert_in_place(&self, desired: &Desired) {
        assert_eq!(self.fault(desired), None);
    }

    /// The first file that is not as desired.
    pub(crate) fn fault(&self, desired: &Desired) -> Option<String> {
        let expected = [
            (CONFLIST, &desired.conflist_text, "600 0"),
            (SUBNET_ENV, &desired.subnet_env_text, "644 0"),
            (KEPT, &desired.subnet_env_text, "644 0"),
        ];
        expected.into_iter().find_map(|(path, text, permissions)| {
            let stat = ["stat", "-c", "%a %u %F", path];
            let stat = self.node.attempt(stat).unwrap().stdout;
            let read = self.node.read(path).ok();
            let is_right =
                stat.trim() == format!("{permissions} regular file") && read.as_ref() == Some(text);
            (!is_right).then(|| format!("{path}: {} {read:?}", stat.trim()))
        })
    }
}

pub(crate) fn desired_below(root: &Path, keys: &Value, local: &[&str]) -> Desired {
    let net = |text: &&str| text.parse::<IpNet>().unwrap();
    let local: Vec<IpNet> = local.iter().map(net).collect();
    let base: Vec<IpNet> = ["10.244.0.0/16", "fd00:244::/48"].iter().map(net).collect();
    let config = config(keys);
    let dirs = Dirs::locate(&config.cni, root);
    desired(&config, &local, &base, &dirs).unwrap()
}

fn config(keys: &Value) -> Config {
    serde_json::from_value(keys.clone()).unwrap()
}
