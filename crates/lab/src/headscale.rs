//! A real Headscale on a node, with an embedded DERP server and a certificate of the lab's CA.

mod admin;

use std::fs;
use std::net::{IpAddr, SocketAddr};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use serde_json::Value;
use tempfile::TempDir;

use crate::authority::{self, Certified};
use crate::files;
use crate::netns::Netns;
use crate::node::Node;
use crate::process::{self, Running};
use crate::tools::GoModule;
use crate::wait::eventually;

pub use admin::open_policy;

const PORT: u16 = 8443;
const START_TIMEOUT: Duration = Duration::from_secs(30);

/// Its process and files end with it.
#[derive(Debug)]
pub struct Headscale {
    node: Node,
    program: PathBuf,
    address: IpAddr,
    files: TempDir,
    certified: Certified,
    running: Option<Running>,
}

impl Headscale {
    /// `address` is one of the node's.
    pub fn start(node: &Node, version: &GoModule, address: IpAddr) -> Result<Self> {
        let files = TempDir::new().context("make a directory for headscale")?;
        let certified = authority::certify(address, files.path())?;
        let mut server = Self {
            node: node.clone(),
            program: version.program("headscale"),
            address,
            files,
            certified,
            running: None,
        };
        let config = config(server.files.path(), address, &server.certified);
        files::put(&server.config(), config).context("write headscale's configuration")?;
        server.restart()?;
        Ok(server)
    }

    /// An IP literal: tailscaled would resolve a name by public DNS servers.
    pub fn url(&self) -> String {
        url(self.address)
    }

    /// The CA's certificate.
    pub fn ca_file(&self) -> &Path {
        &self.certified.ca
    }

    /// Starts it again with its database.
    pub fn restart(&mut self) -> Result<()> {
        // Running would hold the whole log in memory.
        let mut command = self.node.command("sh");
        command
            .args(["-c", "exec \"$@\" >>\"$0\" 2>&1"])
            .arg(self.log_file())
            .arg(&self.program)
            .arg("-c")
            .arg(self.config())
            .arg("serve");
        self.running = Some(Running::spawn(&mut command, b"")?);
        eventually(START_TIMEOUT, "headscale answers", || {
            self.cli(["users", "list", "-o", "json"]).ok()
        })
        .with_context(|| self.log())?;
        Ok(())
    }

    pub fn kill(&mut self) -> Result<()> {
        if let Some(running) = self.running.take() {
            running.kill_group();
            running.wait(process::DEADLINE)?;
        }
        Ok(())
    }

    /// Runs the `headscale` CLI, which needs no API key.
    pub fn cli<'s>(&self, args: impl IntoIterator<Item = &'s str>) -> Result<Value> {
        let mut command = self.command();
        command.args(args);
        let text = process::run(&mut command)?.stdout;
        match text.trim() {
            "" => Ok(Value::Null),
            text => Ok(serde_json::from_str(text).unwrap_or_else(|_| text.into())),
        }
    }

    /// A new API key, valid for a day.
    pub fn api_key(&self) -> Result<String> {
        match self.cli(["apikeys", "create", "-e", "24h"])? {
            Value::String(key) => Ok(key),
            other => bail!("unexpected output of apikeys create: {other}"),
        }
    }

    pub fn set_policy(&self, policy: &Value) -> Result<()> {
        let path = self.files.path().join("policy.json");
        files::put(&path, policy.to_string()).context("write a policy")?;
        let mut command = self.command();
        command.args(["policy", "set", "-f"]).arg(&path);
        process::run(&mut command)?;
        Ok(())
    }

    /// For the message of a failed test.
    pub fn log(&self) -> String {
        fs::read_to_string(self.log_file()).unwrap_or_default()
    }

    fn command(&self) -> Command {
        let mut command = self.node.command(&self.program);
        command.arg("-c").arg(self.config());
        command
    }

    /// The `headscale` command line, for a shell on its node.
    pub fn cli_command(&self) -> String {
        format!("{} -c {}", self.program.display(), self.config().display())
    }

    fn config(&self) -> PathBuf {
        self.files.path().join("config.yaml")
    }

    fn log_file(&self) -> PathBuf {
        self.files.path().join("log")
    }
}

fn url(address: IpAddr) -> String {
    format!("https://{}", SocketAddr::new(address, PORT))
}

/// Contacts no other server: DERP is embedded, update checks are off.
fn config(dir: &Path, address: IpAddr, certified: &Certified) -> String {
    let dir = dir.display();
    let url = url(address);
    let (certificate, key) = (certified.certificate.display(), certified.key.display());
    let family = match address {
        IpAddr::V4(_) => "ipv4",
        IpAddr::V6(_) => "ipv6",
    };
    format!(
        r#"server_url: {url}
listen_addr: "[::]:{PORT}"
metrics_listen_addr: 127.0.0.1:9090
grpc_listen_addr: 127.0.0.1:50443
grpc_allow_insecure: false
tls_cert_path: {certificate}
tls_key_path: {key}
noise: {{ private_key_path: {dir}/noise.key }}
prefixes: {{ v4: 100.64.0.0/10, v6: fd7a:115c:a1e0::/48, allocation: sequential }}
derp:
  server:
    enabled: true
    region_id: 999
    region_code: lab
    region_name: lab
    verify_clients: true
    stun_listen_addr: "[::]:3478"
    private_key_path: {dir}/derp.key
    automatically_add_embedded_derp_region: true
    {family}: {address}
  urls: []
  paths: []
  auto_update_enabled: false
disable_check_updates: true
ephemeral_node_inactivity_timeout: 70s
database: {{ type: sqlite, sqlite: {{ path: {dir}/db.sqlite, write_ahead_log: true }} }}
log: {{ level: info, format: text }}
policy: {{ mode: database }}
dns:
  magic_dns: true
  base_domain: tail.test
  override_local_dns: false
  nameservers: {{ global: [] }}
unix_socket: {dir}/headscale.sock
unix_socket_permission: "0700"
logtail: {{ enabled: false }}
"#
    )
}
