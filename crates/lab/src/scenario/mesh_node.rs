//! A node of a [`MeshCluster`](super::MeshCluster) with its daemon and tailscaled.

use std::fmt;
use std::fs;
use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::process::Stdio;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use ipnet::IpNet;
use serde_json::{Value, json};

use super::mesh_cluster::{JOIN_TIMEOUT, cluster_cidrs};
use super::{ADMIN, CONFIG, CONFLIST};
use crate::http::{Response, http_get};
use crate::metrics_client::ScrapedMetrics;
use crate::netns::Netns;
use crate::node::Node;
use crate::pod::Pod;
use crate::process::{Output, Running};
use crate::tools;
use crate::traffic::Family;
use crate::wait::eventually;
use crate::{Call, Signal};

const LOG: &str = "/run/headcni-daemon.log";
const TAILSCALED_SOCKET: &str = "/run/headcni/tailscaled.sock";

#[derive(Debug)]
pub struct MeshNode {
    pub node: Node,
    /// From 1.
    pub number: usize,
    families: &'static [Family],
    daemon: Option<Running>,
}

/// A pod with its network.
#[derive(Debug)]
pub struct AttachedPod {
    pub pod: Pod,
    /// IPv4 first.
    pub ips: Vec<IpAddr>,
    conf: Value,
}

/// How packets get from one node to another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MeshPath {
    Direct,
    /// By DERP.
    Relay,
    /// No peer serves these pod CIDRs.
    None,
}

impl fmt::Display for MeshPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Direct => "direct",
            Self::Relay => "relay",
            Self::None => "none",
        })
    }
}

impl MeshNode {
    pub(super) fn new(node: &Node, number: usize, families: &'static [Family]) -> Self {
        Self {
            node: node.clone(),
            number,
            families,
            daemon: None,
        }
    }

    /// One for each address family of the cluster's pods.
    pub fn pod_cidrs(&self) -> Vec<String> {
        let number = self.number;
        let cidr = |family: &Family| match family {
            Family::V4 => format!("10.244.{number}.0/24"),
            Family::V6 => format!("fd00:10:244:{number}::/64"),
        };
        self.families.iter().map(cidr).collect()
    }

    /// The daemon's configuration. Its last section is `tailscale`, so lines can be appended to that.
    pub fn config(&self, url: &str) -> String {
        let (local, base) = (self.pod_cidrs(), cluster_cidrs(self.families));
        let base: Vec<String> = base.iter().map(IpNet::to_string).collect();
        let program = tools::TAILSCALE.program("tailscaled");
        format!(
            "network:\n  podCIDR: {{nodeLocal: {local:?}, base: {base:?}}}\n\
             headscale:\n  url: {url}\n  caFile: /etc/headcni/ca.pem\n  apiKeyFile: /etc/headcni/api-key\n\
             tailscale:\n  program: {}\n",
            program.display()
        )
    }

    pub fn configure(&self, yaml: &str) -> Result<()> {
        self.node.write(CONFIG, yaml).map(drop)
    }

    /// Writes a configuration and has the daemon reload it.
    pub fn reconfigure(&self, yaml: &str) -> Result<()> {
        self.configure(yaml)?;
        self.reload();
        Ok(())
    }

    pub fn reload(&self) {
        self.signal(Signal::HUP);
    }

    /// Runs a shell script on the node.
    pub fn sh(&self, script: &str) -> Result<String> {
        Ok(self.node.run(["sh", "-ec", script])?.stdout)
    }

    /// Does not wait until the node is ready.
    pub fn start_daemon(&mut self) -> Result<()> {
        self.start_daemon_with_env(&[])
    }

    pub fn start_daemon_with_env(&mut self, variables: &[(&str, &str)]) -> Result<()> {
        let mut command = self.node.command("sh");
        command
            .envs(variables.iter().copied())
            .args(["-c", "exec \"$@\" >>\"$0\" 2>&1", LOG])
            .arg(tools::headcni_daemon())
            .arg("run")
            .stdin(Stdio::null());
        self.daemon = Some(Running::spawn(&mut command, b"")?);
        Ok(())
    }

    pub fn daemon_pid(&self) -> Option<u32> {
        self.daemon.as_ref().map(Running::pid)
    }

    /// Signals the daemon, if it runs.
    pub fn signal(&self, signal: Signal) {
        if let Some(daemon) = &self.daemon {
            daemon.signal(signal);
        }
    }

    /// Kills the daemon alone: its tailscaled runs on.
    pub fn kill_daemon(&mut self) -> Result<()> {
        self.end_daemon(Signal::KILL).map(drop)
    }

    pub fn stop_daemon(&mut self) -> Result<Output> {
        self.end_daemon(Signal::TERM)
    }

    fn end_daemon(&mut self, signal: Signal) -> Result<Output> {
        let daemon = self.daemon.take().context("no daemon runs")?;
        daemon.signal(signal);
        daemon.wait(Duration::from_secs(10))
    }

    /// Runs the daemon's binary with another subcommand, whatever its exit status.
    pub fn command(&self, args: &[&str]) -> Result<Output> {
        let program = tools::headcni_daemon();
        let program = program.to_str().context("a path in UTF-8")?;
        self.node
            .attempt([program].into_iter().chain(args.iter().copied()))
    }

