//! A node: its own network, mount and UTS namespace, held by one process.
//!
//! The holder is a shell that reads a pipe whose other end only this process has. When this process
//! ends, by any signal, the pipe closes, the holder kills the node's processes and exits, and the
//! kernel removes the namespaces with every mount and link. Nothing needs cleanup code.

use std::ffi::OsStr;
use std::io::{Read, Write};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;

use anyhow::{Context, Result, bail};

use crate::environment::with_clean_environment;
use crate::netns::Netns;
use crate::pod::Pod;
use crate::processes::{HOLDER_SCRIPT, UtsNamespace, own_namespace};
use crate::snapshot::Snapshot;

/// Directories with an overlay: they start as the host's, and changes stay in the node.
const OVERLAID: [&str; 3] = ["etc", "opt", "var"];

/// A machine, as far as the network and the CNI directories go. Clones share it; it ends with the
/// last one.
#[derive(Clone, Debug)]
pub struct Node(Arc<Holder>);

#[derive(Debug)]
struct Holder {
    name: String,
    process: Child,
    uts: Option<UtsNamespace>,
}

impl Node {
    /// Makes a node with `lo` up and nothing else. The name becomes its host name.
    pub fn new(name: &str) -> Result<Self> {
        let process = Command::new("unshare")
            .args(["--net", "--mount", "--uts", "--propagation", "private"])
            .args(["sh", "-c", HOLDER_SCRIPT, "sh"])
            .arg(own_namespace()?)
            .current_dir("/")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .context("start unshare")?;
        let mut holder = Holder {
            name: name.to_owned(),
            process,
            uts: None,
        };
        holder
            .await_started()
            .with_context(|| format!("make namespaces for node {name}"))?;
        let node = Self(Arc::new(holder));
        node.set_up()
            .with_context(|| format!("set up node {name}"))?;
        Ok(node)
    }

    pub fn name(&self) -> &str {
        &self.0.name
    }

    /// PID of the holder: `/proc/<pid>/ns` has the node's namespaces.
    pub fn holder_pid(&self) -> u32 {
        self.0.process.id()
    }

    /// Adds a netns to this node, as a container runtime does for a pod.
    pub fn pod(&self, name: &str) -> Result<Pod> {
        Pod::new(self, name)
    }

    /// Connects two nodes by a veth pair named `name` on both, up, with an address on either end.
    pub fn wire(&self, name: &str, address: &str, peer: &Node, peer_address: &str) -> Result<()> {
        let pid = peer.holder_pid().to_string();
        let pair = ["type", "veth", "peer", "name", name, "netns", &pid];
        self.run(["ip", "link", "add", name].iter().chain(&pair))?;
        for (node, address) in [(self, address), (peer, peer_address)] {
            // Duplicate address detection would delay IPv6 by two seconds.
            node.run(["ip", "address", "add", address, "dev", name, "nodad"])?;
            node.run(["ip", "link", "set", name, "up"])?;
        }
        Ok(())
    }

    /// Records the state of the node's network, and the files under `dirs`.
    pub fn snapshot(&self, dirs: &[&str]) -> Result<Snapshot> {
        Snapshot::take(self, dirs)
    }

    /// Asserts that the node is as it was, except for what `before` ignores.
    ///
    /// # Panics
    ///
    /// With the difference, if there still is one after a few seconds: the kernel removes the links
    /// of a deleted netns asynchronously.
    #[track_caller]
    pub fn assert_unchanged(&self, before: &Snapshot) {
        if let Err(difference) = before.await_same(self) {
            panic!("node {} has changed:\n{difference}", self.name());
        }
    }

    /// `nsenter` into this node's mount and UTS namespace, without its netns.
    pub(crate) fn nsenter(&self) -> Command {
        let mut command = Command::new("nsenter");
        with_clean_environment(&mut command).args([
            "--target",
            &self.holder_pid().to_string(),
            "--mount",
            "--uts",
        ]);
        command
    }

    fn set_up(&self) -> Result<()> {
        let mount = |kind: &str, options: &str, at: &str| {
            self.run(["mount", "-t", kind, "-o", options, kind, at])
        };
        self.run(["hostname", self.name()])?;
        self.run(["ip", "link", "set", "lo", "up"])?;
        // A sysfs shows the links of the netns that it was mounted in.
        mount("sysfs", "rw", "/sys")?;
        mount("tmpfs", "mode=0755", "/run")?;
        for dir in OVERLAID {
            let (upper, work) = (
                format!("/run/lab/{dir}/upper"),
                format!("/run/lab/{dir}/work"),
            );
            self.run(["mkdir", "-p", &upper, &work])?;
            let layers = format!("lowerdir=/{dir},upperdir={upper},workdir={work}");
            mount("overlay", &layers, &format!("/{dir}"))?;
        }
        // The host's name servers must not be asked.
        self.write("/etc/resolv.conf", "nameserver 127.0.0.1\n")?;
        // The first `ip netns add` would mount this, and two concurrent first ones race.
        self.run(["mkdir", "-p", "/run/netns", "/run/lock"])?;
        mount("tmpfs", "mode=0755", "/run/netns")?;
        self.run(["mount", "--make-shared", "/run/netns"])?;
        Ok(())
    }
}

impl Holder {
    /// Returns when the holder runs in its namespaces.
    fn await_started(&mut self) -> Result<()> {
        // If unshare failed, so may this write, but stderr explains more.
        let stdin = self.process.stdin.as_mut().context("stdin is piped")?;
        let _ = stdin.write_all(b"\n");
        let mut stdout = self.process.stdout.take().context("stdout is piped")?;
        if stdout.read(&mut [0])? == 0 {
            let mut text = String::new();
            let mut stderr = self.process.stderr.take().context("stderr is piped")?;
            stderr.read_to_string(&mut text)?;
            bail!("{} (root is needed)", text.trim_end());
        }
        self.uts = Some(UtsNamespace::of(self.process.id())?);
        Ok(())
    }
}

impl Netns for Node {
    fn command(&self, program: impl AsRef<OsStr>) -> Command {
        let mut command = self.nsenter();
        command.args(["--net", "--"]).arg(program);
        command
    }

    fn netns_file(&self) -> PathBuf {
        format!("/proc/{}/ns/net", self.holder_pid()).into()
    }
}

impl Drop for Holder {
    fn drop(&mut self) {
        if let Some(uts) = &self.uts {
            uts.kill_all(self.process.id());
        }
        // Both fail only if the holder has exited already.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}
