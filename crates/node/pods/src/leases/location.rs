//! The location of a lease store.

use std::collections::BTreeSet;
use std::fmt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use cni::NetworkName;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::{has_known_store, ipam_plugin, lease_dir};
use node_config::Config;

/// Stores are only read here.
const NO_LOCK_TIMEOUT: Duration = Duration::ZERO;

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct LeaseStoreLocation {
    network: String,
    plugin: String,
    dir: PathBuf,
    /// Bridges of pods with leases there.
    #[serde(default)]
    pub(crate) bridges: BTreeSet<String>,
}

impl LeaseStoreLocation {
    pub fn of(config: &Config) -> Self {
        let (network, plugin) = (config.cni.name.as_str(), ipam_plugin(config));
        Self {
            network: network.to_owned(),
            plugin: plugin.to_owned(),
            dir: lease_dir(plugin, config.ipam.data_dir.as_deref(), network),
            bridges: BTreeSet::from([config.cni.bridge.name.clone()]),
        }
    }

    /// `None` if the conflist is not ours.
    pub(super) fn of_conflist(conflist: &Value) -> Option<Self> {
        let network = conflist["name"].as_str()?;
        let first = conflist["plugins"].get(0)?;
        let plugin = first["ipam"]["type"].as_str()?;
        let data_dir = first["ipam"]["dataDir"].as_str().map(Path::new);
        let bridge = first["bridge"].as_str();
        Some(Self {
            network: network.to_owned(),
            plugin: plugin.to_owned(),
            dir: lease_dir(plugin, data_dir, network),
            bridges: bridge.into_iter().map(str::to_owned).collect(),
        })
    }

    pub(crate) fn network(&self) -> Result<NetworkName, cni::Error> {
        NetworkName::new(&self.network)
    }

    /// `None` if the layout of the store is unknown.
    pub(crate) fn store(&self) -> Option<ipam::LeaseStore> {
        let network = self.network().ok()?;
        let is_known = has_known_store(&self.plugin);
        is_known.then(|| ipam::LeaseStore::new(&self.dir, &network, NO_LOCK_TIMEOUT))
    }

    /// The plugin may differ.
    pub(super) fn is_same_store(&self, other: &Self) -> bool {
        match (self.store(), other.store()) {
            (Some(one), Some(another)) => one.dir() == another.dir(),
            (None, None) => {
                let identity = |location: &Self| {
                    (
                        location.network.clone(),
                        location.plugin.clone(),
                        location.dir.clone(),
                    )
                };
                identity(self) == identity(other)
            }
            _ => false,
        }
    }
}

impl fmt::Display for LeaseStoreLocation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.store() {
            Some(store) => write!(f, "{} ({})", store.dir().display(), self.plugin),
            None => write!(f, "{} of network {}", self.plugin, self.network),
        }
    }
}

#[cfg(test)]
mod tests {
    use rstest::rstest;
    use serde_json::json;

    use super::*;
    use node_config::Mode;

    fn of(edit: impl FnOnce(&mut Config)) -> LeaseStoreLocation {
        let mut config = Config::default();
        edit(&mut config);
        LeaseStoreLocation::of(&config)
    }

    #[rstest]
    #[case::explicit(|config: &mut Config| config.ipam.kind = Some("headcni-ipam".to_owned()), true)]
    #[case::mode(|config: &mut Config| config.cni.mode = Mode::Bridge, true)]
    #[case::layout(|config: &mut Config| config.ipam.kind = Some("host-local".to_owned()), true)]
    #[case::bridge(|config: &mut Config| config.cni.bridge.name = "br0".to_owned(), true)]
    #[case::name(|config: &mut Config| config.cni.name = "other".to_owned(), false)]
    #[case::dir(|config: &mut Config| config.ipam.data_dir = Some("/x".into()), false)]
    #[case::plugin(|config: &mut Config| config.ipam.kind = Some("dhcp".to_owned()), false)]
    fn configurations_with_the_same_lease_files_have_the_same_store(
        #[case] edit: fn(&mut Config),
        #[case] is_same_store: bool,
    ) {
        let (before, now) = (of(|_| ()), of(edit));
        assert_eq!(before.is_same_store(&now), is_same_store, "{before} {now}");
        assert_eq!(now.is_same_store(&before), is_same_store);
    }

    #[test]
    fn a_store_of_unknown_layout_is_identified_by_plugin_and_network() {
        let dhcp = |name: &str| {
            of(|config| {
                config.ipam.kind = Some("dhcp".to_owned());
                config.cni.name = name.to_owned();
            })
        };
        assert!(dhcp("a").is_same_store(&dhcp("a")));
        assert!(!dhcp("a").is_same_store(&dhcp("b")));
    }

    #[test]
    fn a_conflist_has_the_location_of_its_leases() {
        let conflist = json!({ "name": "net", "plugins": [{
            "type": "bridge", "bridge": "br7",
            "ipam": { "type": "host-local", "dataDir": "/leases" },
        }] });
        let location = LeaseStoreLocation::of_conflist(&conflist).unwrap();
        assert_eq!(location.store().unwrap().dir(), Path::new("/leases/net"));
        assert!(location.bridges.contains("br7"));
        let foreign = json!({ "name": "net", "plugins": [{ "type": "flannel" }] });
        assert_eq!(LeaseStoreLocation::of_conflist(&foreign), None);
        assert_eq!(LeaseStoreLocation::of_conflist(&json!([])), None);
    }
}
