//! Directories and files of the CNI configuration.

use std::path::{Path, PathBuf};

use api::paths;

use crate::Cni;

/// The conflist that the container runtime reads. headcni owns this name.
pub const CONFLIST: &str = "10-headcni.conflist";
/// The pod CIDRs of this node.
pub const SUBNET_ENV: &str = "subnet.env";
const LEDGER: &str = "set-aside.json";

/// Where [`paths::SUBNET_FILE`] is.
const RUN_DIR: &str = "/run/headcni";
const CONF_DIR: &str = "/etc/cni/net.d";
const BIN_DIR: &str = "/opt/cni/bin";

/// Exists if k3s is installed.
const K3S_AGENT: &str = "/var/lib/rancher/k3s/agent";
const K3S_CONF_DIR: &str = "/var/lib/rancher/k3s/agent/etc/cni/net.d";
/// Since v1.28.15, v1.29.10, v1.30.6 and v1.31.2: <https://github.com/k3s-io/k3s/pull/10868>.
const K3S_BIN_DIR: &str = "/var/lib/rancher/k3s/data/cni";
const K3S_OLD_BIN_DIR: &str = "/var/lib/rancher/k3s/data/current/bin";

/// The directories of this node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Dirs {
    /// Where the container runtime reads CNI configurations.
    pub conf_dir: PathBuf,
    /// Where the container runtime finds CNI plugins.
    pub bin_dir: PathBuf,
    /// Cleared by a reboot.
    pub run_dir: PathBuf,
    /// Survives a reboot.
    pub state_dir: PathBuf,
}

impl Dirs {
    /// The configured directories, else those of the runtime installed under `root`.
    pub fn locate(cni: &Cni, root: &Path) -> Self {
        let below = |path: &Path| root.join(path.strip_prefix("/").unwrap_or(path));
        let is_dir = |path: &str| below(Path::new(path)).is_dir();
        let (conf_dir, bin_dir) = if !is_dir(K3S_AGENT) {
            (CONF_DIR, BIN_DIR)
        } else if is_dir(K3S_OLD_BIN_DIR) && !is_dir(K3S_BIN_DIR) {
            (K3S_CONF_DIR, K3S_OLD_BIN_DIR)
        } else {
            (K3S_CONF_DIR, K3S_BIN_DIR)
        };
        let named = |path: &Option<PathBuf>, default: &str| {
            below(path.as_deref().unwrap_or(Path::new(default)))
        };
        Self {
            conf_dir: named(&cni.conf_dir, conf_dir),
            bin_dir: named(&cni.bin_dir, bin_dir),
            run_dir: below(Path::new(RUN_DIR)),
            state_dir: below(Path::new(paths::DAEMON_STATE_DIR)),
        }
    }

    /// The conflist that the container runtime reads.
    pub fn conflist(&self) -> PathBuf {
        self.conf_dir.join(CONFLIST)
    }

    /// The pod CIDRs of this node, for the plugin.
    pub fn subnet_env(&self) -> PathBuf {
        self.run_dir.join(SUBNET_ENV)
    }

    /// The copy that survives a reboot.
    pub fn saved_subnet_env(&self) -> PathBuf {
        self.state_dir.join(SUBNET_ENV)
    }

    /// The CNI configurations of others that were renamed.
    pub fn ledger(&self) -> PathBuf {
        self.state_dir.join(LEDGER)
    }
}

#[cfg(test)]
mod tests {
    use std::fs::create_dir_all;

    use rstest::rstest;
    use tempfile::tempdir;

    use super::*;

    #[rstest]
    #[case::plain(&[], CONF_DIR, BIN_DIR)]
    #[case::rke2(&["/var/lib/rancher/rke2/agent"], CONF_DIR, BIN_DIR)]
    #[case::k3s(&[K3S_AGENT, K3S_BIN_DIR, K3S_OLD_BIN_DIR], K3S_CONF_DIR, K3S_BIN_DIR)]
    #[case::old_k3s(&[K3S_AGENT, K3S_OLD_BIN_DIR], K3S_CONF_DIR, K3S_OLD_BIN_DIR)]
    #[case::k3s_without_plugins(&[K3S_AGENT], K3S_CONF_DIR, K3S_BIN_DIR)]
    fn the_runtime_decides_unless_the_configuration_does(
        #[case] found: &[&str],
        #[case] conf_dir: &str,
        #[case] bin_dir: &str,
    ) {
        let root = tempdir().unwrap();
        let below = |path: &str| root.path().join(&path[1..]);
        for dir in found {
            create_dir_all(below(dir)).unwrap();
        }
        let mut cni = Cni::default();
        let dirs = Dirs::locate(&cni, root.path());
        assert_eq!(dirs.conf_dir, below(conf_dir));
        assert_eq!(dirs.bin_dir, below(bin_dir));
        assert_eq!(dirs.subnet_env(), below(paths::SUBNET_FILE));

        cni.conf_dir = Some("/my/net.d".into());
        cni.bin_dir = Some("/my/bin".into());
        let dirs = Dirs::locate(&cni, root.path());
        assert_eq!(
            dirs.conflist(),
            below("/my/net.d").join("10-headcni.conflist")
        );
        assert_eq!(dirs.bin_dir, below("/my/bin"));
    }
}
