//! A node with the real daemon and real plugin calls, without a mesh.

use std::fs;
use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::time::Duration;

use serde_json::{Value, json};

use super::{ADMIN, CONFIG, install_plugins};
use crate::http::{Response, http_get};
use crate::netns::Netns;
use crate::node::Node;
use crate::pod::Pod;
use crate::process::{Output, Running};
use crate::wait::eventually;
use crate::{Call, Signal, tools};

pub const CONFLIST: &str = "/etc/cni/net.d/10-headcni.conflist";
/// How long the daemon may take for anything.
const TIMEOUT: Duration = Duration::from_secs(10);

/// Its methods panic, as the assertions of a test do.
#[derive(Debug)]
pub struct DaemonNode {
    pub node: Node,
}

impl Default for DaemonNode {
    fn default() -> Self {
        Self::new()
    }
}

impl DaemonNode {
    /// A node with the pod CIDR 10.244.1.0/24.
    #[track_caller]
    pub fn new() -> Self {
        Self::with_config("network: {podCIDR: {nodeLocal: 10.244.1.0/24, base: 10.244.0.0/16}}")
    }

    #[track_caller]
    pub fn with_config(yaml: &str) -> Self {
        let node = Node::new("node-a").expect("make a node");
        install_plugins(&node).expect("link the plugins");
        let scenario = Self { node };
        scenario.configure(yaml);
        scenario
    }

    #[track_caller]
    pub fn configure(&self, yaml: &str) {
        self.node.write(CONFIG, yaml).expect("write daemon.yaml");
    }

    /// Runs a shell script on the node.
    #[track_caller]
    pub fn sh(&self, script: &str) -> String {
        let output = self.node.run(["sh", "-ec", script]);
        output.unwrap_or_else(|error| panic!("{error:#}")).stdout
    }

    /// The path by which this process sees a file of the node.
    pub fn file(&self, path: &str) -> PathBuf {
        format!("/proc/{}/root{path}", self.node.holder_pid()).into()
    }

    pub fn read(&self, path: &str) -> Option<String> {
        fs::read_to_string(self.file(path)).ok()
    }

    #[track_caller]
    pub fn pod(&self, name: &str) -> Pod {
        self.node.pod(name).expect("make a netns")
    }

    /// Runs the daemon's binary with this subcommand, whatever its exit status.
    #[track_caller]
    pub fn command(&self, args: &[&str]) -> Output {
        let program = tools::headcni_daemon();
        let line = [program.to_str().expect("a path in UTF-8")]
            .into_iter()
            .chain(args.iter().copied());
        self.node.attempt(line).expect("run headcni-daemon")
    }

    /// Does not wait until the node is ready.
    #[track_caller]
    pub fn spawn_daemon(&self) -> Daemon<'_> {
        self.spawn_daemon_with_env(&[])
    }

    #[track_caller]
    pub fn spawn_daemon_with_env(&self, variables: &[(&str, &str)]) -> Daemon<'_> {
        let mut command = self.node.command("env");
        let assign = |(name, value): &(&str, &str)| format!("{name}={value}");
        command.args(variables.iter().map(assign));
        command.arg(tools::headcni_daemon()).arg("run");
        Daemon {
            node: self,
            running: Running::spawn(&mut command, b"").expect("start headcni-daemon"),
        }
    }

    /// Waits until the node is ready.
    #[track_caller]
    pub fn start_daemon(&self) -> Daemon<'_> {
        let daemon = self.spawn_daemon();
        daemon.await_ready();
        daemon
    }

    /// The configuration that a runtime passes to the plugin.
    #[track_caller]
    pub fn cni_conf(&self) -> Value {
        let conflist = self.read(CONFLIST).expect("the conflist");
        let list: Value = serde_json::from_str(&conflist).expect("a conflist in JSON");
        let mut conf = list["plugins"][0].clone();
        conf["cniVersion"] = json!("1.1.0");
        conf["name"] = list["name"].clone();
        conf
    }

    pub fn call(&self, verb: &str) -> Call {
        Call::new(verb).path("/opt/cni/bin")
    }

    #[track_caller]
    pub fn add(&self, pod: &Pod) -> Value {
        let call = self.call("ADD").pod(pod).conf(&self.cni_conf());
        let outcome = call.run(&self.node, tools::headcni());
        outcome
            .and_then(|outcome| outcome.ok_json())
            .unwrap_or_else(|error| panic!("ADD: {error:#}"))
    }

    #[track_caller]
    pub fn del(&self, pod: &Pod) {
        let call = self.call("DEL").pod(pod).conf(&self.cni_conf());
        let outcome = call.run(&self.node, tools::headcni());
        outcome
            .and_then(|outcome| outcome.ok())
            .unwrap_or_else(|error| panic!("DEL: {error:#}"));
    }

    /// The addresses that have a lease file.
    pub fn leases(&self) -> Vec<String> {
        let listed = self.sh("cd /var/lib/cni/networks 2>/dev/null || exit 0
             ls headcni/headcni 2>/dev/null || ls headcni 2>/dev/null || true");
        let names = listed.lines().filter(|name| name.parse::<IpAddr>().is_ok());
        names.map(str::to_owned).collect()
    }

    /// The plugin's attachment records.
    pub fn records(&self) -> Vec<String> {
        let listed = self.sh("ls /var/lib/cni/headcni/headcni 2>/dev/null || true");
        let is_record = |name: &&str| !name.starts_with("new.");
        listed
            .lines()
            .filter(is_record)
            .map(str::to_owned)
            .collect()
    }

    /// The host ends of pods' veth pairs.
    #[track_caller]
    pub fn pod_links(&self) -> Vec<String> {
        let mut links = self.node.links().expect("list links");
        links.retain(|name| name.starts_with("hc"));
        links
    }

    #[track_caller]
    pub fn eventually<T>(&self, what: &str, probe: impl FnMut() -> Option<T>) -> T {
        eventually(TIMEOUT, what, probe).unwrap_or_else(|error| panic!("{error:#}"))
    }
}

