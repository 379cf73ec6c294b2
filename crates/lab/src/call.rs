//! Calls a CNI plugin as a runtime does.

use std::ffi::{OsStr, OsString};
use std::path::Path;
use std::process::ExitStatus;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use serde_json::Value;

use crate::environment::bare;
use crate::moments::{self, Injection};
use crate::netns::Netns;
use crate::node::Node;
use crate::pod::Pod;
use crate::process::{DEADLINE, Output, Running};

/// One call of a plugin. Only `CNI_COMMAND` and `PATH` are set by default, so that a test can leave out
/// any other variable.
#[derive(Debug, Clone)]
pub struct Call {
    pub(crate) under: Vec<OsString>,
    pub(crate) injections: Vec<Injection>,
    env: Vec<(OsString, OsString)>,
    stdin: Vec<u8>,
    deadline: Duration,
}

impl Call {
    pub fn new(verb: &str) -> Self {
        let call = Self {
            under: Vec::new(),
            injections: Vec::new(),
            env: Vec::new(),
            stdin: Vec::new(),
            deadline: DEADLINE,
        };
        call.env("CNI_COMMAND", verb)
    }

    /// For `eth0` of this pod, with the pod's name as container ID.
    #[must_use]
    pub fn pod(self, pod: &Pod) -> Self {
        self.container_id(pod.name())
            .netns(pod.netns_path())
            .ifname("eth0")
    }

    /// `CNI_CONTAINERID`
    #[must_use]
    pub fn container_id(self, id: &str) -> Self {
        self.env("CNI_CONTAINERID", id)
    }

    /// `CNI_NETNS`
    #[must_use]
    pub fn netns(self, path: &str) -> Self {
        self.env("CNI_NETNS", path)
    }

    /// `CNI_IFNAME`
    #[must_use]
    pub fn ifname(self, name: &str) -> Self {
        self.env("CNI_IFNAME", name)
    }

    /// `CNI_ARGS`, such as `K8S_POD_NAME=p;IgnoreUnknown=1`
    #[must_use]
    pub fn args(self, args: &str) -> Self {
        self.env("CNI_ARGS", args)
    }

    /// `CNI_PATH`: one directory, or several separated by colons.
    #[must_use]
    pub fn path(self, path: impl AsRef<OsStr>) -> Self {
        self.env("CNI_PATH", path)
    }

    /// A later value wins.
    #[must_use]
    pub fn env(mut self, name: impl AsRef<OsStr>, value: impl AsRef<OsStr>) -> Self {
        self.env
            .push((name.as_ref().to_owned(), value.as_ref().to_owned()));
        self
    }

    /// The network configuration.
    #[must_use]
    pub fn conf(self, conf: &Value) -> Self {
        self.stdin(conf.to_string())
    }

    /// Raw input, such as truncated JSON.
    #[must_use]
    pub fn stdin(mut self, bytes: impl Into<Vec<u8>>) -> Self {
        self.stdin = bytes.into();
        self
    }

    /// Runs the plugin under another program: `line` comes before the plugin's path.
    #[must_use]
    pub fn under<S: AsRef<OsStr>>(mut self, line: impl IntoIterator<Item = S>) -> Self {
        self.under = line
            .into_iter()
            .map(|word| word.as_ref().to_owned())
            .collect();
        self
    }

    /// Default: [`DEADLINE`].
    #[must_use]
    pub fn deadline(mut self, deadline: Duration) -> Self {
        self.deadline = deadline;
        self
    }

    pub fn run(&self, node: &Node, plugin: impl AsRef<Path>) -> Result<Outcome> {
        let start = Instant::now();
        let output = self.spawn(node, plugin)?.wait(self.deadline)?;
        Ok(Outcome::new(output, start.elapsed()))
    }

    /// Starts the plugin and does not wait for it.
    pub fn spawn(&self, node: &Node, plugin: impl AsRef<Path>) -> Result<Running> {
        let plugin = plugin.as_ref().as_os_str();
        let strace = match self.injections.as_slice() {
            [] => Vec::new(),
            injections => moments::strace("/dev/null", injections),
        };
        let under = self.under.iter().map(OsString::as_os_str);
        let mut words = under.chain(strace.iter().map(OsStr::new)).chain([plugin]);
        let mut command = node.command(words.next().unwrap_or(plugin));
        command.args(words);
        bare(&mut command).envs(self.env.iter().map(|(name, value)| (name, value)));
        Running::spawn(&mut command, &self.stdin)
    }
}

/// The result of a call of a plugin or of cnitool.
#[derive(Debug, Clone)]
pub struct Outcome {
    pub status: ExitStatus,
    pub stdout: String,
    pub stderr: String,
    /// stdout, if it is JSON.
    pub json: Option<Value>,
    pub elapsed: Duration,
}

impl Outcome {
    pub(crate) fn new(output: Output, elapsed: Duration) -> Self {
        let Output {
            status,
            stdout,
            stderr,
        } = output;
        let json = serde_json::from_str(&stdout).ok();
        Self {
            status,
            stdout,
            stderr,
            json,
            elapsed,
        }
    }

    /// `Ok` if the exit status is 0.
    pub fn ok(&self) -> Result<()> {
        if !self.status.success() {
            bail!(
                "{}\nstdout: {}\nstderr: {}",
                self.status,
                self.stdout,
                self.stderr
            );
        }
        Ok(())
    }

    /// stdout of a successful plugin.
    pub fn ok_json(&self) -> Result<Value> {
        self.ok()?;
        self.json
            .clone()
            .with_context(|| format!("stdout is not JSON: {:?}", self.stdout))
    }

    /// `code` of the error object of a failed plugin.
    pub fn err_code(&self) -> Option<u64> {
        self.error()?["code"].as_u64()
    }

    /// `msg` of the error object of a failed plugin, or nothing.
    pub fn err_msg(&self) -> &str {
        self.error()
            .and_then(|error| error["msg"].as_str())
            .unwrap_or_default()
    }

    /// `details` of the error object of a failed plugin, or nothing.
    pub fn err_details(&self) -> &str {
        self.error()
            .and_then(|error| error["details"].as_str())
            .unwrap_or_default()
    }

    fn error(&self) -> Option<&Value> {
        self.json.as_ref().filter(|_| !self.status.success())
    }
}
