//! Paths must be absolute: daemon, plugin and runtime have different working directories.

use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use crate::problem::Problem;
use crate::schema::Config;

/// `sun_path` without its NUL: see unix(7).
const MAX_SOCKET_PATH: usize = 107;

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
    let bad = given.filter_map(|(key, path)| Some(Problem::new(key, check(key, path)?)));
    bad.collect()
}

fn check(key: &str, path: &Path) -> Option<String> {
    let bytes = path.as_os_str().as_bytes();
    if !path.is_absolute() {
        return Some("must be an absolute path".to_owned());
    }
    if bytes.contains(&0) || bytes.contains(&b'\n') {
        return Some("contains a NUL or a line break: remove it".to_owned());
    }
    let is_dir = key.ends_with("Dir");
    if !is_dir && (bytes.ends_with(b"/") || path.file_name().is_none()) {
        return Some("is a directory: add the file name".to_owned());
    }
    if key == "tailscale.socket" && bytes.len() > MAX_SOCKET_PATH {
        return Some(format!(
            "too long for a socket: use up to {MAX_SOCKET_PATH} bytes"
        ));
    }
    None
}
