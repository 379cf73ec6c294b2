//! A cluster of nodes on which the real headcni-daemon runs, over a real Headscale.
//!
//! [`Grounds`] are the machines and their cables; a [`Cluster`] is what runs on them. Node number N is
//! called `node-N` and has the pods of 10.244.N.0/24 and `fd00:10:244:N::/64`, or of one of them.

use std::fs;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::PathBuf;
use std::process::Stdio;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use ipnet::{IpNet, Ipv4Net, Ipv6Net};
use serde_json::{Value, json};

use crate::headscale::{Headscale, open_policy};
use crate::http::{Response, http_get};
use crate::netns::Netns;
use crate::node::Node;
use crate::pod::Pod;
use crate::process::{Output, Running};
use crate::readings::Readings;
use crate::sniffer::Sniffer;
use crate::tools;
use crate::traffic::Family;
use crate::underlay::{Nat, NatKind, Port, Underlay};
use crate::wait::eventually;
use crate::{Call, Signal};

/// The tag of all nodes.
pub const TAG: &str = "tag:k8s-node";
/// How long a node may take to join, on a busy machine.
pub const JOINED: Duration = Duration::from_mins(1);

const CONFIG: &str = "/etc/headcni/daemon.yaml";
const CONFLIST: &str = "/etc/cni/net.d/10-headcni.conflist";
const ADMIN: &str = "127.0.0.1:9844";
const LOG: &str = "/run/headcni-daemon.log";
/// The table with the daemon's routes to other nodes; a host's own tailscaled has another one.
const MESH_TABLE: &str = "table 26723";

/// The networks of all pods.
pub const POD_NETWORKS: [IpNet; 2] = [
    IpNet::V4(Ipv4Net::new_assert(Ipv4Addr::new(10, 244, 0, 0), 16)),
    IpNet::V6(Ipv6Net::new_assert(
        Ipv6Addr::new(0xfd00, 0x10, 0x244, 0, 0, 0, 0, 0),
        48,
    )),
];

/// Those of them that are of these families.
fn pod_networks(families: &[Family]) -> Vec<IpNet> {
    let is_of = |net: &IpNet| match net {
        IpNet::V4(_) => families.contains(&Family::V4),
        IpNet::V6(_) => families.contains(&Family::V6),
    };
    POD_NETWORKS.into_iter().filter(is_of).collect()
}

/// Where a node stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Site {
    /// On the switch.
    Open,
    /// Behind a router that translates.
    BehindNat,
}

/// Machines and cables.
#[derive(Debug)]
pub struct Grounds {
    /// The switch that all others are on.
    pub underlay: Underlay,
    /// For the server.
    pub server: Node,
    /// Where the server is reached.
    pub server_port: Port,
    /// The router, if a node is behind it.
    pub nat: Option<Nat>,
    /// The nodes.
    pub nodes: Vec<Node>,
    /// Where each of them is plugged in.
    pub ports: Vec<Port>,
}

impl Grounds {
    /// A server, and a node at each of these sites.
    pub fn new(sites: &[Site]) -> Result<Self> {
        let underlay = Underlay::new()?;
        let server = Node::new("headscale")?;
        let server_port = underlay.plug(&server)?;
        let has_nat = sites.contains(&Site::BehindNat);
        let nat = has_nat.then(|| underlay.nat(NatKind::Easy)).transpose()?;
        let (mut nodes, mut ports) = (Vec::new(), Vec::new());
        for (index, site) in sites.iter().enumerate() {
            let node = Node::new(&format!("node-{}", index + 1))?;
            ports.push(match (site, &nat) {
                (Site::BehindNat, Some(nat)) => nat.plug(&node)?,
                _ => underlay.plug(&node)?,
            });
            nodes.push(node);
        }
        Ok(Self {
            underlay,
            server,
            server_port,
            nat,
            nodes,
            ports,
        })
    }

    /// Watches every cable from now on, for the addresses of pods in clear: those of the switch, and
    /// those behind the router, which hides what they carry from the switch.
    pub fn watch(&self) -> Result<Vec<Sniffer>> {
        let switch = self.underlay.watch(&POD_NETWORKS);
        let router = self.nat.as_ref().map(|nat| nat.watch(&POD_NETWORKS));
        [switch].into_iter().chain(router).collect()
    }
}

