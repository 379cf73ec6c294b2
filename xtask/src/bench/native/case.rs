//! One way to attach a pod: programs and configuration.
//!
//! All have the same MTU, subnets of the same size, and leases on the same disk. Each has its own
//! network, so that none meets another's leases.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result};
use lab::tools::cni_plugin_dir;
use serde_json::{Value, json};

use crate::bench::call::{Call, timed};
use crate::bench::sandbox::Pod;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Network {
    Ipv4,
    DualStack,
    /// IPv4 with one hostPort.
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

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Implementation {
    Floor,
    Headcni,
    Bridge,
    BridgeMasq,
    BridgePortmap,
}

impl Implementation {
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

pub(super) struct NativeCase {
    pub(super) network: Network,
    pub(super) by: Implementation,
    /// Part of the network's name and of its subnets.
    id: u8,
    /// Directory of the floor and our plugin.
    programs: PathBuf,
    state: PathBuf,
}

impl NativeCase {
    pub(super) const ALL: [(Network, Implementation); 9] = [
        (Network::Ipv4, Implementation::Floor),
        (Network::Ipv4, Implementation::Headcni),
        (Network::Ipv4, Implementation::Bridge),
        (Network::Ipv4, Implementation::BridgeMasq),
        (Network::DualStack, Implementation::Floor),
        (Network::DualStack, Implementation::Headcni),
        (Network::DualStack, Implementation::Bridge),
        (Network::HostPort, Implementation::Headcni),
        (Network::HostPort, Implementation::BridgePortmap),
    ];

    pub(super) fn new(network: Network, by: Implementation, programs: &Path, state: &Path) -> Self {
        Self {
            network,
            by,
            id: 64 + network as u8 * 8 + by as u8,
            programs: programs.to_owned(),
            state: state.to_owned(),
        }
    }

    /// Attaches a pod with commands wrapped by `wrap`. Returns the wall time and the result that a
    /// runtime would keep.
    pub(super) fn attach(
        &self,
        pod: &Pod,
        wrap: impl Fn(Command) -> Command,
    ) -> Result<(Duration, Value)> {
        let (mut wall, mut result) = (Duration::ZERO, Value::Null);
        if self.by == Implementation::Floor {
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
        if self.by == Implementation::Floor {
            let mut command = Command::new(self.programs.join("floor"));
            command.arg("del").arg(host_link(pod));
            return Ok(timed(command, "").context("DEL by the floor")?.0);
        }
        let plugins = self.plugins(pod).into_iter().rev();
        plugins
            .map(|plugin| Ok(plugin.run("DEL", pod, result, |command| command)?.0))
            .sum()
    }

    /// The plugins of a pod, in the order of ADD.
    fn plugins(&self, pod: &Pod) -> Vec<Plugin> {
        let reference = cni_plugin_dir();
        let own = match self.by {
            Implementation::Headcni => json!({
                "type": "headcni",
                "dataDir": self.state.join("headcni"),
                "ipam": self.ipam("headcni-ipam"),
            }),
            _ => json!({
                "type": "bridge",
                "bridge": format!("hcbench{}", self.id),
                "isGateway": true,
                "ipMasq": self.by == Implementation::BridgeMasq,
                "ipam": self.ipam("host-local"),
            }),
        };
        let dir = match self.by {
            Implementation::Headcni => self.programs.clone(),
            _ => reference.clone(),
        };
        let mut plugins = vec![(dir, own)];
        if self.by == Implementation::BridgePortmap {
            let portmap = json!({ "type": "portmap", "backend": "iptables" });
            plugins.push((reference, portmap));
        }
        plugins
            .into_iter()
            .map(|(dir, own)| self.complete(&dir, own, pod))
            .collect()
    }

    /// Adds the runtime's keys and the common ones.
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

    /// The floor's arguments: each address with its gateway.
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

struct Plugin {
    program: PathBuf,
    config: Value,
}

impl Plugin {
    fn run(
        mut self,
        verb: &str,
        pod: &Pod,
        prev_result: &Value,
        wrap: impl Fn(Command) -> Command,
    ) -> Result<(Duration, Value)> {
        if !prev_result.is_null() {
            self.config["prevResult"] = prev_result.clone();
        }
        let call = Call {
            program: &self.program,
            config: &self.config,
            container: &format!("bench-{}", pod.nth),
            pod,
        };
        call.result(verb, wrap)
    }
}

/// The host's end of the veth that the floor creates.
fn host_link(pod: &Pod) -> String {
    format!("hcfloor{}", pod.nth)
}
