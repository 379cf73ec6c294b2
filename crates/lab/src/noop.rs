//! The reference test plugin `noop`, which behaves as configured and records its calls.
//!
//! <https://github.com/containernetworking/cni/tree/v1.3.1/plugins/test/noop>

use std::fs::{self, File};
use std::io::Write;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use base64::prelude::{BASE64_STANDARD, Engine};
use serde_json::{Value, json};
use tempfile::TempDir;

/// One `noop` in a chain or as a delegate. Its files are in a temporary directory that host and node share.
#[derive(Debug)]
pub struct Noop {
    dir: TempDir,
    debug: Value,
}

/// A recorded call.
#[derive(Debug, Clone, PartialEq)]
pub struct Seen {
    /// `CNI_COMMAND`
    pub verb: String,
    /// `CNI_CONTAINERID`
    pub container_id: String,
    /// `CNI_NETNS`
    pub netns: String,
    /// `CNI_IFNAME`
    pub ifname: String,
    /// `CNI_ARGS`
    pub args: String,
    /// `CNI_PATH`
    pub path: String,
    /// `CNI_NETNS_OVERRIDE`
    pub netns_override: String,
    /// stdin
    pub conf: Value,
}

impl Noop {
    /// It prints nothing and succeeds. ADD needs [`report_result`](Self::report_result).
    pub fn new() -> Result<Self> {
        let dir = TempDir::with_prefix("noop-").context("make a directory for noop")?;
        let noop = Self {
            dir,
            debug: json!({}),
        };
        noop.write_debug_file()?;
        write(&noop.log_file(), "")?;
        Ok(noop)
    }

    /// Its network configuration.
    pub fn conf(&self) -> Value {
        json!({"type": "noop", "debugFile": self.debug_file(), "commandLog": self.log_file()})
    }

    /// Print this result for every verb.
    pub fn report_result(&mut self, result: &Value) -> Result<()> {
        self.set("ReportResult", result.to_string().into())
    }

    /// Print `prevResult`. It crashes without one.
    pub fn pass_through(&mut self) -> Result<()> {
        self.set("ReportResult", "PASSTHROUGH".into())
    }

    /// Print this, which need not be JSON.
    pub fn report_garbage(&mut self, stdout: &str) -> Result<()> {
        self.set("ReportResult", stdout.into())
    }

    /// Fail with this error object.
    pub fn report_error(&mut self, code: u32, message: &str) -> Result<()> {
        self.set("ReportErrorCode", code.into())?;
        self.set("ReportError", message.into())
    }

    /// Write this to stderr first.
    pub fn report_stderr(&mut self, text: &str) -> Result<()> {
        self.set("ReportStderr", text.into())
    }

    /// Exit with this status after the result.
    pub fn exit_with(&mut self, status: u8) -> Result<()> {
        self.set("ExitWithCode", status.into())
    }

    /// Back to the default behaviour. Recorded calls stay.
    pub fn reset(&mut self) -> Result<()> {
        self.debug = json!({});
        self.write_debug_file()
    }

    pub fn calls(&self) -> Result<Vec<Seen>> {
        let log = read(&self.log_file())?;
        if log.is_empty() {
            return Ok(Vec::new());
        }
        let log: Value = serde_json::from_str(&log).context("parse the log of noop")?;
        log.as_array()
            .into_iter()
            .flatten()
            .map(Seen::from_log)
            .collect()
    }

    /// The verbs of all calls.
    pub fn verbs(&self) -> Result<Vec<String>> {
        Ok(self.calls()?.into_iter().map(|seen| seen.verb).collect())
    }

    fn set(&mut self, key: &str, value: Value) -> Result<()> {
        self.debug[key] = value;
        self.write_debug_file()
    }

    fn write_debug_file(&self) -> Result<()> {
        write(&self.debug_file(), &self.debug.to_string())
    }

    fn debug_file(&self) -> PathBuf {
        self.dir.path().join("debug.json")
    }

    fn log_file(&self) -> PathBuf {
        self.dir.path().join("commands.json")
    }
}

impl Seen {
    fn from_log(entry: &Value) -> Result<Self> {
        let args = &entry["CmdArgs"];
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let stdin = BASE64_STANDARD.decode(text(&args["StdinData"]))?;
        Ok(Self {
            verb: text(&entry["Command"]),
            container_id: text(&args["ContainerID"]),
            netns: text(&args["Netns"]),
            ifname: text(&args["IfName"]),
            args: text(&args["Args"]),
            path: text(&args["Path"]),
            netns_override: text(&args["NetnsOverride"]),
            conf: serde_json::from_slice(&stdin)
                .context("parse the configuration that noop got")?,
        })
    }
}

fn write(path: &Path, text: &str) -> Result<()> {
    File::create(path)
        .and_then(|mut file| file.write_all(text.as_bytes()))
        .with_context(|| format!("write {}", path.display()))
}

fn read(path: &Path) -> Result<String> {
    fs::read_to_string(path).with_context(|| format!("read {}", path.display()))
}