    pub fn log(&self) -> String {
        fs::read_to_string(self.file(LOG)).unwrap_or_default()
    }

    /// The path by which this process sees a file of the node.
    pub fn file(&self, path: &str) -> PathBuf {
        format!("/proc/{}/root{path}", self.node.holder_pid()).into()
    }

    /// Sends a request to the daemon's admin server.
    pub fn get(&self, path: &str) -> Result<Response> {
        let address: SocketAddr = ADMIN.parse().context("a literal address")?;
        http_get(&self.node, address, path)
    }

    pub fn scrape(&self) -> Result<ScrapedMetrics> {
        Ok(ScrapedMetrics::new(self.get("/metrics")?.body))
    }

    /// The value of a metric; 0 if it has no such series.
    ///
    /// # Panics
    ///
    /// If the admin server does not answer.
    #[track_caller]
    pub fn metric(&self, name: &str, labels: &[(&str, &str)]) -> f64 {
        match self.scrape() {
            Ok(metrics) => metrics.sum(name, labels).unwrap_or_default(),
            Err(error) => panic!("{error:#}"),
        }
    }

    pub fn ready(&self) -> Result<Value> {
        serde_json::from_str(&self.get("/ready")?.body).context("parse /ready")
    }

    /// Whether a condition of `/ready` is True, and its message.
    pub fn condition(&self, name: &str) -> Result<(bool, String)> {
        let ready = self.ready()?;
        let conditions = ready["conditions"].as_array().into_iter().flatten();
        let found = conditions.into_iter().find(|one| one["name"] == name);
        let found = found.with_context(|| format!("no condition {name}: {ready}"))?;
        let message = found["message"].as_str().unwrap_or_default();
        Ok((found["status"] == "True", message.to_owned()))
    }

    /// Waits until a condition is True, or False; returns its message.
    pub fn await_condition(&self, name: &str, status: bool, limit: Duration) -> Result<String> {
        eventually(limit, &format!("{name} is {status}"), || {
            let (now, message) = self.condition(name).ok()?;
            (now == status && message != "not reported yet").then_some(message)
        })
        .with_context(|| self.diagnostics())
    }

    /// Waits until `/ready`, the metric and the log all report a condition as False with these texts in
    /// its message; returns the message.
    ///
    /// # Panics
    ///
    /// If one of them does not within [`JOIN_TIMEOUT`].
    #[track_caller]
    pub fn await_reported_false(&self, condition: &str, texts: &[&str]) -> String {
        let has_all = |text: &str| texts.iter().all(|part| text.contains(part));
        let what = format!("{condition} is reported as False with {texts:?}");
        let message = eventually(JOIN_TIMEOUT, &what, || {
            let (is_true, message) = self.condition(condition).ok()?;
            let is_logged = || {
                let log = self.log();
                let mut lines = log.lines().filter(|line| is_about(line, condition));
                lines.any(|line| line.contains("condition is False") && has_all(line))
            };
            let is_reported =
                !is_true && has_all(&message) && !self.condition_metric(condition)? && is_logged();
            is_reported.then_some(message)
        });
        message.unwrap_or_else(|error| panic!("{error:#}\n{}", self.diagnostics()))
    }

    /// Waits until `/ready`, the metric and the log all report a condition as True.
    ///
    /// # Panics
    ///
    /// If one of them does not within [`JOIN_TIMEOUT`].
    #[track_caller]
    pub fn await_reported_true(&self, condition: &str) {
        let what = format!("{condition} is reported as True");
        let reported = eventually(JOIN_TIMEOUT, &what, || {
            let (is_true, _) = self.condition(condition).ok()?;
            let log = self.log();
            let last = log.lines().rfind(|line| is_about(line, condition))?;
            let is_logged = last.contains("condition is True");
            (is_true && self.condition_metric(condition)? && is_logged).then_some(())
        });
        reported.unwrap_or_else(|error| panic!("{error:#}\n{}", self.diagnostics()));
    }

    fn condition_metric(&self, condition: &str) -> Option<bool> {
        let metrics = self.scrape().ok()?;
        let value = metrics.sum("headcni_condition", &[("condition", condition)])?;
        Some(value > 0.5)
    }

    pub fn await_ready(&self, limit: Duration) -> Result<()> {
        eventually(limit, &format!("{} is ready", self.node.name()), || {
            (self.get("/ready").ok()?.status == 200).then_some(())
        })
        .with_context(|| self.diagnostics())
    }

    /// `/ready` and the daemon's log, for the message of a failed test.
    pub fn diagnostics(&self) -> String {
        let ready = self
            .ready()
            .map_or_else(|error| error.to_string(), |it| format!("{it:#}"));
        format!("{}: {ready}\n{}", self.node.name(), self.log())
    }

    /// Adds a pod by the conflist that the daemon wrote.
    pub fn pod(&self, name: &str) -> Result<AttachedPod> {
        self.pod_with_conf(name, self.cni_conf()?)
    }

