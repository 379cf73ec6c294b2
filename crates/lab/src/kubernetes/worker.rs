//! A real kubelet on a node, with a containerd and a kube-proxy, so that Pods run.
//!
//! The Node is Ready when somebody has put CNI plugins into the node's `/opt/cni/bin`, and a
//! configuration into its `/etc/cni/net.d`. A kubelet can also be alone: then there is no Node and no
//! kube-proxy, and Pods are those of the files in [`MANIFESTS`].

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

/// The one image that workers have: busybox, which sleeps unless told what else to do.
pub const IMAGE: &str = "lab.local/busybox:1";

/// Where a kubelet that is alone finds its Pods.
pub const MANIFESTS: &str = "/etc/kubernetes/manifests";

const SOCKET: &str = "/run/containerd/containerd.sock";
const CNI_CONFIGURATIONS: &str = "/etc/cni/net.d";
/// Where a kubelet that is alone tells about its Pods.
const TOLD: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 10255);
/// The part of containerd's store that is Kubernetes'.
const NAMESPACE: &str = "k8s.io";

/// A node with a kubelet. It ends with this, and all its containers with it.
#[derive(Debug)]
pub struct Worker<'a> {
    // They end in this order, and then what they stand on.
    kubelet: Program,
    proxy: Option<Proxy<'a>>,
    containerd: Program,
    machine: Machine<'a>,
    calls: AtomicU32,
    _files: TempDir,
}

impl<'a> Worker<'a> {
    /// Makes a node one of the cluster, under its own name and its addresses on the underlay, and
    /// returns when the cluster knows it.
    ///
    /// It has to be plugged in. CNI configurations of the host's, which a lab node has at first, go.
    pub fn start(node: &'a Node, plane: &ControlPlane<'a>) -> Result<Self> {
        Self::start_at(node, plane, &node_ips(&node.addresses()?)?)
    }

    /// The same under other addresses of its own: IPv4 first, one of each family at most.
    pub fn start_at(node: &'a Node, plane: &ControlPlane<'a>, ips: &[IpAddr]) -> Result<Self> {
        let worker = Self::launch(node, ips, Some(plane))?;
        let path = format!("/api/v1/nodes/{}", node.name());
        worker
            .kubelet
            .await_that("the kubelet has registered its node", || {
                plane.admin().get(&path).ok().map(drop)
            })?;
        Ok(worker)
    }

    /// Starts a kubelet that knows no API server, and returns when it works.
    ///
    /// Of a node's own files it needs what [`start`](Self::start) does.
    pub fn start_alone(node: &'a Node) -> Result<Self> {
        node.run(["mkdir", "-p", MANIFESTS])?;
        let worker = Self::launch(node, &node_ips(&node.addresses()?)?, None)?;
        let works = || worker.pods().ok().map(drop);
        worker.kubelet.await_that("the kubelet works", works)?;
        Ok(worker)
    }

    fn launch(node: &'a Node, ips: &[IpAddr], plane: Option<&ControlPlane<'a>>) -> Result<Self> {
        let mut worker = Self::prepare(node, ips, plane)
            .with_context(|| format!("prepare {} for a kubelet", node.name()))?;
        worker.containerd.start(&worker.machine)?;
        worker.await_containerd()?;
        worker.take(&Image::busybox(IMAGE)?)?;
        if let Some(proxy) = &mut worker.proxy {
            proxy.start(&worker.machine)?;
        }
        worker.kubelet.start(&worker.machine)?;
        Ok(worker)
    }

