//! cnitool, the reference runtime, on a node.

use std::ffi::{OsStr, OsString};
use std::time::{Duration, Instant};

use anyhow::Result;
use serde_json::Value;

use crate::call::Outcome;
use crate::environment::bare;
use crate::netns::Netns;
use crate::node::Node;
use crate::process::{DEADLINE, Running};
use crate::tools;

/// One run of cnitool. `CNI_PATH` is the reference plugins' directory by default.
#[derive(Debug, Clone)]
pub struct CniTool {
    node: Node,
    line: [String; 3],
    env: Vec<(OsString, OsString)>,
    deadline: Duration,
}

impl Node {
    /// Runs cnitool's `verb` (add, check, del, gc, status) for the network `net` of the node's
    /// directory `conf_dir` and the namespace `netns`, from which cnitool derives a container ID.
    pub fn cnitool(&self, conf_dir: &str, verb: &str, net: &str, netns: &str) -> CniTool {
        let line = [verb, net, netns].map(str::to_owned);
        let tool = CniTool {
            node: self.clone(),
            line,
            env: Vec::new(),
            deadline: DEADLINE,
        };
        tool.env("NETCONFPATH", conf_dir)
            .path(tools::cni_plugin_dir())
    }
}

impl CniTool {
    /// `CNI_PATH`: one directory, or several separated by colons.
    #[must_use]
    pub fn path(self, path: impl AsRef<OsStr>) -> Self {
        self.env("CNI_PATH", path)
    }

    /// `CNI_IFNAME`. Default: `eth0`.
    #[must_use]
    pub fn ifname(self, name: &str) -> Self {
        self.env("CNI_IFNAME", name)
    }

    /// `CNI_ARGS`
    #[must_use]
    pub fn args(self, args: &str) -> Self {
        self.env("CNI_ARGS", args)
    }

    /// `CAP_ARGS`, such as `{"portMappings": [...]}`.
    #[must_use]
    pub fn capabilities(self, values: &Value) -> Self {
        self.env("CAP_ARGS", values.to_string())
    }

    /// A later value wins. Plugins inherit the variables.
    #[must_use]
    pub fn env(mut self, name: impl AsRef<OsStr>, value: impl AsRef<OsStr>) -> Self {
        self.env
            .push((name.as_ref().to_owned(), value.as_ref().to_owned()));
        self
    }

    /// Default: [`DEADLINE`].
    #[must_use]
    pub fn deadline(mut self, deadline: Duration) -> Self {
        self.deadline = deadline;
        self
    }

    /// On failure cnitool prints a text to stderr, not an error object.
    pub fn run(&self) -> Result<Outcome> {
        let start = Instant::now();
        let mut command = self.node.command(tools::cnitool());
        bare(command.args(&self.line)).envs(self.env.iter().map(|(name, value)| (name, value)));
        let output = Running::spawn(&mut command, b"")?.wait(self.deadline)?;
        Ok(Outcome::new(output, start.elapsed()))
    }
}
