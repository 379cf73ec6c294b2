//! A real Kubernetes: a control plane in one node, and kubelets in others.
//!
//! Of the [`ControlPlane`], etcd, API server and controller manager run, and a scheduler if it is asked
//! for. The controllers give every Node its `podCIDRs`, even one that a test has posted, and mark Nodes
//! as lost of which no kubelet reports. A [`Worker`] is a node with a kubelet, which runs Pods.
//!
//! ```no_run
//! use lab::Node;
//! use lab::kubernetes::ControlPlane;
//! use serde_json::json;
//!
//! let node = Node::new("control-plane")?;
//! let plane = ControlPlane::start(&node)?;
//! let posted = json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "node-1"}});
//! plane.admin().apply(&posted)?;
//! let known = plane.admin().get("/api/v1/nodes/node-1")?;
//! # anyhow::Ok(())
//! ```
//!
//! Its programs come by `make tools PART=kubernetes`.

mod certificates;
mod client;
mod flags;
mod helm;
mod image;
mod kubeconfig;
mod objects;
mod program;
mod user;
mod worker;

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result};
use ipnet::IpNet;
use rustix::process::Signal;
use serde_json::json;
use tempfile::TempDir;

use crate::netns::{Address, Netns};
use crate::node::Node;
use crate::tools::kubernetes::{ETCD, KUBERNETES};

use certificates::{Authority, TokenKeys};
use flags::Setting;
use program::Program;

pub use helm::Helm;
pub use image::Image;
pub use user::User;
pub use worker::{IMAGE, MANIFESTS, ProxyMode, Worker};

/// Where the API server listens.
pub const PORT: u16 = 6443;
/// The networks of Services.
pub const SERVICE_NETWORKS: [&str; 2] = ["10.96.0.0/16", "fd00:10:96::/112"];

/// The first addresses in those, which are the API server's own.
const API_SERVICE: [IpAddr; 2] = [
    IpAddr::V4(Ipv4Addr::new(10, 96, 0, 1)),
    IpAddr::V6(Ipv6Addr::new(0xfd00, 0x10, 0x96, 0, 0, 0, 0, 1)),
];

/// How long each of its programs may take until it works, on a busy machine.
const START: Duration = Duration::from_mins(2);

/// A control plane. It ends with this, and its files with it.
#[derive(Debug)]
pub struct ControlPlane<'a> {
    node: &'a Node,
    server: SocketAddr,
    authority: Authority,
    admin: User<'a>,
    // They end in this order, and their files after them.
    scheduler: Program,
    controllers: Program,
    api_server: Program,
    etcd: Program,
    _files: TempDir,
}

impl<'a> ControlPlane<'a> {
    /// Starts one, and returns when all of it works.
    ///
    /// It listens on every address that the node has by now. Others reach it by the first IPv4 address
    /// that is not of `lo`; where there is none, it is for the node alone.
    pub fn start(node: &'a Node) -> Result<Self> {
        let mut plane = Self::prepare(node).context("prepare a control plane")?;
        plane.etcd.start(node)?;
        plane.resume()?;
        plane.controllers.start(node)?;
        plane.await_controllers()?;
        Ok(plane)
    }

    fn prepare(node: &'a Node) -> Result<Self> {
        let files = TempDir::new().context("make a directory for Kubernetes")?;
        let dir = files.path();
        let addresses = parsed(&node.addresses()?)?;
        let server = SocketAddr::new(told(&addresses), PORT);
        let authority = Authority::new(dir)?;
        let user = |name, group| User::certified(node, server, &authority, name, group);
        let (admin, certified) = user("admin", Some("system:masters"))?;
        let (controllers, _) = user("system:kube-controller-manager", None)?;
        let (scheduler, _) = user("system:kube-scheduler", None)?;
        let setting = Setting {
            dir,
            address: server.ip(),
            authority: authority.file(),
            served: &authority.serve(dir, &[&addresses[..], &API_SERVICE].concat())?,
            admin: &certified,
            tokens: &TokenKeys::new(dir)?,
            controllers: controllers.kubeconfig(),
            scheduler: scheduler.kubeconfig(),
        };
        let of_kubernetes = |name, args| Program::new(dir, name, KUBERNETES.program(name), args);
        Ok(Self {
            node,
            server,
            admin,
            scheduler: of_kubernetes("kube-scheduler", setting.scheduler()),
            controllers: of_kubernetes("kube-controller-manager", setting.controllers()),
            api_server: of_kubernetes("kube-apiserver", setting.api_server()),
            etcd: Program::new(dir, "etcd", ETCD.program("etcd"), setting.etcd()),
            authority,
            _files: files,
        })
    }

