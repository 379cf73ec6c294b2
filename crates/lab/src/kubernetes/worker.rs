//! A real kubelet on a node, with a containerd and a kube-proxy, so that Pods run.
//!
//! The Node is Ready when there are CNI plugins in `/opt/cni/bin` and a configuration in
//! `/etc/cni/net.d`. A standalone kubelet has no API server, no Node and no kube-proxy: it runs the static
//! Pods in [`MANIFESTS`].

mod config;
mod machine;
mod proxy;

use std::env;
use std::ffi::OsString;
use std::fs;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};

use anyhow::{Context, Result, ensure};
use ipnet::IpNet;
use serde_json::Value;
use tempfile::TempDir;

use super::ControlPlane;
use super::flags::flag;
use super::image::Image;
use super::program::Program;
use crate::files;
use crate::http::http_get;
use crate::netns::{Address, Netns};
use crate::node::Node;
use crate::process::{self, Output};
use crate::tools::kubernetes::{CONTAINERD, KUBERNETES};
use crate::underlay::UPLINK;

use machine::Machine;
use proxy::Proxy;

pub use proxy::ProxyMode;

/// Busybox, the image that every worker has. Its default command sleeps.
pub const IMAGE: &str = "lab.local/busybox:1";

/// The static Pod directory of a standalone kubelet.
pub const MANIFESTS: &str = "/etc/kubernetes/manifests";

const SOCKET: &str = "/run/containerd/containerd.sock";
const CNI_CONF_DIR: &str = "/etc/cni/net.d";
/// The read-only server of a standalone kubelet.
const READ_ONLY_SERVER: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 10255);
/// The containerd namespace of the CRI plugin.
const NAMESPACE: &str = "k8s.io";

/// A node with a kubelet. Its containers end with it.
#[derive(Debug)]
pub struct Worker {
    // Dropped in this order.
    kubelet: Program,
    proxy: Option<Proxy>,
    containerd: Program,
    machine: Machine,
    calls: AtomicU32,
    _files: TempDir,
}

impl Worker {
    /// Registers the node with its underlay addresses, and returns when the Node exists. Removes the CNI
    /// configurations that the overlay shows of the host.
    pub fn start(node: &Node, plane: &ControlPlane) -> Result<Self> {
        Self::start_at(node, plane, &node_ips(&node.addresses()?)?)
    }

    /// With other node addresses: IPv4 first, at most one of each family.
    pub fn start_at(node: &Node, plane: &ControlPlane, ips: &[IpAddr]) -> Result<Self> {
        let worker = Self::launch(node, ips, Some(plane))?;
        let path = format!("/api/v1/nodes/{}", node.name());
        worker
            .kubelet
            .await_that("the kubelet has registered its Node", || {
                plane.admin().get(&path).ok().map(drop)
            })?;
        Ok(worker)
    }

    /// Starts a kubelet without an API server.
    pub fn start_standalone(node: &Node) -> Result<Self> {
        node.run(["mkdir", "-p", MANIFESTS])?;
        let worker = Self::launch(node, &node_ips(&node.addresses()?)?, None)?;
        let works = || worker.pods().ok().map(drop);
        worker.kubelet.await_that("the kubelet works", works)?;
        Ok(worker)
    }

    fn launch(node: &Node, ips: &[IpAddr], plane: Option<&ControlPlane>) -> Result<Self> {
        let mut worker = Self::prepare(node, ips, plane)
            .with_context(|| format!("prepare {} for a kubelet", node.name()))?;
        worker.containerd.start(&worker.machine)?;
        worker.await_containerd()?;
        worker.import(&Image::busybox(IMAGE)?)?;
        if let Some(proxy) = &mut worker.proxy {
            proxy.start(&worker.machine)?;
        }
        worker.kubelet.start(&worker.machine)?;
        Ok(worker)
    }

    fn prepare(node: &Node, ips: &[IpAddr], plane: Option<&ControlPlane>) -> Result<Self> {
        let files = TempDir::new().context("make a directory for a kubelet")?;
        let dir = files.path();
        remove_cni_configurations(node)?;
        let machine = Machine::new(node, dir)?;

        let config = put(dir, "containerd.toml", config::containerd())?;
        let containerd = CONTAINERD.program("containerd");
        // containerd looks for runc and its shim in PATH.
        let mut path = OsString::from("PATH=");
        path.push(CONTAINERD.bin_dir());
        path.push(":");
        path.push(env::var_os("PATH").unwrap_or_default());
        path.push(":/usr/sbin:/sbin");
        let args = vec![path, containerd.into(), "--config".into(), config.into()];
        let containerd = Program::new(dir, "containerd", "env".into(), args);

        let ips: Vec<_> = ips.iter().map(IpAddr::to_string).collect();
        let authority = plane.map(ControlPlane::ca_file);
        let config = config::kubelet(authority, machine.cgroup()).to_string();
        let mut args = vec![
            flag("config", put(dir, "kubelet.json", config)?),
            flag("hostname-override", node.name()),
            flag("node-ip", ips.join(",")),
        ];
        if let Some(plane) = plane {
            let name = format!("system:node:{}", node.name());
            let user = plane.user(&name, Some("system:nodes"))?;
            args.push(flag("kubeconfig", user.kubeconfig()));
        }
        let kubelet = Program::new(dir, "kubelet", KUBERNETES.program("kubelet"), args);
        let proxy = plane.map(|plane| Proxy::new(dir, node.name(), plane));
        Ok(Self {
            kubelet,
            proxy: proxy.transpose()?,
            containerd,
            machine,
            calls: AtomicU32::new(0),
            _files: files,
        })
    }

