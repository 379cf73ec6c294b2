//! What has to be known again after a restart: how things were before us, and what of ours may have
//! to be taken away.
//!
//! It is one small file, read by every pass and written when it changes. Sysctls, features of links,
//! bridges of others and the marks of tables count for one boot of the kernel only.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File};
use std::io::{self, Read};
use std::net::IpAddr;
use std::path::PathBuf;

use ipnet::IpNet;
use net::ethtool::Switch;
use net::{Link, NetError};
use ruleset::{Fingerprint, Table};
use serde::{Deserialize, Serialize};

use super::{Action, Desired, NetworkError, Observed, Place, Sockets};
use node_core::files::write_atomic;

/// It has a few hundred bytes, unless it is somebody else's.
const MAX_LEN: u64 = 1 << 20;

/// What has to be known again after a restart.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Memory {
    boot: String,
    /// Values that we changed, as they were before, by their names below `/proc/sys/net`.
    pub(super) sysctls: BTreeMap<String, String>,
    /// Features of links that we switched, as they were before, by the links' names.
    pub(super) features: BTreeMap<String, BTreeMap<String, bool>>,
    /// Gateways that we may have put on `lo`.
    pub(super) gateways: BTreeSet<IpAddr>,
    /// Networks that we may have added to the sets of both tables.
    pub(super) cluster: BTreeSet<IpNet>,
    /// Bridges that pods may be on.
    pub(super) bridges: BTreeSet<String>,
    /// Those of them that were there before us, so that pods of others may be on them, too. After a boot
    /// they are ours: whoever makes them then does so by our configuration.
    pub(super) found_bridges: BTreeSet<String>,
    /// How the tables looked when we had put them in place.
    tables: BTreeMap<String, String>,
    /// What is on disk.
    #[serde(skip)]
    saved: Option<Box<Memory>>,
}

impl Memory {
    /// What is on disk. A file that can't be read is as good as none: what it would have said is lost
    /// either way, and the network must be in place all the same.
    pub(super) fn load(place: &Place) -> Self {
        let path = path(place);
        let read = || -> io::Result<Option<Self>> {
            let file = match File::open(&path) {
                Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
                file => file?,
            };
            let mut text = String::new();
            file.take(MAX_LEN).read_to_string(&mut text)?;
            Ok(serde_json::from_str(&text).map(Some)?)
        };
        let mut memory = read().unwrap_or_else(|error| {
            tracing::warn!(path = %path.display(), %error, "what is known of earlier is lost");
            None
        });
        let saved = memory.clone().map(Box::new);
        let mut memory = memory.take().unwrap_or_default();
        memory.saved = saved;
        let boot = net::sysctl::boot_id().unwrap_or_default();
        if memory.boot != boot {
            // This boot's values are other ones, and so are the numbers of its tables.
            memory.boot = boot;
            memory.sysctls.clear();
            memory.features.clear();
            memory.tables.clear();
            memory.found_bridges.clear();
        }
        memory
    }

    /// Notes what is about to be changed.
    pub(super) fn note(&mut self, desired: &Desired, observed: &Observed, actions: &[Action]) {
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
            let is_there = |link: &Link| link.name == *name && link.kind == "bridge";
            if self.bridges.insert(name.clone()) && observed.links.iter().any(is_there) {
                self.found_bridges.insert(name.clone());
            }
        }
    }

    /// Forgets what was taken away.
    pub(super) fn forget_old(&mut self, desired: &Desired) {
        self.gateways.retain(|one| desired.gateways.contains(one));
        self.cluster.retain(|one| desired.cluster.contains(one));
        if !desired.has_tuned_links() {
            self.features.clear();
        }
    }

    /// Notes how the tables look now that they were put in place.
    pub(super) fn note_tables(
        &mut self,
        sockets: &Sockets,
        actions: &[Action],
    ) -> Result<(), NetError> {
        for action in actions {
            let Some(table) = action.table() else {
                continue;
            };
            // One that somebody was at in the meantime is put in place again by the next pass.
            match ruleset::fresh_fingerprint(&sockets.netfilter, table)? {
                Some(mark) => self
                    .tables
                    .insert(table.name().to_owned(), mark.to_string()),
                None => self.tables.remove(table.name()),
            };
        }
        Ok(())
    }

    /// How a table looked when we had put it in place.
    pub(super) fn mark_of(&self, table: Table) -> Option<Fingerprint> {
        self.tables.get(table.name()).map(Fingerprint::from_text)
    }

    pub(super) fn save(&mut self, place: &Place) -> Result<(), NetworkError> {
        let mut unsaved = self.clone();
        unsaved.saved = None;
        if self.saved.as_deref() == Some(&unsaved) {
            return Ok(());
        }
        let path = path(place);
        let text = serde_json::to_string_pretty(self).unwrap_or_default();
        write_atomic(&path, text.as_bytes(), 0o600).map_err(|source| NetworkError::File {
            attempt: "write",
            path,
            source,
        })?;
        self.saved = Some(Box::new(unsaved));
        Ok(())
    }

    /// Forgets everything.
    pub(super) fn erase(place: &Place) -> Result<(), NetworkError> {
        let path = path(place);
        match fs::remove_file(&path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(NetworkError::File {
                attempt: "remove",
                path,
                source: error,
            }),
            _ => Ok(()),
        }
    }
}

fn path(place: &Place) -> PathBuf {
    place.state_dir.join("network.json")
}
