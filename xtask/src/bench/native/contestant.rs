//! One way to attach a pod: which programs, with which configuration.
//!
//! All have the same MTU, subnets of the same size, and their leases on the same disk. Each has a
//! network of its own, so that nobody finds another's leases in the way.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result};
use lab::tools::cni_plugin_dir;
use serde_json::{Value, json};

use crate::bench::call::{Call, timed};
use crate::bench::sandbox::Pod;

/// What a pod gets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Network {
    Ipv4,
    DualStack,
    /// IPv4, and one port of the node that leads to the pod.
    HostPort,
}

impl Network {
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Ipv4 => "IPv4",
            Self::DualStack => "dual stack",
            Self::HostPort => "one hostPort",
        }
    }
}

/// Who attaches it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum By {
    Floor,
    Headcni,
    Bridge,
    BridgeMasq,
    BridgePortmap,
}

impl By {
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Floor => "floor",
            Self::Headcni => "headcni",
            Self::Bridge => "bridge + host-local",
            Self::BridgeMasq => "the same with ipMasq",
            Self::BridgePortmap => "bridge + host-local + portmap",
        }
    }
}

pub(super) struct Contestant {
    pub(super) network: Network,
    pub(super) by: By,
    /// Names its network, and numbers its subnets.
    id: u8,
    /// Where the floor and our plugin are.
    programs: PathBuf,
    state: PathBuf,
}

impl Contestant {
    pub(super) const ALL: [(Network, By); 9] = [
        (Network::Ipv4, By::Floor),
        (Network::Ipv4, By::Headcni),
        (Network::Ipv4, By::Bridge),
        (Network::Ipv4, By::BridgeMasq),
        (Network::DualStack, By::Floor),
        (Network::DualStack, By::Headcni),
        (Network::DualStack, By::Bridge),
        (Network::HostPort, By::Headcni),
        (Network::HostPort, By::BridgePortmap),
    ];

    pub(super) fn new(network: Network, by: By, programs: &Path, state: &Path) -> Self {
        Self {
            network,
            by,
            id: 64 + network as u8 * 8 + by as u8,
            programs: programs.to_owned(),
            state: state.to_owned(),
        }
    }

    /// Attaches a pod, by the commands that `wrap` makes of ours. Returns how long that took, and
    /// the result that a runtime would keep.
    pub(super) fn attach(
        &self,
        pod: &Pod,
        wrap: impl Fn(Command) -> Command,
    ) -> Result<(Duration, Value)> {
        let (mut wall, mut result) = (Duration::ZERO, Value::Null);
        if self.by == By::Floor {
            let mut command = Command::new(self.programs.join("floor"));
            command.arg("add").arg(&pod.netns).arg(host_link(pod));
            command.args(self.addresses(pod));
            let ran = timed(wrap(command), "").context("ADD by the floor")?;
            return Ok((ran.0, result));
        }
        for plugin in self.plugins(pod) {
            let took;
            (took, result) = plugin.run("ADD", pod, &result, &wrap)?;
            wall += took;
        }
        Ok((wall, result))
    }

    /// Detaches a pod whose attachment had this result.
    pub(super) fn detach(&self, pod: &Pod, result: &Value) -> Result<Duration> {
        if self.by == By::Floor {
            let mut command = Command::new(self.programs.join("floor"));
            command.arg("del").arg(host_link(pod));
            return Ok(timed(command, "").context("DEL by the floor")?.0);
        }
        let plugins = self.plugins(pod).into_iter().rev();
        plugins
            .map(|plugin| Ok(plugin.run("DEL", pod, result, |command| command)?.0))
            .sum()
    }

    /// What is executed for a pod, in the order of ADD.
    fn plugins(&self, pod: &Pod) -> Vec<Plugin> {
        let reference = cni_plugin_dir();
        let own = match self.by {
            By::Headcni => json!({
                "type": "headcni",
                "dataDir": self.state.join("headcni"),
                "ipam": self.ipam("headcni-ipam"),
            }),
            _ => json!({
                "type": "bridge",
                "bridge": format!("hcbench{}", self.id),
                "isGateway": true,
                "ipMasq": self.by == By::BridgeMasq,
                "ipam": self.ipam("host-local"),
            }),
        };
        let dir = match self.by {
            By::Headcni => self.programs.clone(),
            _ => reference.clone(),
        };
        let mut plugins = vec![(dir, own)];
        if self.by == By::BridgePortmap {
            let portmap = json!({ "type": "portmap", "backend": "iptables" });
            plugins.push((reference, portmap));
        }
        plugins
            .into_iter()
            .map(|(dir, own)| self.complete(&dir, own, pod))
            .collect()
    }

    /// Adds what a runtime adds, and what all have in common.
    fn complete(&self, dir: &Path, mut config: Value, pod: &Pod) -> Plugin {
        config["cniVersion"] = json!("1.1.0");
        config["name"] = json!(format!("bench{}", self.id));
        config["mtu"] = json!(1280);
        if self.network == Network::HostPort {
            let port = json!({
                "hostPort": 10_000 + pod.nth,
                "containerPort": 80,
                "protocol": "tcp",
            });
            config["capabilities"] = json!({ "portMappings": true });
            config["runtimeConfig"] = json!({ "portMappings": [port] });
        }
        let program = dir.join(config["type"].as_str().unwrap_or_default());
        Plugin { program, config }
    }

    fn ipam(&self, plugin: &str) -> Value {
        let id = self.id;
        let mut ranges = vec![json!([{ "subnet": format!("10.{id}.0.0/16") }])];
        let mut routes = vec![json!({ "dst": "0.0.0.0/0" })];
        if self.network == Network::DualStack {
            ranges.push(json!([{ "subnet": format!("fd77:{id}::/64") }]));
            routes.push(json!({ "dst": "::/0" }));
        }
        let leases = self.state.join("leases");
        json!({ "type": plugin, "dataDir": leases, "ranges": ranges, "routes": routes })
    }

    /// The addresses that the floor gives a pod, each with its gateway.
    fn addresses(&self, pod: &Pod) -> Vec<String> {
        let (id, nth) = (self.id, pod.nth + 2);
        let mut words = vec![
            format!("10.{id}.{}.{}/16", nth / 256, nth % 256),
            format!("10.{id}.0.1"),
        ];
        if self.network == Network::DualStack {
            words.extend([format!("fd77:{id}::{nth:x}/64"), format!("fd77:{id}::1")]);
        }
        words
    }
}

/// A plugin, and its configuration for one pod.
struct Plugin {
    program: PathBuf,
    config: Value,
}

impl Plugin {
    fn run(
        mut self,
        verb: &str,
        pod: &Pod,
        earlier: &Value,
        wrap: impl Fn(Command) -> Command,
    ) -> Result<(Duration, Value)> {
        if !earlier.is_null() {
            self.config["prevResult"] = earlier.clone();
        }
        let call = Call {
            program: &self.program,
            config: &self.config,
            container: &format!("bench-{}", pod.nth),
            pod,
        };
        call.answer(verb, wrap)
    }
}

/// The node's end of the link that the floor makes for a pod.
fn host_link(pod: &Pod) -> String {
    format!("hcfloor{}", pod.nth)
}
