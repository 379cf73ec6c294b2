//! One place where leases are.

use std::collections::BTreeSet;
use std::fmt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use cni::NetworkName;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::{has_known_store, ipam_plugin, lease_dir};
use node_config::Config;

/// Stores are looked at here, never locked.
const NO_LOCK_TIMEOUT: Duration = Duration::ZERO;

/// Where leases of one network are.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct LeaseStoreLocation {
    network: String,
    /// The IPAM plugin.
    plugin: String,
    /// Where it keeps them.
    dir: PathBuf,
    /// Bridges that pods with leases there may be on.
    #[serde(default)]
    pub(crate) bridges: BTreeSet<String>,
}

impl LeaseStoreLocation {
    /// Where a configuration puts them.
    pub fn of(config: &Config) -> Self {
        let (network, plugin) = (config.cni.name.as_str(), ipam_plugin(config));
        Self {
            network: network.to_owned(),
            plugin: plugin.to_owned(),
            dir: lease_dir(plugin, config.ipam.data_dir.as_deref(), network),
            bridges: BTreeSet::from([config.cni.bridge.name.clone()]),
        }
    }

    /// Where a CNI configuration of ours puts them; nothing if it is somebody else's.
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

    /// The network's name.
    pub(crate) fn network(&self) -> Result<NetworkName, cni::Error> {
        NetworkName::new(&self.network)
    }

    /// The leases, if they are kept in a form that we know.
    pub(crate) fn store(&self) -> Option<ipam::LeaseStore> {
        let network = self.network().ok()?;
        let is_known = has_known_store(&self.plugin);
        is_known.then(|| ipam::LeaseStore::new(&self.dir, &network, NO_LOCK_TIMEOUT))
    }

    /// Whether leases are in the same place, whoever keeps them.
    pub(super) fn is_same_store(&self, other: &Self) -> bool {
        match (self.store(), other.store()) {
            (Some(one), Some(another)) => one.dir() == another.dir(),
            (None, None) => {
                let paths = |location: &Self| {
                    (
                        location.network.clone(),
                        location.plugin.clone(),
                        location.dir.clone(),
                    )
                };
                paths(self) == paths(other)
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
    #[case::said(|config: &mut Config| config.ipam.kind = Some("headcni-ipam".to_owned()), true)]
    #[case::mode(|config: &mut Config| config.cni.mode = Mode::Bridge, true)]
    #[case::layout(|config: &mut Config| config.ipam.kind = Some("host-local".to_owned()), true)]
    #[case::bridge(|config: &mut Config| config.cni.bridge.name = "br0".to_owned(), true)]
    #[case::name(|config: &mut Config| config.cni.name = "other".to_owned(), false)]
    #[case::dir(|config: &mut Config| config.ipam.data_dir = Some("/x".into()), false)]
    #[case::plugin(|config: &mut Config| config.ipam.kind = Some("dhcp".to_owned()), false)]
    fn what_leads_to_the_same_files_is_the_same_place(
        #[case] edit: fn(&mut Config),
        #[case] is_same_store: bool,
    ) {
        let (before, now) = (of(|_| ()), of(edit));
        assert_eq!(before.is_same_store(&now), is_same_store, "{before} {now}");
        assert_eq!(now.is_same_store(&before), is_same_store);
    }

    #[test]
    fn a_store_of_an_unknown_form_is_known_by_its_plugin_and_network() {
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
    fn a_document_says_where_leases_are() {
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