/// A server and members.
#[derive(Debug)]
pub struct Cluster<'a> {
    /// The machines.
    pub grounds: &'a Grounds,
    /// The server.
    pub headscale: Headscale<'a>,
    /// The nodes in their order.
    pub members: Vec<Member<'a>>,
    families: &'static [Family],
}

impl<'a> Cluster<'a> {
    /// A server with an open policy, and nodes that are furnished but on which no daemon runs. Pods
    /// have an address of each family.
    pub fn new(grounds: &'a Grounds) -> Result<Self> {
        Self::made_of(grounds, &tools::HEADSCALE, &[Family::V4, Family::V6])
    }

    /// The same with a server of another version.
    pub fn with_server(grounds: &'a Grounds, version: &tools::GoModule) -> Result<Self> {
        Self::made_of(grounds, version, &[Family::V4, Family::V6])
    }

    /// The same with pods that have addresses of these families only.
    pub fn of_families(grounds: &'a Grounds, families: &'static [Family]) -> Result<Self> {
        Self::made_of(grounds, &tools::HEADSCALE, families)
    }

    fn made_of(
        grounds: &'a Grounds,
        version: &tools::GoModule,
        families: &'static [Family],
    ) -> Result<Self> {
        let address = IpAddr::V4(grounds.server_port.v4);
        let headscale = Headscale::start(&grounds.server, version, address)?;
        headscale.set_policy(&open_policy(TAG, &pod_networks(families)))?;
        let key = headscale.api_key()?;
        let mut members = Vec::new();
        for (index, node) in grounds.nodes.iter().enumerate() {
            let member = Member {
                node,
                number: index + 1,
                families,
                daemon: None,
            };
            member.furnish(&headscale, &key)?;
            members.push(member);
        }
        Ok(Self {
            grounds,
            headscale,
            members,
            families,
        })
    }

    /// One more node, furnished like the others; the number is not one of theirs.
    pub fn newcomer<'n>(&self, node: &'n Node, number: usize) -> Result<Member<'n>> {
        let member = Member {
            node,
            number,
            families: self.families,
            daemon: None,
        };
        member.furnish(&self.headscale, &self.headscale.api_key()?)?;
        Ok(member)
    }

    /// Starts all daemons and waits until every node is ready.
    pub fn start(&mut self) -> Result<()> {
        for member in &mut self.members {
            member.launch()?;
        }
        for member in &self.members {
            member.await_ready(JOINED)?;
        }
        self.await_mesh()
    }

    /// Waits until each node has a route to each other's pods.
    pub fn await_mesh(&self) -> Result<()> {
        for member in &self.members {
            let others = self.members.iter();
            let others = others.filter(|other| other.number != member.number);
            let wanted: Vec<String> = others.flat_map(Member::networks).collect();
            eventually(JOINED, "routes to all other nodes", || {
                let routes = member.node.routes().ok()?;
                let has = |net: &String| {
                    let is_led = |route: &String| {
                        route.split(' ').next() == Some(net) && route.contains(MESH_TABLE)
                    };
                    routes.iter().any(is_led)
                };
                wanted.iter().all(has).then_some(())
            })
            .with_context(|| member.told())?;
        }
        Ok(())
    }
}

/// A node with its daemon.
#[derive(Debug)]
pub struct Member<'a> {
    /// The machine.
    pub node: &'a Node,
    /// Its number, from 1.
    pub number: usize,
    families: &'static [Family],
    daemon: Option<Running>,
}

impl<'a> Member<'a> {
    /// The networks of its pods, one of each family that they have.
    pub fn networks(&self) -> Vec<String> {
        let number = self.number;
        let network = |family: &Family| match family {
            Family::V4 => format!("10.244.{number}.0/24"),
            Family::V6 => format!("fd00:10:244:{number}::/64"),
        };
        self.families.iter().map(network).collect()
    }

