//! A real Kubernetes: a control plane in one node, and kubelets in others.
//!
//! A [`ControlPlane`] is etcd, kube-apiserver, kube-controller-manager and, on request, kube-scheduler.
//! The controllers assign `podCIDRs` to every Node, also to one that a test created, and mark Nodes
//! without a reporting kubelet as lost. A [`Worker`] is a node with a kubelet, which runs Pods.
//!
//! ```no_run
//! use lab::Node;
//! use lab::kubernetes::ControlPlane;
//! use serde_json::json;
//!
//! let node = Node::new("control-plane")?;
//! let plane = ControlPlane::start(&node)?;
//! let object = json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "node-1"}});
//! plane.admin().apply(&object)?;
//! let stored = plane.admin().get("/api/v1/nodes/node-1")?;
//! # anyhow::Ok(())
//! ```
//!
//! `make tools PART=kubernetes` builds its programs.

mod certificates;
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
use flags::Flags;
use program::Program;

pub use helm::Helm;
pub use image::Image;
pub use user::User;
pub use worker::{IMAGE, MANIFESTS, ProxyMode, Worker};

pub const PORT: u16 = 6443;
pub const SERVICE_CIDRS: [&str; 2] = ["10.96.0.0/16", "fd00:10:96::/112"];

/// The ClusterIPs of the Service `kubernetes`.
const API_SERVICE: [IpAddr; 2] = [
    IpAddr::V4(Ipv4Addr::new(10, 96, 0, 1)),
    IpAddr::V6(Ipv6Addr::new(0xfd00, 0x10, 0x96, 0, 0, 0, 0, 1)),
];

/// How long each program may take to start, on a busy machine.
const START: Duration = Duration::from_mins(2);

/// Its programs and files end with it.
#[derive(Debug)]
pub struct ControlPlane {
    node: Node,
    server: SocketAddr,
    authority: Authority,
    admin: User,
    // Dropped in this order, their files last.
    scheduler: Program,
    controllers: Program,
    api_server: Program,
    etcd: Program,
    _files: TempDir,
}

impl ControlPlane {
    /// Returns when all of it works. It listens on all addresses of the node. Clients on other nodes use
    /// the first IPv4 address that is not on `lo`, if there is one.
    pub fn start(node: &Node) -> Result<Self> {
        let mut plane = Self::prepare(node).context("prepare a control plane")?;
        plane.etcd.start(node)?;
        plane.resume()?;
        plane.controllers.start(node)?;
        plane.await_controllers()?;
        Ok(plane)
    }

    fn prepare(node: &Node) -> Result<Self> {
        let files = TempDir::new().context("make a directory for Kubernetes")?;
        let dir = files.path();
        let addresses = parsed(&node.addresses()?)?;
        let server = SocketAddr::new(advertised(&addresses), PORT);
        let authority = Authority::new(dir)?;
        let user = |name, group| User::with_certificate(node, server, &authority, name, group);
        let (admin, admin_certificate) = user("admin", Some("system:masters"))?;
        let (controllers, _) = user("system:kube-controller-manager", None)?;
        let (scheduler, _) = user("system:kube-scheduler", None)?;
        let flags = Flags {
            dir,
            address: server.ip(),
            authority: authority.file(),
            served: &authority.certify_server(dir, &[&addresses[..], &API_SERVICE].concat())?,
            admin: &admin_certificate,
            tokens: &TokenKeys::new(dir)?,
            controllers: controllers.kubeconfig(),
            scheduler: scheduler.kubeconfig(),
        };
        let of_kubernetes = |name, args| Program::new(dir, name, KUBERNETES.program(name), args);
        Ok(Self {
            node: node.clone(),
            server,
            admin,
            scheduler: of_kubernetes("kube-scheduler", flags.scheduler()),
            controllers: of_kubernetes("kube-controller-manager", flags.controllers()),
            api_server: of_kubernetes("kube-apiserver", flags.api_server()),
            etcd: Program::new(dir, "etcd", ETCD.program("etcd"), flags.etcd()),
            authority,
            _files: files,
        })
    }

    pub fn url(&self) -> String {
        kubeconfig::url(self.server)
    }

