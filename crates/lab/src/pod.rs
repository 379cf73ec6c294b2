//! A pod: a named netns on a node, as a container runtime makes it.

use std::ffi::OsStr;
use std::path::PathBuf;
use std::process::Command;

use anyhow::Result;

use crate::netns::Netns;
use crate::node::Node;

/// A netns under the node's `/run/netns`. It ends with its node.
#[derive(Clone, Debug)]
pub struct Pod {
    node: Node,
    name: String,
    netns: String,
}

impl Pod {
    pub(crate) fn new(node: &Node, name: &str) -> Result<Self> {
        node.run(["ip", "netns", "add", name])?;
        Ok(Self {
            node: node.clone(),
            name: name.to_owned(),
            netns: format!("/run/netns/{name}"),
        })
    }

    pub fn name(&self) -> &str {
        &self.name
    }

    pub fn node(&self) -> &Node {
        &self.node
    }

    /// The netns path as programs on the node see it: the value of `CNI_NETNS`.
    pub fn netns_path(&self) -> &str {
        &self.netns
    }

    /// Deletes the netns, as when a sandbox dies before DEL.
    pub fn delete(&self) -> Result<()> {
        self.node.run(["ip", "netns", "delete", &self.name])?;
        Ok(())
    }
}

impl Netns for Pod {
    fn command(&self, program: impl AsRef<OsStr>) -> Command {
        let mut command = self.node.nsenter();
        // `ip netns exec` would mount sysfs and fork.
        command
            .arg(format!("--net={}", self.netns_file().display()))
            .arg("--")
            .arg(program);
        command
    }

    fn netns_file(&self) -> PathBuf {
        self.node.path(&self.netns)
    }
}
