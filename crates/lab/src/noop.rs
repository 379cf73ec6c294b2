//! The reference test plugin `noop`: it does as told and keeps a record of its calls.
//!
//! Its source, with the format of the files:
//! <https://github.com/containernetworking/cni/tree/v1.3.1/plugins/test/noop>

use std::fs::{self, File};
use std::io::Write;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use serde_json::{Value, json};
use tempfile::TempDir;

/// One `noop` as one member of a chain or one delegate: what it shall do, and what it has seen.
///
/// Its files lie in a temporary directory that host and node share, and go with it.
#[derive(Debug)]
pub struct Noop {
    dir: TempDir,
    orders: Value,
}

/// A call as `noop` got it. It does not record other variables than these.
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
    /// `CNI_NETNS_OVERRIDE`: the one variable outside the specification that is recorded.
    pub netns_override: String,
    /// What came on stdin.
    pub conf: Value,
}

impl Noop {
    /// A `noop` that prints nothing and succeeds. As this is no answer to ADD, tell it one.
    pub fn new() -> Result<Self> {
        let dir = TempDir::with_prefix("noop-").context("make a directory for noop")?;
        let noop = Self {
            dir,
            orders: json!({}),
        };
        noop.give_orders()?;
        write(&noop.log_file(), "")?;
        Ok(noop)
    }

    /// Its configuration: type and files. The caller adds what else the test is about.
    pub fn conf(&self) -> Value {
        json!({"type": "noop", "debugFile": self.debug_file(), "commandLog": self.log_file()})
    }

    /// From now on prints this result, to every verb.
    pub fn report_result(&mut self, result: &Value) -> Result<()> {
        self.order("ReportResult", result.to_string().into())
    }

    /// From now on prints the `prevResult` that it gets; it crashes if it gets none.
    pub fn pass_through(&mut self) -> Result<()> {
        self.order("ReportResult", "PASSTHROUGH".into())
    }

    /// From now on prints these bytes, which need not be JSON.
    pub fn report_garbage(&mut self, stdout: &str) -> Result<()> {
        self.order("ReportResult", stdout.into())
    }

    /// From now on fails with this error object.
    pub fn report_error(&mut self, code: u32, message: &str) -> Result<()> {
        self.order("ReportErrorCode", code.into())?;
        self.order("ReportError", message.into())
    }

    /// From now on writes this to stderr first.
    pub fn report_stderr(&mut self, text: &str) -> Result<()> {
        self.order("ReportStderr", text.into())
    }

    /// From now on exits with this status after having printed its result.
    pub fn exit_with(&mut self, status: u8) -> Result<()> {
        self.order("ExitWithCode", status.into())
    }

    /// Forgets all that it was told; the record of calls stays.
    pub fn behave(&mut self) -> Result<()> {
        self.orders = json!({});
        self.give_orders()
    }

    /// All calls so far, in order.
    pub fn calls(&self) -> Result<Vec<Seen>> {
        let log = read(&self.log_file())?;
        if log.is_empty() {
            return Ok(Vec::new());
        }
        let log: Value = serde_json::from_str(&log).context("read noop's log")?;
        log.as_array()
            .into_iter()
            .flatten()
            .map(Seen::from_log)
            .collect()
    }

    /// The verbs of all calls so far, in order.
    pub fn verbs(&self) -> Result<Vec<String>> {
        Ok(self.calls()?.into_iter().map(|seen| seen.verb).collect())
    }

    fn order(&mut self, key: &str, value: Value) -> Result<()> {
        self.orders[key] = value;
        self.give_orders()
    }

    fn give_orders(&self) -> Result<()> {
        write(&self.debug_file(), &self.orders.to_string())
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
        let stdin = decode_base64(&text(&args["StdinData"]))?;
        Ok(Self {
            verb: text(&entry["Command"]),
            container_id: text(&args["ContainerID"]),
            netns: text(&args["Netns"]),
            ifname: text(&args["IfName"]),
            args: text(&args["Args"]),
            path: text(&args["Path"]),
            netns_override: text(&args["NetnsOverride"]),
            conf: serde_json::from_slice(&stdin).context("read the config that noop got")?,
        })
    }
}

/// Go writes bytes into JSON in this alphabet; `=` fills the last group up.
fn decode_base64(text: &str) -> Result<Vec<u8>> {
    let mut bytes = Vec::with_capacity(text.len() / 4 * 3);
    let (mut bits, mut count) = (0u32, 0);
    for letter in text.bytes().filter(|letter| *letter != b'=') {
        let value = match letter {
            b'A'..=b'Z' => letter - b'A',
            b'a'..=b'z' => letter - b'a' + 26,
            b'0'..=b'9' => letter - b'0' + 52,
            b'+' => 62,
            b'/' => 63,
            _ => bail!("{:?} in base64", char::from(letter)),
        };
        bits = bits << 6 | u32::from(value);
        count += 6;
        if count >= 8 {
            count -= 8;
            bytes.push((bits >> count & 0xff) as u8);
        }
    }
    Ok(bytes)
}

fn write(path: &Path, text: &str) -> Result<()> {
    File::create(path)
        .and_then(|mut file| file.write_all(text.as_bytes()))
        .with_context(|| format!("write {}", path.display()))
}

fn read(path: &Path) -> Result<String> {
    fs::read_to_string(path).with_context(|| format!("read {}", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn base64_of_every_length_is_decoded() {
        for (text, bytes) in [("", ""), ("Zg==", "f"), ("Zm8=", "fo"), ("Zm9v", "foo")] {
            assert_eq!(decode_base64(text).unwrap(), bytes.as_bytes());
        }
        assert_eq!(decode_base64("/+8=").unwrap(), [0xff, 0xef]);
        assert!(decode_base64("a b").is_err());
    }
}
