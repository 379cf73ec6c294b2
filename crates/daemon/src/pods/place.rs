//! Where a node keeps what its pods have: records, leases, plugins.

use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use api::paths;
use cni::NetworkName;

use crate::config::{Config, Mode};

/// How long others may have a lease store before we let it be for now.
const PATIENCE: Duration = Duration::from_secs(2);

const OWN_IPAM: &str = "headcni-ipam";
const OWN_LEASES: &str = "/var/lib/cni/networks/headcni";
const HOST_LOCAL: &str = "host-local";
const HOST_LOCAL_LEASES: &str = "/var/lib/cni/networks";

/// Where things are on this node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Place {
    /// The plugin's records.
    pub data_dir: PathBuf,
    /// The plugins: `headcni` is executed from here.
    pub bin_dir: PathBuf,
    /// What this node's pods get.
    pub subnet_file: PathBuf,
    /// The network that is ours by the configuration.
    pub network: NetworkName,
    /// The leases of that network.
    pub leases: Leases,
}

/// The leases of our network.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Leases {
    /// Who keeps them.
    pub keeper: Keeper,
    /// `dataDir` of the IPAM plugin.
    pub dir: PathBuf,
    /// The first address to be given, if not all are.
    pub first: Option<IpAddr>,
    /// The last one.
    pub last: Option<IpAddr>,
    /// The gateway, if it isn't the network's first address.
    pub gateway: Option<IpAddr>,
}

/// Who keeps the leases of our network.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Keeper {
    /// Our own datapath, with our own store: every lease has a record and a link.
    Native,
    /// A plugin that others may use as well, with a store of the same form.
    Shared,
    /// A plugin whose store we don't know.
    Elsewhere,
}

impl Place {
    /// What a configuration says; `bin_dir` is where runtimes look for plugins.
    pub fn of(config: &Config, bin_dir: &Path) -> Result<Self, cni::Error> {
        Ok(Self {
            data_dir: paths::PLUGIN_DATA_DIR.into(),
            bin_dir: bin_dir.to_owned(),
            subnet_file: paths::SUBNET_FILE.into(),
            network: NetworkName::new(&config.cni.name)?,
            leases: Leases::of(config),
        })
    }

    /// The store of our network's leases, if it is of a form that we know.
    pub fn lease_store(&self) -> Option<ipam::Store> {
        match self.leases.keeper {
            Keeper::Native | Keeper::Shared => {
                Some(ipam::Store::new(&self.leases.dir, &self.network, PATIENCE))
            }
            Keeper::Elsewhere => None,
        }
    }
}

impl Leases {
    fn of(config: &Config) -> Self {
        let mode = config.cni.mode;
        let kind = config.ipam.kind.as_deref().unwrap_or(match mode {
            Mode::Native => OWN_IPAM,
            Mode::Bridge => HOST_LOCAL,
        });
        let (keeper, default_dir) = match (kind, mode) {
            (OWN_IPAM, Mode::Native) => (Keeper::Native, OWN_LEASES),
            (OWN_IPAM, Mode::Bridge) => (Keeper::Shared, OWN_LEASES),
            (HOST_LOCAL, _) => (Keeper::Shared, HOST_LOCAL_LEASES),
            _ => (Keeper::Elsewhere, HOST_LOCAL_LEASES),
        };
        let dir = config.ipam.data_dir.clone();
        Self {
            keeper,
            dir: dir.unwrap_or_else(|| default_dir.into()),
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
    #[case(Mode::Native, None, Keeper::Native, "/var/lib/cni/networks/headcni")]
    #[case(Mode::Bridge, None, Keeper::Shared, "/var/lib/cni/networks/headcni")]
    #[case(
        Mode::Native,
        Some("host-local"),
        Keeper::Shared,
        "/var/lib/cni/networks/headcni"
    )]
    #[case(
        Mode::Bridge,
        Some("headcni-ipam"),
        Keeper::Shared,
        "/var/lib/cni/networks/headcni"
    )]
    fn the_store_of_leases_follows_from_mode_and_plugin(
        #[case] mode: Mode,
        #[case] kind: Option<&str>,
        #[case] keeper: Keeper,
        #[case] dir: &str,
    ) {
        let mut config = Config::default();
        config.cni.mode = mode;
        config.ipam.kind = kind.map(str::to_owned);
        let place = Place::of(&config, Path::new("/opt/cni/bin")).unwrap();
        assert_eq!(place.leases.keeper, keeper);
        assert_eq!(place.lease_store().unwrap().dir(), Path::new(dir));
    }

    #[test]
    fn a_plugin_that_we_do_not_know_has_no_store_for_us() {
        let mut config = Config::default();
        config.ipam.kind = Some("dhcp".to_owned());
        let place = Place::of(&config, Path::new("/opt/cni/bin")).unwrap();
        assert!(place.lease_store().is_none());
    }
}
