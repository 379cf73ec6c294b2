//! The paths of records, leases and plugins on a node.

use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use api::paths;
use cni::NetworkName;

use node_config::{Config, Mode};

/// For the lock of a lease store.
const LOCK_TIMEOUT: Duration = Duration::from_secs(2);

const OWN_IPAM: &str = "headcni-ipam";
const OWN_LEASES: &str = "/var/lib/cni/networks/headcni";
const HOST_LOCAL: &str = "host-local";
const HOST_LOCAL_LEASES: &str = "/var/lib/cni/networks";

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PodPaths {
    /// Attachment records.
    pub data_dir: PathBuf,
    /// CNI plugins, with `headcni`.
    pub bin_dir: PathBuf,
    /// `subnet.env`.
    pub subnet_file: PathBuf,
    /// `cni.name`.
    pub network: NetworkName,
    pub leases: LeaseSettings,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LeaseSettings {
    pub ownership: LeaseOwnership,
    /// As [`ipam::LeaseStore::new`] takes it.
    pub dir: PathBuf,
    /// `ipam.rangeStart`.
    pub first: Option<IpAddr>,
    /// `ipam.rangeEnd`.
    pub last: Option<IpAddr>,
    /// `ipam.gateway`.
    pub gateway: Option<IpAddr>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LeaseOwnership {
    /// Only the native datapath leases from it: every lease has a record and a link.
    Native,
    /// Other configurations may use it too. It has the layout of host-local.
    Shared,
    /// The layout of its store is unknown.
    Unknown,
}

impl PodPaths {
    /// `bin_dir` is where the runtime looks for plugins.
    pub fn of(config: &Config, bin_dir: &Path) -> Result<Self, cni::Error> {
        Ok(Self {
            data_dir: paths::PLUGIN_DATA_DIR.into(),
            bin_dir: bin_dir.to_owned(),
            subnet_file: paths::SUBNET_FILE.into(),
            network: NetworkName::new(&config.cni.name)?,
            leases: LeaseSettings::of(config),
        })
    }

    /// `None` if the layout is unknown.
    pub fn lease_store(&self) -> Option<ipam::LeaseStore> {
        match self.leases.ownership {
            LeaseOwnership::Native | LeaseOwnership::Shared => Some(ipam::LeaseStore::new(
                &self.leases.dir,
                &self.network,
                LOCK_TIMEOUT,
            )),
            LeaseOwnership::Unknown => None,
        }
    }
}

pub(crate) fn ipam_plugin(config: &Config) -> &str {
    let default = match config.cni.mode {
        Mode::Native => OWN_IPAM,
        Mode::Bridge => HOST_LOCAL,
    };
    config.ipam.kind.as_deref().unwrap_or(default)
}

/// Whether the layout of its lease store is known.
pub(crate) fn has_known_store(plugin: &str) -> bool {
    [OWN_IPAM, HOST_LOCAL].contains(&plugin)
}

/// The lease directory of a plugin.
pub(crate) fn lease_dir(plugin: &str, data_dir: Option<&Path>, network: &str) -> PathBuf {
    match plugin {
        OWN_IPAM => data_dir.unwrap_or(Path::new(OWN_LEASES)).to_owned(),
        // host-local adds a directory with the name of the network.
        _ => data_dir
            .unwrap_or(Path::new(HOST_LOCAL_LEASES))
            .join(network),
    }
}

impl LeaseSettings {
    fn of(config: &Config) -> Self {
        let mode = config.cni.mode;
        let kind = ipam_plugin(config);
        let ownership = match (kind, mode) {
            (OWN_IPAM, Mode::Native) => LeaseOwnership::Native,
            (OWN_IPAM, Mode::Bridge) | (HOST_LOCAL, _) => LeaseOwnership::Shared,
            _ => LeaseOwnership::Unknown,
        };
        Self {
            ownership,
            dir: lease_dir(kind, config.ipam.data_dir.as_deref(), &config.cni.name),
            first: config.ipam.range_start,
            last: config.ipam.range_end,
            gateway: config.ipam.gateway,
        }
    }
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    #[rstest]
    #[case(
        Mode::Native,
        None,
        LeaseOwnership::Native,
        "/var/lib/cni/networks/headcni"
    )]
    #[case(
        Mode::Bridge,
        None,
        LeaseOwnership::Shared,
        "/var/lib/cni/networks/headcni"
    )]
    #[case(
        Mode::Native,
        Some("host-local"),
        LeaseOwnership::Shared,
        "/var/lib/cni/networks/headcni"
    )]
    #[case(
        Mode::Bridge,
        Some("headcni-ipam"),
        LeaseOwnership::Shared,
        "/var/lib/cni/networks/headcni"
    )]
    fn the_store_of_leases_follows_from_mode_and_plugin(
        #[case] mode: Mode,
        #[case] kind: Option<&str>,
        #[case] ownership: LeaseOwnership,
        #[case] dir: &str,
    ) {
        let mut config = Config::default();
        config.cni.mode = mode;
        config.ipam.kind = kind.map(str::to_owned);
        let paths = PodPaths::of(&config, Path::new("/opt/cni/bin")).unwrap();
        assert_eq!(paths.leases.ownership, ownership);
        assert_eq!(paths.lease_store().unwrap().dir(), Path::new(dir));
    }

    #[test]
    fn host_local_makes_a_directory_of_its_own_in_one_of_the_same_name() {
        let dir = tempfile::tempdir().unwrap();
        let data_dir = dir.path().join("headcni");
        let mut config = Config::default();
        config.ipam.data_dir = Some(data_dir.clone());
        let store = |config: &Config| {
            let paths = PodPaths::of(config, Path::new("/opt/cni/bin")).unwrap();
            paths.lease_store().unwrap().dir().to_owned()
        };
        assert_eq!(store(&config), data_dir);
        config.ipam.kind = Some("host-local".to_owned());
        assert_eq!(store(&config), data_dir.join("headcni"));
    }

    #[test]
    fn a_plugin_that_we_do_not_know_has_no_store_for_us() {
        let mut config = Config::default();
        config.ipam.kind = Some("dhcp".to_owned());
        let paths = PodPaths::of(&config, Path::new("/opt/cni/bin")).unwrap();
        assert!(paths.lease_store().is_none());
    }
}