    /// Where the API server is, for clients that trust [`ca_file`](Self::ca_file).
    pub fn url(&self) -> String {
        kubeconfig::url(self.server)
    }

    /// The certificate that clients have to trust.
    pub fn ca_file(&self) -> &Path {
        self.authority.file()
    }

    /// Somebody who may do everything.
    pub fn admin(&self) -> &User<'a> {
        &self.admin
    }

    /// Somebody with a certificate. That alone gives no rights, but the group may have some.
    pub fn user(&self, name: &str, group: Option<&str>) -> Result<User<'a>> {
        let made = User::certified(self.node, self.server, &self.authority, name, group);
        let (user, _) = made.with_context(|| format!("make a user {name}"))?;
        Ok(user)
    }

    /// A `ServiceAccount` that is there, with a token for an hour, as its pods have one.
    pub fn service_account(&self, namespace: &str, name: &str) -> Result<User<'a>> {
        let path = format!("/api/v1/namespaces/{namespace}/serviceaccounts/{name}/token");
        let request = json!({ "apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest" });
        let granted = self.admin.post(&path, &request)?;
        // The answer is not for the error: it holds a secret.
        let token = granted["status"]["token"].as_str();
        let token = token.with_context(|| format!("no token for {namespace}/{name}"))?;
        User::with_token(self.node, self.server, &self.authority, token)
    }

    /// Starts a scheduler, without which only Pods run that name their node.
    pub fn start_scheduler(&mut self) -> Result<()> {
        self.scheduler.start(self.node)
    }

    /// Kills the controllers: Nodes without a kubelet are lost to nobody then, and neither are their Pods.
    pub fn stop_controllers(&mut self) -> Result<()> {
        self.controllers.kill()
    }

    /// Kills the API server with SIGKILL: connections to it are refused from then on.
    pub fn stop(&mut self) -> Result<()> {
        self.api_server.kill()
    }

    /// Starts the API server again with what it knew, and returns when it is ready.
    pub fn resume(&mut self) -> Result<()> {
        self.api_server.start(self.node)?;
        self.api_server.await_that("the API server is ready", || {
            let answer = self.admin.ask("GET", "/readyz").ok()?;
            (answer.status == 200).then_some(())
        })
    }

    /// Halts the API server: connections to it are accepted, but nobody answers.
    pub fn freeze(&self) {
        self.api_server.signal(Signal::STOP);
    }

    /// Lets a halted API server go on.
    pub fn thaw(&self) {
        self.api_server.signal(Signal::CONT);
    }

    /// What its programs said, for a test that fails.
    pub fn logs(&self) -> String {
        let programs = [
            &self.etcd,
            &self.api_server,
            &self.controllers,
            &self.scheduler,
        ];
        programs.map(Program::log).concat()
    }

    /// No Pod can be posted before this account is there, and controllers make it.
    fn await_controllers(&self) -> Result<()> {
        let path = "/api/v1/namespaces/default/serviceaccounts/default";
        let what = "the controller manager works";
        self.controllers
            .await_that(what, || self.admin.get(path).ok().map(drop))
    }
}

fn parsed(addresses: &[Address]) -> Result<Vec<IpAddr>> {
    let parsed = addresses.iter().map(|Address { cidr, .. }| {
        let network: IpNet = cidr.parse().with_context(|| format!("read {cidr}"))?;
        Ok(network.addr())
    });
    parsed.collect()
}

/// The address that others are told.
fn told(addresses: &[IpAddr]) -> IpAddr {
    let far = |address: &&IpAddr| address.is_ipv4() && !address.is_loopback();
    let alone = IpAddr::V4(Ipv4Addr::LOCALHOST);
    addresses.iter().find(far).copied().unwrap_or(alone)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn others_are_told_an_address_that_leads_to_the_node() {
        let given = |cidrs: &[&str]| {
            let address = |cidr: &&str| Address {
                dev: "any".to_owned(),
                cidr: (*cidr).to_owned(),
            };
            let addresses: Vec<_> = cidrs.iter().map(address).collect();
            told(&parsed(&addresses).unwrap()).to_string()
        };
        let plugged = ["::1/128", "127.0.0.1/8", "fd99::b/64", "10.99.0.11/24"];
        assert_eq!(given(&plugged), "10.99.0.11");
        assert_eq!(given(&["127.0.0.1/8", "::1/128"]), "127.0.0.1");
    }
}
