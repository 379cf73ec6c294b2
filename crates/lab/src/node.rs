//! A node: a network, mount and UTS namespace of its own, held by one process.
//!
//! The holder is a shell, reading a pipe whose other end only this process has. When this process
//! ends, by whatever signal, the pipe closes, the holder ends all other processes of the node and
//! then itself, and the kernel takes the namespaces and every mount and link in them away. So nothing
//! here cleans up, and nothing can be left.

use std::ffi::OsStr;
use std::io::{Read, Write};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};

use anyhow::{Context, Result, bail};

use crate::environment::with_clean_environment;
use crate::inhabitants::{HOLD, Home, own_namespace};
use crate::netns::Netns;
use crate::pod::Pod;
use crate::snapshot::Snapshot;

/// The directories whose changes stay in the node: `/run` starts empty, these as the host's.
const OVERLAID: [&str; 3] = ["etc", "opt", "var"];

/// A machine, as far as the network and CNI's directories go.
#[derive(Debug)]
pub struct Node {
    name: String,
    holder: Child,
    /// Known as soon as the holder is in it.
    home: Option<Home>,
}

impl Node {
    /// Makes a node with `lo` up and nothing else. The name becomes its host name.
    pub fn new(name: &str) -> Result<Self> {
        let holder = Command::new("unshare")
            .args([
                "--net",
                "--mount",
                "--uts",
                "--propagation",
                "private",
                "sh",
                "-c",
                HOLD,
                "sh",
            ])
            .arg(own_namespace()?)
            .current_dir("/")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .context("start unshare")?;
        let mut node = Self {
            name: name.to_owned(),
            holder,
            home: None,
        };
        node.await_holder()
            .with_context(|| format!("make namespaces for node {name}"))?;
        node.furnish()
            .with_context(|| format!("set up node {name}"))?;
        Ok(node)
    }

    /// The name it was made with.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Process id of the holder: `/proc/<pid>/ns` has the node's namespaces.
    pub fn holder_pid(&self) -> u32 {
        self.holder.id()
    }

    /// Makes a network namespace on this node, as a container runtime does for a pod.
    pub fn pod(&self, name: &str) -> Result<Pod<'_>> {
        Pod::new(self, name)
    }

    /// Joins two nodes by a veth pair named `name` on both, up, with an address on either end.
    pub fn wire(&self, name: &str, address: &str, peer: &Node, peer_address: &str) -> Result<()> {
        let pid = peer.holder_pid().to_string();
        let pair = ["type", "veth", "peer", "name", name, "netns", &pid];
        self.run(["ip", "link", "add", name].iter().chain(&pair))?;
        for (node, address) in [(self, address), (peer, peer_address)] {
            // Duplicate address detection would hold IPv6 back for two seconds.
            node.run(["ip", "address", "add", address, "dev", name, "nodad"])?;
            node.run(["ip", "link", "set", name, "up"])?;
        }
        Ok(())
    }

    /// Records what there is in the node's network, and the files under `dirs`.
    pub fn snapshot(&self, dirs: &[&str]) -> Result<Snapshot> {
        Snapshot::take(self, dirs)
    }

    /// Asserts that the node is again as it was, except for what `before` ignores.
    ///
    /// # Panics
    ///
    /// With the difference, if there is still one after a few seconds: the kernel takes the links
    /// of a deleted namespace away in its own time.
    #[track_caller]
    pub fn assert_unchanged(&self, before: &Snapshot) {
        if let Err(difference) = before.await_same(self) {
            panic!("node {} has changed:\n{difference}", self.name);
        }
    }

    /// Arguments for `nsenter` that lead to this node's files and host name, but not its network.
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

    /// Returns when the holder runs in its namespaces: it answers.
    fn await_holder(&mut self) -> Result<()> {
        // Should unshare fail, the write can, too, but its own words say more.
        let _ = self
            .holder
            .stdin
            .as_mut()
            .context("stdin is piped")?
            .write_all(b"\n");
        let mut stdout = self.holder.stdout.take().context("stdout is piped")?;
        if stdout.read(&mut [0])? == 0 {
            let mut words = String::new();
            let mut stderr = self.holder.stderr.take().context("stderr is piped")?;
            stderr.read_to_string(&mut words)?;
            bail!("{} (root is needed)", words.trim_end());
        }
        self.home = Some(Home::of(self.holder_pid())?);
        Ok(())
    }

    fn furnish(&self) -> Result<()> {
        self.run(["hostname", &self.name])?;
        self.run(["ip", "link", "set", "lo", "up"])?;
        // A sysfs shows the links of the namespace that it was mounted in.
        self.run(["mount", "-t", "sysfs", "sysfs", "/sys"])?;
        self.run(["mount", "-t", "tmpfs", "-o", "mode=0755", "tmpfs", "/run"])?;
        for dir in OVERLAID {
            let (upper, work) = (
                format!("/run/lab/{dir}/upper"),
                format!("/run/lab/{dir}/work"),
            );
            self.run(["mkdir", "-p", &upper, &work])?;
            let layers = format!("lowerdir=/{dir},upperdir={upper},workdir={work}");
            self.run([
                "mount",
                "-t",
                "overlay",
                "-o",
                &layers,
                "overlay",
                &format!("/{dir}"),
            ])?;
        }
        // The host's servers are not of the lab: nobody here shall ask them.
        self.write("/etc/resolv.conf", "nameserver 127.0.0.1\n")?;
        // The first `ip netns add` would mount this; two first ones at once get in each other's way.
        self.run(["mkdir", "-p", "/run/netns", "/run/lock"])?;
        self.run([
            "mount",
            "-t",
            "tmpfs",
            "-o",
            "mode=0755",
            "tmpfs",
            "/run/netns",
        ])?;
        self.run(["mount", "--make-shared", "/run/netns"])?;
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

impl Drop for Node {
    fn drop(&mut self) {
        if let Some(home) = &self.home {
            home.clear(self.holder_pid());
        }
        // Both fail only when the holder has ended already.
        let _ = self.holder.kill();
        let _ = self.holder.wait();
    }
}
