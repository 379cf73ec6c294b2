//! [`TailscaledSpec`]: flags and environment of a tailscaled.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::{Path, PathBuf};

/// Variables that tailscaled inherits; it gets no others.
pub(super) const INHERITED: [&str; 11] = [
    "PATH",
    "HTTPS_PROXY",
    "https_proxy",
    "HTTP_PROXY",
    "http_proxy",
    "NO_PROXY",
    "no_proxy",
    "ALL_PROXY",
    "all_proxy",
    "SSL_CERT_FILE",
    "SSL_CERT_DIR",
];

/// Flags by which a running process is recognised.
pub(super) const STATE_DIR: &str = "--statedir=";
pub(super) const SOCKET: &str = "--socket=";

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TailscaledSpec {
    pub program: PathBuf,
    /// State, keys and log. Not shared with another tailscaled.
    pub state_dir: PathBuf,
    /// The `LocalAPI` socket.
    pub socket: PathBuf,
    /// The name of the TUN device.
    pub interface: String,
    /// The UDP port for WireGuard.
    pub port: u16,
    /// `SSL_CERT_FILE`; replaces the system's CAs.
    pub ca_file: Option<PathBuf>,
    /// `None` for the netns of this process.
    pub netns: Option<PathBuf>,
    /// Additional environment variables.
    pub environment: BTreeMap<String, String>,
    /// The log is rotated at this size, and one old log is kept.
    pub log_limit_bytes: u64,
}

impl TailscaledSpec {
    /// With the default interface name and port.
    pub fn new(
        program: impl Into<PathBuf>,
        state_dir: impl Into<PathBuf>,
        socket: impl Into<PathBuf>,
    ) -> Self {
        Self {
            program: program.into(),
            state_dir: state_dir.into(),
            socket: socket.into(),
            interface: "headcni01".to_owned(),
            port: 41641,
            ca_file: None,
            netns: None,
            environment: BTreeMap::new(),
            log_limit_bytes: 8 << 20,
        }
    }

    pub(super) fn arguments(&self) -> Vec<OsString> {
        vec![
            "--no-logs-no-support".into(),
            format!("--tun={}", self.interface).into(),
            flag_with(STATE_DIR, &self.state_dir),
            flag_with(SOCKET, &self.socket),
            format!("--port={}", self.port).into(),
        ]
    }

    /// The whole environment. `inherited` looks up a variable of this process.
    pub(super) fn variables(
        &self,
        inherited: impl Fn(&str) -> Option<OsString>,
    ) -> BTreeMap<OsString, OsString> {
        let ours = INHERITED
            .iter()
            .filter_map(|name| Some((OsString::from(*name), inherited(name)?)));
        let mut all: BTreeMap<_, _> = ours.collect();
        // No telemetry to Tailscale, and no files outside the state directory.
        all.insert("TS_NO_LOGS_NO_SUPPORT".into(), "true".into());
        all.insert("TS_LOGS_DIR".into(), self.state_dir.clone().into());
        if let Some(ca) = &self.ca_file {
            all.insert("SSL_CERT_FILE".into(), ca.into());
        }
        let extra = self.environment.iter();
        all.extend(extra.map(|(name, value)| (name.into(), value.into())));
        all
    }
}

pub(super) fn flag_with(flag: &str, path: &Path) -> OsString {
    let mut word = OsString::from(flag);
    word.push(path);
    word
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_listed_variables_are_inherited() {
        let mut spec = TailscaledSpec::new("/bin/tailscaled", "/var/lib/x", "/run/x.sock");
        spec.ca_file = Some("/etc/ca.pem".into());
        spec.environment
            .insert("TS_DEBUG_MTU".into(), "1280".into());
        let ours = |name: &str| match name {
            "PATH" | "HTTPS_PROXY" | "SSL_CERT_FILE" => Some(format!("our {name}").into()),
            _ => None,
        };
        let variables = spec.variables(ours);
        let shown: Vec<String> = variables
            .iter()
            .map(|(name, value)| format!("{}={}", name.display(), value.display()))
            .collect();
        let expected = [
            "HTTPS_PROXY=our HTTPS_PROXY",
            "PATH=our PATH",
            "SSL_CERT_FILE=/etc/ca.pem",
            "TS_DEBUG_MTU=1280",
            "TS_LOGS_DIR=/var/lib/x",
            "TS_NO_LOGS_NO_SUPPORT=true",
        ];
        assert_eq!(shown, expected);
    }
}