    pub fn ca_file(&self) -> &Path {
        self.authority.file()
    }

    /// A cluster administrator.
    pub fn admin(&self) -> &User {
        &self.admin
    }

    /// A user with a client certificate. RBAC gives rights to its name or group.
    pub fn user(&self, name: &str, group: Option<&str>) -> Result<User> {
        let made = User::with_certificate(&self.node, self.server, &self.authority, name, group);
        let (user, _) = made.with_context(|| format!("make a user {name}"))?;
        Ok(user)
    }

    /// An existing `ServiceAccount`, with a token for an hour as its Pods have.
    pub fn service_account(&self, namespace: &str, name: &str) -> Result<User> {
        let path = format!("/api/v1/namespaces/{namespace}/serviceaccounts/{name}/token");
        let request = json!({ "apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest" });
        let granted = self.admin.post(&path, &request)?;
        // The error must not contain the response, which has a secret.
        let token = granted["status"]["token"].as_str();
        let token = token.with_context(|| format!("no token for {namespace}/{name}"))?;
        User::with_token(&self.node, self.server, &self.authority, token)
    }

    /// Without a scheduler only Pods with a `nodeName` run.
    pub fn start_scheduler(&mut self) -> Result<()> {
        self.scheduler.start(&self.node)
    }

    /// Kills the controllers, so that Nodes without a kubelet are not marked as lost.
    pub fn stop_controllers(&mut self) -> Result<()> {
        self.controllers.kill()
    }

    /// Kills the API server with SIGKILL: connections are refused.
    pub fn stop(&mut self) -> Result<()> {
        self.api_server.kill()
    }

    /// Starts the API server again, and returns when it is ready.
    pub fn resume(&mut self) -> Result<()> {
        self.api_server.start(&self.node)?;
        self.api_server.await_that("the API server is ready", || {
            let answer = self.admin.ask("GET", "/readyz").ok()?;
            (answer.status == 200).then_some(())
        })
    }

    /// Stops the API server with SIGSTOP: connections are accepted, but not answered.
    pub fn freeze(&self) {
        self.api_server.signal(Signal::STOP);
    }

    /// Continues a stopped API server.
    pub fn thaw(&self) {
        self.api_server.signal(Signal::CONT);
    }

    /// The logs of its programs, for a failed test.
    pub fn logs(&self) -> String {
        let programs = [
            &self.etcd,
            &self.api_server,
            &self.controllers,
            &self.scheduler,
        ];
        programs.map(Program::log).concat()
    }

    /// Controllers create this account, without which no Pod can be created.
    fn await_controllers(&self) -> Result<()> {
        let path = "/api/v1/namespaces/default/serviceaccounts/default";
        let what = "the controller manager works";
        self.controllers
            .await_that(what, || self.admin.get(path).ok().map(drop))
    }
}

fn parsed(addresses: &[Address]) -> Result<Vec<IpAddr>> {
    let parsed = addresses.iter().map(|Address { cidr, .. }| {
        let network: IpNet = cidr.parse().with_context(|| format!("parse {cidr}"))?;
        Ok(network.addr())
    });
    parsed.collect()
}

/// The address for clients on other nodes.
fn advertised(addresses: &[IpAddr]) -> IpAddr {
    let is_remote = |address: &&IpAddr| address.is_ipv4() && !address.is_loopback();
    let local = IpAddr::V4(Ipv4Addr::LOCALHOST);
    addresses.iter().find(is_remote).copied().unwrap_or(local)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_advertised_address_is_not_a_loopback_address() {
        let advertised_of = |cidrs: &[&str]| {
            let address = |cidr: &&str| Address {
                dev: "any".to_owned(),
                cidr: (*cidr).to_owned(),
            };
            let addresses: Vec<_> = cidrs.iter().map(address).collect();
            advertised(&parsed(&addresses).unwrap()).to_string()
        };
        let plugged = ["::1/128", "127.0.0.1/8", "fd99::b/64", "10.99.0.11/24"];
        assert_eq!(advertised_of(&plugged), "10.99.0.11");
        assert_eq!(advertised_of(&["127.0.0.1/8", "::1/128"]), "127.0.0.1");
    }
}
