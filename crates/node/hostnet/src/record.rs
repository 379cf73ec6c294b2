//! `network.json`: previous values to restore, and managed objects that may have to be removed.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use ipnet::IpNet;
use net::ethtool::Switch;
use net::{Link, NetError};
use node_core::StateFile;
use ruleset::{Fingerprint, Table};
use serde::{Deserialize, Serialize};

use super::{Action, Desired, HostPaths, HostnetError, Observed, Sockets};

/// The file has a few hundred bytes.
const MAX_BYTES: u64 = 1 << 20;

/// Sysctls, features, found bridges and fingerprints are valid for one boot of the kernel.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct HostnetRecord {
    boot: String,
    /// Values before our change, by names relative to `/proc/sys/net`.
    pub(super) sysctls: BTreeMap<String, String>,
    /// Link features before our change, by link name.
    pub(super) features: BTreeMap<String, BTreeMap<String, bool>>,
    /// Gateways that may be on `lo` because of us.
    pub(super) gateways: BTreeSet<IpAddr>,
    /// Prefixes that may be in the sets of both tables because of us.
    pub(super) cluster: BTreeSet<IpNet>,
    /// Bridges that pods may be on.
    pub(super) bridges: BTreeSet<String>,
    /// Those of them that existed before us, so that foreign pods may be on them. After a boot they are
    /// ours: our CNI configuration creates them then.
    pub(super) found_bridges: BTreeSet<String>,
    /// Fingerprints of the tables as we wrote them.
    tables: BTreeMap<String, String>,
}

pub(super) fn load(paths: &HostPaths) -> StateFile<HostnetRecord> {
    StateFile::load(paths.state_dir.join("network.json"), MAX_BYTES)
}

pub(super) fn save(
    file: &mut StateFile<HostnetRecord>,
    record: &HostnetRecord,
) -> Result<(), HostnetError> {
    let error = HostnetError::file("write", file.path());
    file.update(|saved| saved.clone_from(record)).map_err(error)
}

impl HostnetRecord {
    /// The record without values of an earlier boot.
    pub(super) fn of_this_boot(&self) -> Self {
        let mut record = self.clone();
        let boot = net::sysctl::boot_id().unwrap_or_default();
        if record.boot != boot {
            record.boot = boot;
            record.sysctls.clear();
            record.features.clear();
            record.tables.clear();
            record.found_bridges.clear();
        }
        record
    }

    /// Adds what is about to change.
    pub(super) fn add_planned(
        &mut self,
        desired: &Desired,
        observed: &Observed,
        actions: &[Action],
    ) {
        for action in actions {
            match action {
                Action::SetSysctl { name, found, .. } => {
                    self.sysctls
                        .entry(name.clone())
                        .or_insert_with(|| found.clone());
                }
                Action::SetFeature {
                    name,
                    feature,
                    switch,
                    ..
                } => {
                    let of_link = self.features.entry(name.clone()).or_default();
                    let was_on = *switch == Switch::Off;
                    of_link.entry(feature.clone()).or_insert(was_on);
                }
                _ => {}
            }
        }
        self.gateways.extend(&desired.gateways);
        self.cluster.extend(&desired.cluster);
        for name in &desired.contents.bridges {
            let is_bridge = |link: &Link| link.name == *name && link.kind == "bridge";
            if self.bridges.insert(name.clone()) && observed.links.iter().any(is_bridge) {
                self.found_bridges.insert(name.clone());
            }
        }
    }

    /// Drops what was removed from the node.
    pub(super) fn drop_undesired(&mut self, desired: &Desired) {
        self.gateways.retain(|one| desired.gateways.contains(one));
        self.cluster.retain(|one| desired.cluster.contains(one));
        if !desired.has_tuned_links() {
            self.features.clear();
        }
    }

    pub(super) fn update_fingerprints(
        &mut self,
        sockets: &Sockets,
        actions: &[Action],
    ) -> Result<(), NetError> {
        for table in actions.iter().filter_map(Action::replaced_table) {
            // A table that changed in the meantime has none, and the next reconcile replaces it again.
            match ruleset::fresh_fingerprint(&sockets.netfilter, table)? {
                Some(fingerprint) => self
                    .tables
                    .insert(table.name().to_owned(), fingerprint.to_string()),
                None => self.tables.remove(table.name()),
            };
        }
        Ok(())
    }

    pub(super) fn fingerprint_of(&self, table: Table) -> Option<Fingerprint> {
        self.tables.get(table.name()).map(Fingerprint::from_text)
    }
}