    /// The Pods of a standalone kubelet.
    pub fn pods(&self) -> Result<Vec<Value>> {
        let answer = http_get(&self.machine, READ_ONLY_SERVER, "/pods")?;
        let mut list: Value = serde_json::from_str(&answer.body)
            .with_context(|| format!("parse the kubelet's Pods: {}", answer.body))?;
        let items = list["items"].take();
        Ok(serde_json::from_value(items).unwrap_or_default())
    }

    /// Runs a program in the first container of a Pod, without the API server.
    pub fn exec(&self, pod: &Value, line: &[&str]) -> Result<Output> {
        let name = &pod["metadata"]["name"];
        let id = pod["status"]["containerStatuses"][0]["containerID"].as_str();
        let id = id.with_context(|| format!("Pod {name} has no container yet"))?;
        let id = id.trim_start_matches("containerd://");
        let call = format!("lab-{}", self.calls.fetch_add(1, Ordering::Relaxed));
        let exec = ["tasks", "exec", "--exec-id", &call, id];
        self.attempt_ctr(exec.iter().chain(line).copied())
    }

    /// Kills the kubelet with SIGKILL. Containers keep running.
    pub fn stop_kubelet(&mut self) -> Result<()> {
        self.kubelet.kill()
    }

    pub fn resume_kubelet(&mut self) -> Result<()> {
        self.kubelet.start(&self.machine)
    }

    /// The logs of its programs, for a failed test.
    pub fn logs(&self) -> String {
        let proxy = self.proxy.as_ref().map(Proxy::log);
        let [containerd, kubelet] = [&self.containerd, &self.kubelet].map(Program::log);
        [containerd, proxy.unwrap_or_default(), kubelet].concat()
    }

    /// Restarts kube-proxy in this mode. It removes the rules of the other one.
    pub fn use_proxy_mode(&mut self, mode: ProxyMode) -> Result<()> {
        let proxy = self.proxy.as_mut();
        let proxy = proxy.context("a standalone kubelet has no kube-proxy")?;
        proxy.use_mode(mode, &self.machine)
    }

    pub fn import(&self, image: &Image) -> Result<()> {
        let file = image.file().to_str();
        let file = file.context("a path of ours is UTF-8")?;
        let output = self.attempt_ctr(["images", "import", file])?;
        let stderr = output.stderr.trim_end();
        ensure!(output.status.success(), "import an image: {stderr}");
        Ok(())
    }

    fn await_containerd(&self) -> Result<()> {
        self.containerd.await_that("containerd answers", || {
            let answer = self.attempt_ctr(["version"]).ok()?;
            answer.status.success().then_some(())
        })
    }

    fn attempt_ctr<'s>(&self, args: impl IntoIterator<Item = &'s str>) -> Result<Output> {
        let mut command = self.machine.command(CONTAINERD.program("ctr"));
        command.args(["--address", SOCKET, "--namespace", NAMESPACE]);
        process::attempt(command.args(args))
    }
}

fn put(dir: &Path, name: &str, text: String) -> Result<PathBuf> {
    let path = dir.join(name);
    files::put(&path, text).with_context(|| format!("write {}", path.display()))?;
    Ok(path)
}

/// The node's underlay addresses, IPv4 first.
fn node_ips(addresses: &[Address]) -> Result<Vec<IpAddr>> {
    let mut ips = Vec::new();
    for Address { dev, cidr } in addresses {
        let ip = cidr
            .parse::<IpNet>()
            .with_context(|| format!("parse {cidr}"))?
            .addr();
        let is_local = matches!(ip, IpAddr::V6(ip) if ip.is_unicast_link_local());
        if dev == UPLINK && !is_local {
            ips.push(ip);
        }
    }
    ensure!(!ips.is_empty(), "the node is not plugged in: no {UPLINK}");
    // IPv4 sorts first.
    ips.sort();
    Ok(ips)
}

/// With the host's configurations the Node would be Ready at once.
fn remove_cni_configurations(node: &Node) -> Result<()> {
    let found = fs::read_dir(CNI_CONF_DIR).into_iter().flatten();
    for entry in found.flatten() {
        let inside = Path::new(CNI_CONF_DIR).join(entry.file_name());
        node.run([Path::new("rm"), Path::new("-rf"), &inside])?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_kubelet_gets_the_underlay_addresses() {
        let address = |(dev, cidr): (&str, &str)| Address {
            dev: dev.to_owned(),
            cidr: cidr.to_owned(),
        };
        let all = [
            ("eth0", "fd99::b/64"),
            ("eth0", "fe80::1/64"),
            ("eth0", "10.99.0.11/24"),
            ("lo", "127.0.0.1/8"),
        ];
        let all = all.map(address);
        let expected: [IpAddr; 2] = ["10.99.0.11", "fd99::b"].map(|ip| ip.parse().unwrap());
        assert_eq!(node_ips(&all).unwrap(), expected);
        let error = node_ips(&all[3..]).unwrap_err();
        assert!(error.to_string().contains("not plugged in"), "{error}");
    }
}