    pub fn pod_with_conf(&self, name: &str, conf: Value) -> Result<AttachedPod> {
        let pod = self.node.pod(name)?;
        let call = Call::new("ADD").path("/opt/cni/bin").pod(&pod).conf(&conf);
        let result = call.run(&self.node, tools::headcni())?.ok_json()?;
        let ips = result["ips"].as_array().into_iter().flatten();
        let ips = ips.filter_map(|ip| ip["address"].as_str()?.parse::<IpNet>().ok());
        let ips = ips.map(|net| net.addr()).collect();
        Ok(AttachedPod { pod, ips, conf })
    }

    /// The configuration that a runtime passes to the plugin.
    pub fn cni_conf(&self) -> Result<Value> {
        let text = fs::read_to_string(self.file(CONFLIST)).context("read the conflist")?;
        let list: Value = serde_json::from_str(&text)?;
        let mut conf = list["plugins"][0].clone();
        conf["cniVersion"] = json!("1.1.0");
        conf["name"] = list["name"].clone();
        Ok(conf)
    }

    /// Calls DEL for a pod.
    pub fn detach(&self, pod: &AttachedPod) -> Result<()> {
        let call = Call::new("DEL")
            .path("/opt/cni/bin")
            .pod(&pod.pod)
            .conf(&pod.conf);
        call.run(&self.node, tools::headcni())?.ok()?;
        Ok(())
    }

    /// The tailscaled that the daemon manages.
    pub fn tailscaled_pid(&self) -> Result<u32> {
        let found = self.sh(&format!("pgrep -f -- --socket={TAILSCALED_SOCKET} || true"))?;
        // Nodes share the host's PID namespace: the mount namespace identifies the node.
        let mounts = |pid: u32| fs::read_link(format!("/proc/{pid}/ns/mnt")).ok();
        let ours = mounts(self.node.holder_pid());
        let mut pids = found.lines().filter_map(|line| line.trim().parse().ok());
        match pids.find(|pid| mounts(*pid).is_some_and(|theirs| Some(theirs) == ours)) {
            Some(pid) => Ok(pid),
            None => bail!("no tailscaled runs on {}", self.node.name()),
        }
    }

    /// The `tailscale` command line for the managed tailscaled.
    pub fn tailscale_cli(&self) -> String {
        let program = tools::TAILSCALE.program("tailscale");
        format!("{} --socket={TAILSCALED_SOCKET}", program.display())
    }

    /// `tailscale status --json`
    pub fn tailscaled_status(&self) -> Result<Value> {
        let text = self.sh(&format!("{} status --json", self.tailscale_cli()))?;
        serde_json::from_str(&text).with_context(|| format!("parse tailscale status: {text}"))
    }

    /// IPv4 first.
    pub fn tailnet_ips(&self) -> Result<Vec<IpAddr>> {
        let status = self.tailscaled_status()?;
        let mut ips: Vec<IpAddr> = texts(&status["TailscaleIPs"])
            .filter_map(|text| text.parse().ok())
            .collect();
        ips.sort();
        Ok(ips)
    }

    /// How packets get to the pods of a peer now.
    pub fn path_to(&self, peer: &MeshNode) -> Result<MeshPath> {
        Ok(path(&self.tailscaled_status()?, &peer.pod_cidrs()))
    }
}

fn is_about(line: &str, condition: &str) -> bool {
    line.contains(&format!("condition={condition} "))
}

/// A peer has `Relay` even if it is reached directly; only `CurAddr` shows it.
fn path(status: &Value, cidrs: &[String]) -> MeshPath {
    let peers = status["Peer"].as_object().into_iter().flatten();
    let is_one = |route: &str| cidrs.iter().any(|cidr| cidr == route);
    let serves = |peer: &&Value| texts(&peer["PrimaryRoutes"]).any(is_one);
    match peers.map(|(_, peer)| peer).find(serves) {
        None => MeshPath::None,
        Some(peer) if peer["CurAddr"].as_str().is_some_and(|at| !at.is_empty()) => MeshPath::Direct,
        Some(_) => MeshPath::Relay,
    }
}

fn texts(list: &Value) -> impl Iterator<Item = &str> {
    list.as_array()
        .into_iter()
        .flatten()
        .filter_map(Value::as_str)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_peer_with_a_current_address_is_direct() {
        let status = json!({"Peer": {
            "nodekey:1": {"PrimaryRoutes": ["10.244.1.0/24"], "CurAddr": "10.99.0.1:4", "Relay": "lab"},
            "nodekey:2": {"PrimaryRoutes": ["10.244.2.0/24"], "CurAddr": "", "Relay": "lab"},
            "nodekey:3": {"PrimaryRoutes": null, "CurAddr": "10.99.0.3:4"},
        }});
        let to = |number: u8| path(&status, &[format!("10.244.{number}.0/24")]);
        let paths = [MeshPath::Direct, MeshPath::Relay, MeshPath::None];
        assert_eq!([1, 2, 3].map(to), paths);
        let without_peers = json!({"Peer": null});
        let cidrs = ["10.244.1.0/24".to_owned()];
        assert_eq!(path(&without_peers, &cidrs), MeshPath::None);
    }
}