/// The running daemon. Dropped, it is killed.
#[derive(Debug)]
pub struct Daemon<'a> {
    node: &'a DaemonNode,
    pub running: Running,
}

impl Daemon<'_> {
    /// Sends a request to the admin server; `None` if it does not answer.
    pub fn get(&self, path: &str) -> Option<Response> {
        let address: SocketAddr = ADMIN.parse().ok()?;
        http_get(&self.node.node, address, path).ok()
    }

    pub fn ready(&self) -> Option<Value> {
        serde_json::from_str(&self.get("/ready")?.body).ok()
    }

    pub fn condition(&self, name: &str) -> Option<Value> {
        let ready = self.ready()?;
        let mut conditions = ready["conditions"].as_array()?.iter();
        conditions.find(|one| one["name"] == name).cloned()
    }

    /// Waits until a condition has this status; returns its message.
    #[track_caller]
    pub fn await_condition(&self, name: &str, status: &str) -> String {
        let found = eventually(TIMEOUT, &format!("{name} is {status}"), || {
            let condition = self.condition(name)?;
            let message = condition["message"].as_str()?.to_owned();
            (condition["status"] == status).then_some(message)
        });
        found.unwrap_or_else(|error| panic!("{error}: {:#?}", self.ready()))
    }

    #[track_caller]
    pub fn await_ready(&self) {
        let is_ready = || (self.get("/ready")?.status == 200).then_some(());
        if let Err(error) = eventually(TIMEOUT, "the node is ready", is_ready) {
            panic!("{error}: {:#?}", self.ready());
        }
    }

    /// The value of a series, given with its labels.
    pub fn metric(&self, series: &str) -> Option<f64> {
        let body = self.get("/metrics")?.body;
        let value = body.lines().find_map(|line| line.strip_prefix(series))?;
        value.trim().parse().ok()
    }

    #[track_caller]
    pub fn await_metric(&self, series: &str, value: f64) {
        let is_equal = || ((self.metric(series)? - value).abs() < 0.001).then_some(());
        if let Err(error) = eventually(TIMEOUT, &format!("{series} is {value}"), is_equal) {
            panic!("{error}, but {:?}", self.metric(series));
        }
    }

    /// Stops it as systemd does; returns its log.
    #[track_caller]
    pub fn stop(self) -> Output {
        self.running.signal(Signal::TERM);
        let output = self.running.wait(Duration::from_secs(5));
        output.unwrap_or_else(|error| panic!("{error:#}"))
    }

    /// Kills it with SIGKILL; returns its log.
    #[track_caller]
    pub fn kill(self) -> Output {
        self.running.kill();
        let output = self.running.wait(TIMEOUT);
        output.unwrap_or_else(|error| panic!("{error:#}"))
    }

    pub fn reload(&self) {
        self.running.signal(Signal::HUP);
    }
}
