//! A real kubelet on a node, with a containerd and a kube-proxy, so that Pods run.
//!
//! The Node is Ready when somebody has put CNI plugins into the node's `/opt/cni/bin`, and a
//! configuration into its `/etc/cni/net.d`.

mod config;
mod machine;

use std::env;
use std::ffi::OsString;
use std::fs;
use std::net::IpAddr;
use std::path::Path;
use std::sync::atomic::{AtomicU32, Ordering};

use anyhow::{Context, Result, ensure};
use ipnet::IpNet;
use tempfile::TempDir;

use super::ControlPlane;
use super::flags::flag;
use super::image::Image;
use super::program::Program;
use super::user::User;
use crate::files;
use crate::netns::{Address, Netns};
use crate::node::Node;
use crate::process::{self, Output};
use crate::tools::kubernetes::{CONTAINERD, KUBERNETES};
use crate::underlay::UPLINK;

use machine::Machine;

/// The one image that workers have: busybox, which sleeps unless told what else to do.
pub const IMAGE: &str = "lab.local/busybox:1";

const SOCKET: &str = "/run/containerd/containerd.sock";
const CNI_CONFIGURATIONS: &str = "/etc/cni/net.d";
const PROXY_CONFIG: &str = "kube-proxy.json";
/// The part of containerd's store that is Kubernetes'.
const NAMESPACE: &str = "k8s.io";

/// How kube-proxy leads packets to Services.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ProxyMode {
    /// What it will be by default.
    Nftables,
    /// What it is by default, and on most clusters.
    Iptables,
}

/// A node of the cluster. It ends with this, and all its containers with it.
#[derive(Debug)]
pub struct Worker<'a> {
    // They end in this order, and then what they stand on.
    kubelet: Program,
    proxy: Program,
    containerd: Program,
    machine: Machine<'a>,
    calls: AtomicU32,
    proxy_user: User<'a>,
    files: TempDir,
}

impl<'a> Worker<'a> {
    /// Makes a node one of the cluster, under its own name, and returns when the cluster knows it.
    ///
    /// It has to be plugged in. CNI configurations of the host's, which a lab node has at first, go.
    pub fn start(node: &'a Node, plane: &ControlPlane<'a>) -> Result<Self> {
        let mut worker = Self::prepare(node, plane)
            .with_context(|| format!("prepare {} for a kubelet", node.name()))?;
        worker.containerd.start(&worker.machine)?;
        worker.await_containerd()?;
        worker.take(&Image::busybox(IMAGE)?)?;
        worker.proxy.start(&worker.machine)?;
        worker.kubelet.start(&worker.machine)?;
        let path = format!("/api/v1/nodes/{}", node.name());
        worker
            .kubelet
            .await_that("the kubelet has registered its node", || {
                plane.admin().get(&path).ok().map(drop)
            })?;
        Ok(worker)
    }

    fn prepare(node: &'a Node, plane: &ControlPlane<'a>) -> Result<Self> {
        let files = TempDir::new().context("make a directory for a kubelet")?;
        let dir = files.path();
        let addresses = node_ips(&node.addresses()?)?;
        forget_configurations(node)?;
        let machine = Machine::new(node, dir)?;
        let put = |name: &str, text: String| {
            let path = dir.join(name);
            files::put(&path, text).with_context(|| format!("write {}", path.display()))?;
            anyhow::Ok(path)
        };

        let config = put("containerd.toml", config::containerd())?;
        let containerd = CONTAINERD.program("containerd");
        // It finds runc and its own shim there.
        let mut path = OsString::from("PATH=");
        path.push(CONTAINERD.bin_dir());
        path.push(":");
        path.push(env::var_os("PATH").unwrap_or_default());
        path.push(":/usr/sbin:/sbin");
        let args = vec![path, containerd.into(), "--config".into(), config.into()];
        let containerd = Program::new(dir, "containerd", "env".into(), args);

        let proxy_user = plane.user("system:kube-proxy", None)?;
        let kubeconfig = proxy_user.kubeconfig();
        let config = config::proxy(node.name(), kubeconfig, ProxyMode::Nftables).to_string();
        let args = vec![flag("config", put(PROXY_CONFIG, config)?)];
        let path = KUBERNETES.program("kube-proxy");
        let proxy = Program::new(dir, "kube-proxy", path, args);

        let name = format!("system:node:{}", node.name());
        let user = plane.user(&name, Some("system:nodes"))?;
        let config = config::kubelet(plane.ca_file(), machine.cgroup()).to_string();
        let args = vec![
            flag("config", put("kubelet.json", config)?),
            flag("kubeconfig", user.kubeconfig()),
            flag("hostname-override", node.name()),
            flag("node-ip", addresses),
        ];
        let kubelet = Program::new(dir, "kubelet", KUBERNETES.program("kubelet"), args);
        Ok(Self {
            kubelet,
            proxy,
            containerd,
            machine,
            calls: AtomicU32::new(0),
            proxy_user,
            files,
        })
    }

    /// Runs a program in the first container of a Pod, as `kubectl exec` does; its `exec` needs no
    /// API server. The Pod is what the API says of it.
    pub fn exec(&self, pod: &serde_json::Value, line: &[&str]) -> Result<Output> {
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
        let programs = [&self.containerd, &self.proxy, &self.kubelet];
        programs.map(Program::log).concat()
    }

    /// Starts kube-proxy again in this mode. It takes away what it made in another one.
    pub fn use_proxy_mode(&mut self, mode: ProxyMode) -> Result<()> {
        self.proxy.kill()?;
        let kubeconfig = self.proxy_user.kubeconfig();
        let config = config::proxy(self.machine.name(), kubeconfig, mode).to_string();
        let path = self.files.path().join(PROXY_CONFIG);
        files::put(&path, config).with_context(|| format!("write {}", path.display()))?;
        self.proxy.start(&self.machine)
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

/// The addresses that a node has on the underlay, as the kubelet wants them: IPv4 first.
fn node_ips(addresses: &[Address]) -> Result<String> {
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
    let ips: Vec<_> = ips.iter().map(IpAddr::to_string).collect();
    Ok(ips.join(","))
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
        assert_eq!(node_ips(&all).unwrap(), "10.99.0.11,fd99::b");
        let error = node_ips(&all[3..]).unwrap_err();
        assert!(error.to_string().contains("not plugged in"), "{error}");
    }
}
