//! A real tailscaled of the host: where Debian's package installs it, and joined with `tailscale up`.

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

pub const TAILSCALED_SOCKET: &str = "/run/tailscale/tailscaled.sock";

const STATE: &str = "/var/lib/tailscale";
const LOG: &str = "/var/log/tailscaled.log";
const AUTHORITY: &str = "/etc/lab-authority.pem";
const KEY: &str = "/run/tailscale/lab-auth-key";
const INTERFACE: &str = "tailscale0";
const USERSPACE: &str = "userspace-networking";

const TIMEOUT: Duration = Duration::from_mins(1);

#[derive(Debug)]
pub struct Tailscaled {
    node: Node,
    program: PathBuf,
    cli: PathBuf,
    running: Option<Running>,
}

/// Not `Debug`: it holds a secret.
#[derive(Clone, Default)]
pub struct Join<'s> {
    /// With an IP literal.
    pub url: &'s str,
    /// A pre-auth key.
    pub key: &'s str,
    /// Routes to advertise.
    pub advertise: &'s [&'s str],
}

impl Tailscaled {
    /// `authority` is the CA's certificate: [`Headscale::ca_file`](crate::Headscale::ca_file).
    pub fn start(node: &Node, authority: &Path) -> Result<Self> {
        let certificate =
            std::fs::read(authority).with_context(|| format!("read {}", authority.display()))?;
        node.write(AUTHORITY, certificate)?;
        node.run(["mkdir", "-p", STATE, "/run/tailscale", "/var/log"])?;
        let mut tailscaled = Self {
            node: node.clone(),
            program: TAILSCALE.program("tailscaled"),
            cli: TAILSCALE.program("tailscale"),
            running: None,
        };
        tailscaled.restart()?;
        Ok(tailscaled)
    }

    /// Starts it again with its state, and returns when the LocalAPI answers. It may not be connected yet.
    pub fn restart(&mut self) -> Result<()> {
        self.start_with(INTERFACE)
    }

    /// The same in userspace mode, without an interface.
    pub fn restart_userspace(&mut self) -> Result<()> {
        self.start_with(USERSPACE)
    }

    fn start_with(&mut self, interface: &str) -> Result<()> {
        // Running would hold the whole log in memory.
        let mut command = self.node.command("sh");
        command
            .args(["-c", "exec \"$@\" >>\"$0\" 2>&1", LOG])
            .arg(&self.program)
            .arg("--no-logs-no-support")
            .arg(format!("--tun={interface}"))
            .arg(format!("--statedir={STATE}"))
            .arg(format!("--socket={TAILSCALED_SOCKET}"))
            .arg("--port=41641")
            .env("TS_NO_LOGS_NO_SUPPORT", "true")
            .env("TS_LOGS_DIR", STATE)
            .env("SSL_CERT_FILE", AUTHORITY);
        self.running = Some(Running::spawn(&mut command, b"")?);
        eventually(TIMEOUT, "tailscaled answers", || {
            let status = self.status().ok()?;
            status["BackendState"].is_string().then_some(())
        })
        .with_context(|| self.log())
    }

    /// Kills it with SIGKILL: its rules stay, its interface goes.
    pub fn kill(&mut self) -> Result<()> {
        if let Some(running) = self.running.take() {
            running.kill();
            running.wait(process::DEADLINE)?;
        }
        Ok(())
    }

    pub fn pid(&self) -> Option<u32> {
        self.running.as_ref().map(Running::pid)
    }

    /// `tailscale up`, accepting routes. Returns when it is running.
    pub fn join(&self, join: &Join) -> Result<()> {
        // Every user can read the arguments of a process.
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
        let joined = Running::spawn(&mut command, b"")?.wait(TIMEOUT);
        self.node.run(["rm", KEY])?;
        succeeded(joined?).with_context(|| format!("join {}\n{}", join.url, self.log()))?;
        Ok(())
    }

    /// `tailscale status --json`
    pub fn status(&self) -> Result<Value> {
        let text = self.cli(["status", "--json"])?;
        serde_json::from_str(&text).with_context(|| format!("parse tailscale status: {text}"))
    }

    /// Its IPv4 address.
    pub fn tailnet_ip(&self) -> Result<String> {
        let status = self.status()?;
        let address = status["TailscaleIPs"][0].as_str();
        Ok(address.context("no tailnet IP yet")?.to_owned())
    }

    /// Runs the `tailscale` CLI.
    pub fn cli<'s>(&self, args: impl IntoIterator<Item = &'s str>) -> Result<String> {
        let mut command = self.command();
        command.args(args);
        Ok(process::run(&mut command)?.stdout)
    }

    /// For the message of a failed test.
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
