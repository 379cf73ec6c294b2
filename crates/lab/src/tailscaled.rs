//! A real tailscaled that stands for the machine's own: where Debian's package would have it, joined
//! by a person with the command line.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result};
use serde_json::Value;

use crate::netns::Netns;
use crate::node::Node;
use crate::process::{self, Output, Running};
use crate::tools::TAILSCALE;
use crate::wait::eventually;

/// Where it listens.
pub const TAILSCALED_SOCKET: &str = "/run/tailscale/tailscaled.sock";

const STATE: &str = "/var/lib/tailscale";
const LOG: &str = "/var/log/tailscaled.log";
const AUTHORITY: &str = "/etc/lab-authority.pem";
const KEY: &str = "/run/tailscale/lab-auth-key";
const LINK: &str = "tailscale0";
/// In the place of a link: none.
const USERSPACE: &str = "userspace-networking";

/// How long it may take until it answers, and until it has joined.
const PATIENCE: Duration = Duration::from_mins(1);

/// One in a node: it ends with the node at the latest.
#[derive(Debug)]
pub struct Tailscaled<'a> {
    node: &'a Node,
    program: PathBuf,
    cli: PathBuf,
    running: Option<Running>,
}

/// How a node joins. It holds a secret, so it cannot be printed.
#[derive(Clone, Default)]
pub struct Join<'s> {
    /// The server's address, with no name in it.
    pub url: &'s str,
    /// What lets it in.
    pub key: &'s str,
    /// What is sent to it for others: prefixes that it routes.
    pub advertise: &'s [&'s str],
}

impl<'a> Tailscaled<'a> {
    /// Starts one that trusts an authority, such as [`Headscale::ca_file`](crate::Headscale::ca_file).
    pub fn start(node: &'a Node, authority: &Path) -> Result<Self> {
        let certificate =
            std::fs::read(authority).with_context(|| format!("read {}", authority.display()))?;
        node.write(AUTHORITY, certificate)?;
        node.run(["mkdir", "-p", STATE, "/run/tailscale", "/var/log"])?;
        let mut one = Self {
            node,
            program: TAILSCALE.program("tailscaled"),
            cli: TAILSCALE.program("tailscale"),
            running: None,
        };
        one.resume()?;
        Ok(one)
    }

    /// Starts it again with what it knew, and returns when it answers, which may be long before it
    /// has found its server or peers again.
    pub fn resume(&mut self) -> Result<()> {
        self.resume_by(LINK)
    }

    /// The same without a link: it takes packets from nobody but itself.
    pub fn resume_without_link(&mut self) -> Result<()> {
        self.resume_by(USERSPACE)
    }

    fn resume_by(&mut self, link: &str) -> Result<()> {
        // [`Running`] keeps what a program says in memory, and this one has much to say.
        let mut command = self.node.command("sh");
        command
            .args(["-c", "exec \"$@\" >>\"$0\" 2>&1", LOG])
            .arg(&self.program)
            .arg("--no-logs-no-support")
            .arg(format!("--tun={link}"))
            .arg(format!("--statedir={STATE}"))
            .arg(format!("--socket={TAILSCALED_SOCKET}"))
            .arg("--port=41641")
            .env("TS_NO_LOGS_NO_SUPPORT", "true")
            .env("TS_LOGS_DIR", STATE)
            .env("SSL_CERT_FILE", AUTHORITY);
        self.running = Some(Running::spawn(&mut command, b"")?);
        eventually(PATIENCE, "tailscaled answers", || {
            let status = self.status().ok()?;
            status["BackendState"].is_string().then_some(())
        })
        .with_context(|| self.log())
    }

    /// Kills it with SIGKILL: its rules stay, its link goes.
    pub fn kill(&mut self) -> Result<()> {
        if let Some(running) = self.running.take() {
            running.kill();
            running.wait(process::DEADLINE)?;
        }
        Ok(())
    }

    /// Its process id.
    pub fn pid(&self) -> Option<u32> {
        self.running.as_ref().map(Running::pid)
    }

    /// Joins, takes others' routes, and returns when it runs.
    pub fn join(&self, join: &Join) -> Result<()> {
        // Arguments are for everybody to see, and keys are not.
        self.node.write(KEY, "")?;
        self.node.run(["chmod", "600", KEY])?;
        self.node.write(KEY, join.key)?;
        let mut command = self.command();
        command
            .arg("up")
            .arg(format!("--login-server={}", join.url))
            .arg(format!("--auth-key=file:{KEY}"))
            .arg(format!("--hostname={}", self.node.name()))
            .arg(format!("--advertise-routes={}", join.advertise.join(",")))
            .args(["--accept-routes", "--accept-dns=false"])
            .args(["--snat-subnet-routes=false", "--timeout=50s"]);
        let joined = Running::spawn(&mut command, b"")?.wait(PATIENCE);
        self.node.run(["rm", KEY])?;
        succeeded(joined?).with_context(|| format!("join {}\n{}", join.url, self.log()))?;
        Ok(())
    }

    /// What it knows of itself and its peers.
    pub fn status(&self) -> Result<Value> {
        let text = self.cli(["status", "--json"])?;
        serde_json::from_str(&text).with_context(|| format!("read tailscale's status: {text}"))
    }

    /// Its first address on the mesh.
    pub fn address(&self) -> Result<String> {
        let status = self.status()?;
        let address = status["TailscaleIPs"][0].as_str();
        Ok(address.context("it has no address yet")?.to_owned())
    }

    /// Runs its own command line.
    pub fn cli<'s>(&self, args: impl IntoIterator<Item = &'s str>) -> Result<String> {
        let mut command = self.command();
        command.args(args);
        Ok(process::run(&mut command)?.stdout)
    }

    /// What it said, for a test that fails.
    pub fn log(&self) -> String {
        self.node.read(LOG).unwrap_or_default()
    }

    fn command(&self) -> Command {
        let mut command = self.node.command(&self.cli);
        command.arg(format!("--socket={TAILSCALED_SOCKET}"));
        command
    }
}

fn succeeded(output: Output) -> Result<Output> {
    anyhow::ensure!(
        output.status.success(),
        "{}: {}",
        output.status,
        output.stderr.trim_end()
    );
    Ok(output)
}
