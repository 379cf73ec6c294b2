//! Calling a CNI plugin as a runtime would.

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

/// One call of a plugin. Nothing is set that was not asked for, except `CNI_COMMAND` and `PATH`,
/// so that a missing variable can be tested, too.
#[derive(Debug, Clone)]
pub struct Call {
    pub(crate) under: Vec<OsString>,
    pub(crate) injections: Vec<Injection>,
    env: Vec<(OsString, OsString)>,
    stdin: Vec<u8>,
    deadline: Duration,
}

impl Call {
    /// A call of this verb: ADD, DEL, CHECK, GC, STATUS, VERSION or whatever else.
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

    /// For `eth0` of this pod, with the pod's name as container id.
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

    /// `CNI_ARGS`, as in `K8S_POD_NAME=p;IgnoreUnknown=1`
    #[must_use]
    pub fn args(self, args: &str) -> Self {
        self.env("CNI_ARGS", args)
    }

    /// `CNI_PATH`: one directory, or several separated by colons.
    #[must_use]
    pub fn path(self, path: impl AsRef<OsStr>) -> Self {
        self.env("CNI_PATH", path)
    }

    /// Any variable; a later value wins.
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

    /// Raw input in place of a configuration: torn JSON, say.
    #[must_use]
    pub fn stdin(mut self, bytes: impl Into<Vec<u8>>) -> Self {
        self.stdin = bytes.into();
        self
    }

    /// A program that runs the plugin, with its own arguments before the plugin's path.
    #[must_use]
    pub fn under<S: AsRef<OsStr>>(mut self, line: impl IntoIterator<Item = S>) -> Self {
        self.under = line
            .into_iter()
            .map(|word| word.as_ref().to_owned())
            .collect();
        self
    }

    /// How long the plugin may take before the call fails; 30 seconds unless told.
    #[must_use]
    pub fn deadline(mut self, deadline: Duration) -> Self {
        self.deadline = deadline;
        self
    }

    /// Calls the plugin at this path on the node and waits for its end.
    pub fn run(&self, node: &Node, plugin: impl AsRef<Path>) -> Result<Outcome> {
        let start = Instant::now();
        let output = self.spawn(node, plugin)?.wait(self.deadline)?;
        Ok(Outcome::new(output, start.elapsed()))
    }

    /// Starts the plugin and leaves it running: to be killed in the middle, say.
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

/// How a call of a plugin, or of cnitool, ended.
#[derive(Debug, Clone)]
pub struct Outcome {
    /// Exit status, or the signal.
    pub status: ExitStatus,
    /// All of stdout.
    pub stdout: String,
    /// All of stderr.
    pub stderr: String,
    /// stdout, if it is JSON: a result or an error object.
    pub json: Option<Value>,
    /// From the start to the end.
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

    /// Succeeds if the plugin did, whatever it printed.
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

    /// The result that a successful plugin printed.
    pub fn ok_json(&self) -> Result<Value> {
        self.ok()?;
        self.json
            .clone()
            .with_context(|| format!("stdout is no JSON: {:?}", self.stdout))
    }

    /// The code of the error object that a failed plugin printed.
    pub fn err_code(&self) -> Option<u64> {
        self.error()?["code"].as_u64()
    }

    /// The message of the error object that a failed plugin printed, or nothing.
    pub fn err_msg(&self) -> &str {
        self.error()
            .and_then(|error| error["msg"].as_str())
            .unwrap_or_default()
    }

    /// The details of the error object that a failed plugin printed, or nothing.
    pub fn err_details(&self) -> &str {
        self.error()
            .and_then(|error| error["details"].as_str())
            .unwrap_or_default()
    }

    fn error(&self) -> Option<&Value> {
        self.json.as_ref().filter(|_| !self.status.success())
    }
}
