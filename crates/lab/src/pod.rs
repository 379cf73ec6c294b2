//! A pod: a named network namespace on a node, as a container runtime makes it.

use std::ffi::OsStr;
use std::path::PathBuf;
use std::process::Command;

use anyhow::Result;

use crate::netns::Netns;
use crate::node::Node;

/// A network namespace under the node's `/run/netns`. It ends with its node.
#[derive(Debug)]
pub struct Pod<'node> {
    node: &'node Node,
    name: String,
    netns: String,
}

impl<'node> Pod<'node> {
    pub(crate) fn new(node: &'node Node, name: &str) -> Result<Self> {
        node.run(["ip", "netns", "add", name])?;
        let (name, netns) = (name.to_owned(), format!("/run/netns/{name}"));
        Ok(Self { node, name, netns })
    }

    /// The name it was made with.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The node it is on.
    pub fn node(&self) -> &'node Node {
        self.node
    }

    /// Its namespace as programs on the node see it: what goes into `CNI_NETNS`.
    pub fn netns_path(&self) -> &str {
        &self.netns
    }

    /// Takes the namespace away, as when a sandbox dies before DEL.
    pub fn delete(&self) -> Result<()> {
        self.node.run(["ip", "netns", "delete", &self.name])?;
        Ok(())
    }
}

impl Netns for Pod<'_> {
    fn command(&self, program: impl AsRef<OsStr>) -> Command {
        let mut command = self.node.nsenter();
        // Not `ip netns exec`: that would mount things and fork.
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
