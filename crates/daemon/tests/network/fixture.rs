//! A node whose host network is reconciled, with pods of the real plugin.

use std::net::IpAddr;
use std::time::Duration;

use ipnet::IpNet;
use lab::tools::{cni_path, headcni};
use lab::{Call, EchoServer, Family, Netns, Node, Pod, eventually};
use node_config::{Config, Networks};
use node_core::reconcile::Reconciled;
use node_hostnet::{
    self, Desired, DesiredPodLink, DesiredPods, HostPaths, HostnetError, ReconcileInput,
};
use ruleset::host_ports::{HostPort, Protocol};
use serde_json::{Value, json};
use tempfile::TempDir;

pub(crate) const LOCAL: &str = "10.9.3.0/24,fd00:9:0:3::/64";
pub(crate) const BASE: &str = "10.9.0.0/16,fd00:9::/48";
pub(crate) const GATEWAYS: [&str; 2] = ["10.9.3.1", "fd00:9:0:3::1"];
/// The limit for repairs.
pub(crate) const SOON: Duration = Duration::from_secs(1);

pub(crate) fn networks(text: &str) -> Vec<IpNet> {
    text.parse::<Networks>().unwrap().0
}

pub(crate) struct HostnetNode {
    pub(crate) node: Node,
    files: TempDir,
}

impl HostnetNode {
    pub(crate) fn new() -> Self {
        Self {
            node: Node::new("n1").unwrap(),
            files: TempDir::new().unwrap(),
        }
    }

    pub(crate) fn place(&self) -> HostPaths {
        HostPaths {
            state_dir: self.files.path().join("state"),
            root: self.files.path().join("root"),
        }
    }

    pub(crate) fn pass(&self, wanted: &ReconcileInput) -> Result<Reconciled, HostnetError> {
        let place = self.place();
        self.node
            .enter(|| node_hostnet::reconcile(&place, wanted))
            .unwrap()
    }

    /// A reconcile that must succeed; returns its repairs.
    #[track_caller]
    pub(crate) fn passed(&self, wanted: &ReconcileInput) -> Vec<String> {
        let outcome = self.pass(wanted);
        match outcome {
            Ok(outcome) => outcome.repairs,
            Err(error) => panic!("{}", node_core::error::display_chain(&error)),
        }
    }

    pub(crate) fn run(&self, line: &str) -> String {
        self.node.run(["sh", "-c", line]).unwrap().stdout
    }

    /// A pod with `eth0`, and its link.
    pub(crate) fn pod(&self, name: &str) -> (Pod, DesiredPodLink) {
        self.pod_with_ports(name, &json!([]))
    }

    pub(crate) fn pod_with_ports(&self, name: &str, ports: &Value) -> (Pod, DesiredPodLink) {
        let pod = self.node.pod(name).unwrap();
        let mut conf = conf();
        conf["runtimeConfig"] = json!({ "portMappings": ports });
        let call = Call::new("ADD").path(cni_path()).conf(&conf).pod(&pod);
        let result = call.run(&self.node, headcni()).unwrap().ok_json().unwrap();
        let text = |value: &Value| value.as_str().unwrap().to_owned();
        let addresses = result["ips"].as_array().unwrap().iter();
        let link = DesiredPodLink {
            name: text(&result["interfaces"][0]["name"]),
            pod_mac: text(&result["interfaces"][1]["mac"]).parse().unwrap(),
            addresses: addresses
                .map(|ip| text(&ip["address"]).parse::<IpNet>().unwrap().addr())
                .collect(),
        };
        (pod, link)
    }

    pub(crate) fn sysctl(&self, name: &str) -> String {
        self.run(&format!("sysctl -n {name}")).trim().to_owned()
    }
}

fn conf() -> Value {
    json!({
        "cniVersion": "1.1.0", "name": "net", "type": "headcni",
        "ipam": { "type": "headcni-ipam",
            "ranges": [[{ "subnet": "10.9.3.0/24" }], [{ "subnet": "fd00:9:0:3::/64" }]] },
    })
}

/// For the default configuration.
pub(crate) fn wanted() -> ReconcileInput {
    wanted_by(&Config::default())
}

pub(crate) fn wanted_by(config: &Config) -> ReconcileInput {
    let desired = Desired::new(config, &networks(LOCAL), &networks(BASE), None).unwrap();
    ReconcileInput {
        desired,
        pods: None,
    }
}

pub(crate) fn with_pods(links: &[&DesiredPodLink], ports: &[HostPort]) -> ReconcileInput {
    let links = links.iter().map(|link| (*link).clone()).collect();
    let ports = ports.to_vec();
    ReconcileInput {
        pods: Some(DesiredPods { links, ports }),
        ..wanted()
    }
}

pub(crate) fn host_port(port: u16, pod: IpAddr) -> HostPort {
    HostPort {
        host: None,
        protocol: Protocol::Tcp,
        port,
        pod,
        pod_port: 80,
    }
}

/// Whether an address answers a ping within a second.
pub(crate) fn reaches(from: &impl Netns, to: impl Into<Destination>) -> bool {
    let Destination(to) = to.into();
    let line = ["ping", "-n", "-c", "1", "-W", "1", &to];
    from.attempt(line).unwrap().status.success()
}

pub(crate) struct Destination(String);

impl From<&str> for Destination {
    fn from(address: &str) -> Self {
        Self(address.to_owned())
    }
}

impl From<IpAddr> for Destination {
    fn from(address: IpAddr) -> Self {
        Self(address.to_string())
    }
}

impl From<&IpAddr> for Destination {
    fn from(address: &IpAddr) -> Self {
        Self(address.to_string())
    }
}

#[track_caller]
pub(crate) fn await_answer(from: &impl Netns, to: IpAddr) {
    let to = to.to_string();
    let line = ["ping", "-n", "-c", "1", "-W", "0.2", &to];
    let answers = || from.attempt(line).unwrap().status.success().then_some(());
    eventually(SOON, &format!("an answer of {to}"), answers).unwrap();
}

/// The source address that `server` sees.
pub(crate) fn seen(caller: &impl Netns, server: &impl Netns, to: &str) -> IpAddr {
    let to: IpAddr = to.parse().unwrap();
    let family = if to.is_ipv4() { Family::V4 } else { Family::V6 };
    let echo = EchoServer::start(server, family, 0).unwrap();
    caller
        .call_echo((to, echo.port().unwrap()).into(), "word")
        .unwrap()
}