    fn prepare(node: &'a Node, ips: &[IpAddr], plane: Option<&ControlPlane<'a>>) -> Result<Self> {
        let files = TempDir::new().context("make a directory for a kubelet")?;
        let dir = files.path();
        forget_configurations(node)?;
        let machine = Machine::new(node, dir)?;

        let config = put(dir, "containerd.toml", config::containerd())?;
        let containerd = CONTAINERD.program("containerd");
        // It finds runc and its own shim there.
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

    /// The Pods of a kubelet that is alone, as it knows them. Others ask the API server.
    pub fn pods(&self) -> Result<Vec<Value>> {
        let answer = http_get(&self.machine, TOLD, "/pods")?;
        let mut list: Value = serde_json::from_str(&answer.body)
            .with_context(|| format!("read the kubelet's Pods: {}", answer.body))?;
        let items = list["items"].take();
        Ok(serde_json::from_value(items).unwrap_or_default())
    }

    /// Runs a program in the first container of a Pod, as `kubectl exec` does; its `exec` needs no
    /// API server. The Pod is what the API says of it.
    pub fn exec(&self, pod: &Value, line: &[&str]) -> Result<Output> {
        let name = &pod["metadata"]["name"];
        let id = pod["status"]["containerStatuses"][0]["containerID"].as_str();
        let id = id.with_context(|| format!("Pod {name} has no container yet"))?;
        let id = id.trim_start_matches("containerd://");
        let call = format!("lab-{}", self.calls.fetch_add(1, Ordering::Relaxed));
        let exec = ["tasks", "exec", "--exec-id", &call, id];
        self.attempt_ctr(exec.iter().chain(line).copied())
    }

    /// Kills the kubelet with SIGKILL. Containers run on.
    pub fn stop_kubelet(&mut self) -> Result<()> {
        self.kubelet.kill()
    }

    /// Starts the kubelet again.
    pub fn resume_kubelet(&mut self) -> Result<()> {
        self.kubelet.start(&self.machine)
    }

    /// What its programs said, for a test that fails.
    pub fn logs(&self) -> String {
        let proxy = self.proxy.as_ref().map(Proxy::log);
        let [containerd, kubelet] = [&self.containerd, &self.kubelet].map(Program::log);
        [containerd, proxy.unwrap_or_default(), kubelet].concat()
    }

    /// Starts kube-proxy again in this mode. It takes away what it made in another one.
    pub fn use_proxy_mode(&mut self, mode: ProxyMode) -> Result<()> {
        let proxy = self.proxy.as_mut();
        let proxy = proxy.context("a kubelet that is alone has no kube-proxy")?;
        proxy.use_mode(mode, &self.machine)
    }

    /// Lets Pods be of an image.
    pub fn take(&self, image: &Image) -> Result<()> {
        let file = image.file().to_str();
        let file = file.context("a path of ours is UTF-8")?;
        let taken = self.attempt_ctr(["images", "import", file])?;
        let said = taken.stderr.trim_end();
        ensure!(taken.status.success(), "import an image: {said}");
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

/// Writes a file of a worker's.
fn put(dir: &Path, name: &str, text: String) -> Result<PathBuf> {
    let path = dir.join(name);
    files::put(&path, text).with_context(|| format!("write {}", path.display()))?;
    Ok(path)
}

/// The addresses that a node has on the underlay, as the kubelet wants them: IPv4 first.
fn node_ips(addresses: &[Address]) -> Result<Vec<IpAddr>> {
    let mut ips = Vec::new();
    for Address { dev, cidr } in addresses {
        let ip = cidr
            .parse::<IpNet>()
            .with_context(|| format!("read {cidr}"))?
            .addr();
        let is_local = matches!(ip, IpAddr::V6(ip) if ip.is_unicast_link_local());
        if dev == UPLINK && !is_local {
            ips.push(ip);
        }
    }
    ensure!(!ips.is_empty(), "it is not plugged in: no {UPLINK}");
    // IPv4 is less than IPv6.
    ips.sort();
    Ok(ips)
}

/// With them, the node would be Ready before a test has said by whom.
fn forget_configurations(node: &Node) -> Result<()> {
    let found = fs::read_dir(CNI_CONFIGURATIONS).into_iter().flatten();
    for entry in found.flatten() {
        let inside = Path::new(CNI_CONFIGURATIONS).join(entry.file_name());
        node.run([Path::new("rm"), Path::new("-rf"), &inside])?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_kubelet_is_told_the_addresses_on_the_underlay() {
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
        let told: [IpAddr; 2] = ["10.99.0.11", "fd99::b"].map(|ip| ip.parse().unwrap());
        assert_eq!(node_ips(&all).unwrap(), told);
        let error = node_ips(&all[3..]).unwrap_err();
        assert!(error.to_string().contains("not plugged in"), "{error}");
    }
}
