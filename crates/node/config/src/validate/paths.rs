//! Paths: the daemon, the plugin and runtimes have no directory in common to begin at.

use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use crate::problem::Problem;
use crate::schema::Config;

/// `sun_path` less its final NUL: see unix(7).
const LONGEST_SOCKET: usize = 107;

pub(super) fn problems(config: &Config) -> Vec<Problem> {
    let paths = [
        ("cni.confDir", config.cni.conf_dir.as_deref()),
        ("cni.binDir", config.cni.bin_dir.as_deref()),
        ("cni.logFile", config.cni.log_file.as_deref()),
        ("ipam.dataDir", config.ipam.data_dir.as_deref()),
        (
            "headscale.apiKeyFile",
            config.headscale.api_key_file.as_deref(),
        ),
        (
            "headscale.preAuthKeyFile",
            config.headscale.pre_auth_key_file.as_deref(),
        ),
        ("headscale.caFile", config.headscale.ca_file.as_deref()),
        (
            "kubernetes.kubeconfig",
            config.kubernetes.kubeconfig.as_deref(),
        ),
        ("tailscale.socket", Some(config.tailscale.socket.as_path())),
        (
            "tailscale.stateDir",
            Some(config.tailscale.state_dir.as_path()),
        ),
    ];
    let given = paths
        .into_iter()
        .filter_map(|(key, path)| Some((key, path?)));
    let bad = given.filter_map(|(key, path)| Some(Problem::new(key, trouble(key, path)?)));
    bad.collect()
}

fn trouble(key: &str, path: &Path) -> Option<String> {
    let bytes = path.as_os_str().as_bytes();
    if !path.is_absolute() {
        return Some("must begin with \"/\": write the whole path".to_owned());
    }
    if bytes.contains(&0) || bytes.contains(&b'\n') {
        return Some("has a NUL or a line break in it: take it out".to_owned());
    }
    let is_dir = key.ends_with("Dir");
    if !is_dir && (bytes.ends_with(b"/") || path.file_name().is_none()) {
        return Some("is a directory: write the file's name too".to_owned());
    }
    if key == "tailscale.socket" && bytes.len() > LONGEST_SOCKET {
        return Some(format!(
            "too long for a socket: up to {LONGEST_SOCKET} bytes"
        ));
    }
    None
}