    /// The configuration of its daemon; more of it can be added at the end.
    pub fn config(&self, url: &str) -> String {
        let (local, base) = (self.networks(), pod_networks(self.families));
        let base: Vec<String> = base.iter().map(IpNet::to_string).collect();
        let program = tools::TAILSCALE.program("tailscaled");
        format!(
            "network:\n  podCIDR: {{nodeLocal: {local:?}, base: {base:?}}}\n\
             headscale:\n  url: {url}\n  caFile: /etc/headcni/ca.pem\n  apiKeyFile: /etc/headcni/api-key\n\
             tailscale:\n  program: {}\n",
            program.display()
        )
    }

    fn furnish(&self, headscale: &Headscale, key: &str) -> Result<()> {
        // The host may have some of its own.
        self.sh(
            "rm -rf /etc/cni /opt/cni /var/lib/cni /var/lib/headcni /etc/headcni
             mkdir -p /etc/cni/net.d /opt/cni/bin /etc/headcni",
        )?;
        for dir in [tools::headcni_bin_dir(), tools::cni_plugin_dir()] {
            self.sh(&format!("ln -s {}/* /opt/cni/bin/", dir.display()))?;
        }
        let ca = fs::read_to_string(headscale.ca_file()).context("read the authority")?;
        self.node.write("/etc/headcni/ca.pem", ca)?;
        self.node.write("/etc/headcni/api-key", key)?;
        self.sh("chmod 0600 /etc/headcni/api-key")?;
        self.configure(&self.config(&headscale.url()))
    }

    /// Writes the daemon's configuration.
    pub fn configure(&self, yaml: &str) -> Result<()> {
        self.node.write(CONFIG, yaml).map(drop)
    }

    /// Runs a line of shell on the node.
    pub fn sh(&self, line: &str) -> Result<String> {
        Ok(self.node.run(["sh", "-ec", line])?.stdout)
    }

    /// Starts the daemon, and does not wait for it.
    pub fn launch(&mut self) -> Result<()> {
        self.launch_with(&[])
    }

    /// The same with more in its environment.
    pub fn launch_with(&mut self, variables: &[(&str, &str)]) -> Result<()> {
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

    /// The daemon's process, if it runs.
    pub fn daemon_pid(&self) -> Option<u32> {
        self.daemon.as_ref().map(Running::pid)
    }

    /// Sends the daemon a signal, if it runs.
    pub fn signal(&self, signal: Signal) {
        if let Some(daemon) = &self.daemon {
            daemon.signal(signal);
        }
    }

    /// Kills the daemon and nothing else.
    pub fn kill_daemon(&mut self) -> Result<()> {
        self.end_daemon(Signal::KILL).map(drop)
    }

    /// Tells the daemon to end, and waits for it.
    pub fn stop_daemon(&mut self) -> Result<Output> {
        self.end_daemon(Signal::TERM)
    }

    fn end_daemon(&mut self, signal: Signal) -> Result<Output> {
        let daemon = self.daemon.take().context("no daemon runs")?;
        daemon.signal(signal);
        daemon.wait(Duration::from_secs(10))
    }

    /// Runs the daemon's program with other arguments to its end.
    pub fn command(&self, args: &[&str]) -> Result<Output> {
        let program = tools::headcni_daemon();
        let program = program.to_str().context("paths are text here")?;
        self.node
            .attempt([program].into_iter().chain(args.iter().copied()))
    }

    /// What the daemon logged.
    pub fn log(&self) -> String {
        fs::read_to_string(self.file(LOG)).unwrap_or_default()
    }

    /// The path by which this process sees a file of the node.
    pub fn file(&self, path: &str) -> PathBuf {
        format!("/proc/{}/root{path}", self.node.holder_pid()).into()
    }

    /// Asks the daemon's admin server.
    pub fn get(&self, path: &str) -> Result<Response> {
        let address: SocketAddr = ADMIN.parse().context("the address is written well")?;
        http_get(self.node, address, path)
    }

    /// What `/metrics` says.
    pub fn readings(&self) -> Result<Readings> {
        Ok(Readings::new(self.get("/metrics")?.body))
    }

    /// What `/ready` says.
    pub fn ready(&self) -> Result<Value> {
        serde_json::from_str(&self.get("/ready")?.body).context("read /ready")
    }

    /// A condition of `/ready`: whether it holds, and what it says.
    pub fn condition(&self, name: &str) -> Result<(bool, String)> {
        let ready = self.ready()?;
        let conditions = ready["conditions"].as_array().into_iter().flatten();
        let found = conditions.into_iter().find(|one| one["name"] == name);
        let found = found.with_context(|| format!("no condition {name}: {ready}"))?;
        let message = found["message"].as_str().unwrap_or_default();
        Ok((found["status"] == "True", message.to_owned()))
    }

    /// Waits until a condition holds, or doesn't, and returns what it says.
    pub fn await_condition(&self, name: &str, holds: bool, limit: Duration) -> Result<String> {
        eventually(limit, &format!("{name} is {holds}"), || {
            let (is, message) = self.condition(name).ok()?;
            (is == holds && message != "not looked at yet").then_some(message)
        })
        .with_context(|| self.told())
    }

    /// Waits until the node is ready.
    pub fn await_ready(&self, limit: Duration) -> Result<()> {
        eventually(limit, &format!("{} is ready", self.node.name()), || {
            (self.get("/ready").ok()?.status == 200).then_some(())
        })
        .with_context(|| self.told())
    }

    /// What a person would look at if something is wrong.
    pub fn told(&self) -> String {
        let ready = self
            .ready()
            .map_or_else(|error| error.to_string(), |it| format!("{it:#}"));
        format!("{}: {ready}\n{}", self.node.name(), self.log())
    }

    /// Makes a pod, and attaches it by the configuration that the daemon wrote.
    pub fn pod(&self, name: &str) -> Result<Attached<'a>> {
        self.pod_by(name, self.conf()?)
    }

