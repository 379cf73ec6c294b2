//! How a tailscaled is to run: its flags and its environment.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::{Path, PathBuf};

/// What a process needs of our environment to work: the rest is not its business.
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

/// Flags that it is known by.
pub(super) const STATE_DIR: &str = "--statedir=";
pub(super) const SOCKET: &str = "--socket=";

/// How a tailscaled is to run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tailscaled {
    /// The program.
    pub program: PathBuf,
    /// The directory of its state, keys and log. It belongs to this one alone.
    pub state_dir: PathBuf,
    /// Where it listens to us.
    pub socket: PathBuf,
    /// The name of its interface.
    pub interface: String,
    /// Its UDP port.
    pub port: u16,
    /// The authorities that it trusts. They replace the system's.
    pub ca_file: Option<PathBuf>,
    /// The network namespace that it lives in, if not in ours.
    pub netns: Option<PathBuf>,
    /// What else is in its environment.
    pub environment: BTreeMap<String, String>,
    /// Its log is put aside when it is larger, so there is twice as much at most.
    pub log_limit_bytes: u64,
}

impl Tailscaled {
    /// One with an interface and a port that are usual for us.
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

    /// The whole environment, of which `inherited` gives what we have ourselves.
    pub(super) fn variables(
        &self,
        inherited: impl Fn(&str) -> Option<OsString>,
    ) -> BTreeMap<OsString, OsString> {
        let ours = INHERITED
            .iter()
            .filter_map(|name| Some((OsString::from(*name), inherited(name)?)));
        let mut all: BTreeMap<_, _> = ours.collect();
        // Nothing is told to Tailscale, and no file is written elsewhere.
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
    fn nothing_is_inherited_but_what_is_needed() {
        let mut settings = Tailscaled::new("/bin/tailscaled", "/var/lib/x", "/run/x.sock");
        settings.ca_file = Some("/etc/ca.pem".into());
        settings
            .environment
            .insert("TS_DEBUG_MTU".into(), "1280".into());
        let ours = |name: &str| match name {
            "PATH" | "HTTPS_PROXY" | "SSL_CERT_FILE" => Some(format!("our {name}").into()),
            _ => None,
        };
        let variables = settings.variables(ours);
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
