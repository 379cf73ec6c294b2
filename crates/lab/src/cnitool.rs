//! The reference runtime, cnitool, on a node.

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

/// One run of cnitool. It finds plugins in the reference plugins' directory unless told.
#[derive(Debug, Clone)]
pub struct CniTool<'node> {
    node: &'node Node,
    line: [String; 3],
    env: Vec<(OsString, OsString)>,
    deadline: Duration,
}

impl Node {
    /// Runs cnitool's `verb` (add, check, del, gc, status) for the network `net` of the node's
    /// directory `conf_dir` and the namespace `netns`, from which cnitool makes a container id.
    pub fn cnitool(&self, conf_dir: &str, verb: &str, net: &str, netns: &str) -> CniTool<'_> {
        let line = [verb, net, netns].map(str::to_owned);
        let tool = CniTool {
            node: self,
            line,
            env: Vec::new(),
            deadline: DEADLINE,
        };
        tool.env("NETCONFPATH", conf_dir)
            .path(tools::cni_plugin_dir())
    }
}

impl CniTool<'_> {
    /// `CNI_PATH`: one directory, or several separated by colons.
    #[must_use]
    pub fn path(self, path: impl AsRef<OsStr>) -> Self {
        self.env("CNI_PATH", path)
    }

    /// `CNI_IFNAME`; `eth0` unless told.
    #[must_use]
    pub fn ifname(self, name: &str) -> Self {
        self.env("CNI_IFNAME", name)
    }

    /// `CNI_ARGS`
    #[must_use]
    pub fn args(self, args: &str) -> Self {
        self.env("CNI_ARGS", args)
    }

    /// `CAP_ARGS`: the runtime's values for capabilities, as in `{"portMappings": [...]}`.
    #[must_use]
    pub fn capabilities(self, values: &Value) -> Self {
        self.env("CAP_ARGS", values.to_string())
    }

    /// Any variable; a later value wins. Plugins get them all.
    #[must_use]
    pub fn env(mut self, name: impl AsRef<OsStr>, value: impl AsRef<OsStr>) -> Self {
        self.env
            .push((name.as_ref().to_owned(), value.as_ref().to_owned()));
        self
    }

    /// How long it may take before it fails; 30 seconds unless told.
    #[must_use]
    pub fn deadline(mut self, deadline: Duration) -> Self {
        self.deadline = deadline;
        self
    }

    /// Runs it. On failure cnitool prints no error object but a text on stderr.
    pub fn run(&self) -> Result<Outcome> {
        let start = Instant::now();
        let mut command = self.node.command(tools::cnitool());
        bare(command.args(&self.line)).envs(self.env.iter().map(|(name, value)| (name, value)));
        let output = Running::spawn(&mut command, b"")?.wait(self.deadline)?;
        Ok(Outcome::new(output, start.elapsed()))
    }
}