    /// The same by another configuration.
    pub fn pod_by(&self, name: &str, conf: Value) -> Result<Attached<'a>> {
        let pod = self.node.pod(name)?;
        let call = Call::new("ADD").path("/opt/cni/bin").pod(&pod).conf(&conf);
        let result = call.run(self.node, tools::headcni())?.ok_json()?;
        let ips = result["ips"].as_array().into_iter().flatten();
        let ips = ips.filter_map(|ip| ip["address"].as_str()?.parse::<IpNet>().ok());
        let ips = ips.map(|net| net.addr()).collect();
        Ok(Attached { pod, ips, conf })
    }

    /// What a runtime gives the plugin.
    pub fn conf(&self) -> Result<Value> {
        let text = fs::read_to_string(self.file(CONFLIST)).context("read the CNI configuration")?;
        let list: Value = serde_json::from_str(&text)?;
        let mut conf = list["plugins"][0].clone();
        conf["cniVersion"] = json!("1.1.0");
        conf["name"] = list["name"].clone();
        Ok(conf)
    }

    /// Detaches a pod.
    pub fn detach(&self, pod: &Attached<'_>) -> Result<()> {
        let call = Call::new("DEL")
            .path("/opt/cni/bin")
            .pod(&pod.pod)
            .conf(&pod.conf);
        call.run(self.node, tools::headcni())?.ok()?;
        Ok(())
    }

    /// The process that is our tailscaled.
    pub fn tailscaled_pid(&self) -> Result<u32> {
        let found = self.sh("pgrep -f -- --socket=/run/headcni/tailscaled.sock || true")?;
        // Nodes share the host's process numbers: only those in this node's network count.
        for pid in found
            .lines()
            .filter_map(|line| line.trim().parse::<u32>().ok())
        {
            let theirs = fs::read_link(format!("/proc/{pid}/ns/mnt")).ok();
            let ours = fs::read_link(format!("/proc/{}/ns/mnt", self.node.holder_pid())).ok();
            if theirs.is_some() && theirs == ours {
                return Ok(pid);
            }
        }
        bail!("no tailscaled runs on {}", self.node.name())
    }

    /// What our tailscaled knows of itself and its peers.
    pub fn tailscaled_status(&self) -> Result<Value> {
        let program = tools::TAILSCALE.program("tailscale");
        let program = program.display();
        let line = format!("{program} --socket=/run/headcni/tailscaled.sock status --json");
        serde_json::from_str(&self.sh(&line)?).context("read tailscale's status")
    }
}

/// A pod that has its network.
#[derive(Debug)]
pub struct Attached<'a> {
    /// The pod.
    pub pod: Pod<'a>,
    /// Its addresses, IPv4 first.
    pub ips: Vec<IpAddr>,
    conf: Value,
}
