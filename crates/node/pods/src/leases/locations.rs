//! `leases.json`: the lease stores that pods of this node may use.
//!
//! It has one entry, and a second one during a change. Without a readable file, the installed conflist
//! has the location.

use std::io;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::{LeaseStoreLocation, LeasesError, PodCount, check_users};
use node_config::Dirs;
use node_core::files;

const FILE: &str = "leases.json";
const MODE: u32 = 0o600;
/// Either file has a few hundred bytes.
const MAX_BYTES: u64 = 1 << 20;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LeaseStoreLocations {
    path: PathBuf,
    locations: Vec<LeaseStoreLocation>,
}

#[derive(Serialize, Deserialize)]
struct Contents {
    locations: Vec<LeaseStoreLocation>,
}

impl LeaseStoreLocations {
    /// Empty on a new node.
    pub fn load(dirs: &Dirs) -> Self {
        let path = dirs.state_dir.join(FILE);
        let locations = match read(&path) {
            Ok(locations) => locations,
            Err(error) if error.kind() == io::ErrorKind::NotFound => installed(&dirs.conflist()),
            Err(error) => {
                tracing::warn!(
                    path = %path.display(), %error,
                    "ignoring a damaged state file; using the installed conflist"
                );
                installed(&dirs.conflist())
            }
        };
        Self { path, locations }
    }

    /// Fails while pods use another store.
    pub fn check(
        &self,
        now: &LeaseStoreLocation,
        count: impl Fn(&LeaseStoreLocation) -> PodCount,
    ) -> Result<(), LeasesError> {
        now.network()?;
        let others = self
            .locations
            .iter()
            .filter(|location| !location.is_same_store(now));
        check_users(
            now,
            others.map(|location| (location.clone(), count(location))),
        )
    }

    /// Call it before the conflist is written.
    pub fn add(&mut self, now: &LeaseStoreLocation) -> Result<(), LeasesError> {
        match self
            .locations
            .iter_mut()
            .find(|location| location.is_same_store(now))
        {
            Some(location) => {
                let mut bridges = std::mem::take(&mut location.bridges);
                *location = now.clone();
                location.bridges.append(&mut bridges);
            }
            None => self.locations.push(now.clone()),
        }
        self.save()
    }

    /// Call it after the conflist is written. A store with a last-moment lease stays.
    pub fn forget_unused(
        &mut self,
        now: &LeaseStoreLocation,
        count: impl Fn(&LeaseStoreLocation) -> PodCount,
    ) -> Result<(), LeasesError> {
        self.locations
            .retain(|location| location.is_same_store(now) || count(location) != Ok(0));
        self.save()
    }

    fn save(&self) -> Result<(), LeasesError> {
        let contents = Contents {
            locations: self.locations.clone(),
        };
        let failed = |source| LeasesError::Write {
            path: self.path.clone(),
            source,
        };
        let mut text =
            serde_json::to_vec_pretty(&contents).map_err(|error| failed(error.into()))?;
        text.push(b'\n');
        files::ensure_file(&self.path, &text, MODE).map_err(failed)?;
        Ok(())
    }
}

fn read(path: &Path) -> io::Result<Vec<LeaseStoreLocation>> {
    let text = files::read_small(path, MAX_BYTES)?;
    let contents: Contents = serde_json::from_slice(&text)?;
    if let Some(error) = contents
        .locations
        .iter()
        .find_map(|location| location.network().err())
    {
        return Err(io::Error::other(error));
    }
    Ok(contents.locations)
}

fn installed(conflist: &Path) -> Vec<LeaseStoreLocation> {
    let text = files::read_small(conflist, MAX_BYTES).unwrap_or_default();
    let conflist = serde_json::from_slice(&text).unwrap_or_default();
    LeaseStoreLocation::of_conflist(&conflist)
        .into_iter()
        .collect()
}

#[cfg(test)]
mod tests {
    use std::fs;

    use rstest::rstest;
    use tempfile::{TempDir, tempdir};

    use super::*;
    use node_config::{Cni, Config};

    fn location(name: &str) -> LeaseStoreLocation {
        let mut config = Config::default();
        config.cni.name = name.to_owned();
        LeaseStoreLocation::of(&config)
    }

    fn node() -> (TempDir, Dirs) {
        let root = tempdir().unwrap();
        let dirs = Dirs::locate(&Cni::default(), root.path());
        (root, dirs)
    }

    fn pods(count: usize) -> impl Fn(&LeaseStoreLocation) -> PodCount {
        move |_| Ok(count)
    }

    #[test]
    fn the_lease_store_changes_only_without_users() {
        let (_root, dirs) = node();
        let mut first = LeaseStoreLocations::load(&dirs);
        first.check(&location("a"), pods(1)).unwrap();
        first.add(&location("a")).unwrap();
        first.forget_unused(&location("a"), pods(1)).unwrap();

        let mut later = LeaseStoreLocations::load(&dirs);
        assert_eq!(later, first);
        later.check(&location("a"), pods(1)).unwrap();
        later.check(&location("b"), pods(1)).unwrap_err();
        later.check(&location("b"), pods(0)).unwrap();
        later.add(&location("b")).unwrap();
        // A daemon that is killed here knows both afterwards.
        assert_eq!(
            LeaseStoreLocations::load(&dirs).locations,
            [location("a"), location("b")]
        );
        later.forget_unused(&location("b"), pods(1)).unwrap();
        assert_eq!(
            later.locations,
            [location("a"), location("b")],
            "a last-moment lease"
        );
        later.forget_unused(&location("b"), pods(0)).unwrap();
        assert_eq!(LeaseStoreLocations::load(&dirs).locations, [location("b")]);
    }

    #[test]
    fn all_former_bridges_are_on_record() {
        let (_root, dirs) = node();
        let mut known = LeaseStoreLocations::load(&dirs);
        let mut config = Config::default();
        for bridge in ["br1", "br2"] {
            config.cni.bridge.name = bridge.to_owned();
            known.add(&LeaseStoreLocation::of(&config)).unwrap();
        }
        let bridges = &LeaseStoreLocations::load(&dirs).locations[0].bridges;
        assert_eq!(bridges.len(), 2, "{bridges:?}");
    }

    #[rstest]
    #[case::lost("")]
    #[case::torn("{\"locations\":[{\"netw")]
    #[case::foreign("[]")]
    #[case::invalid(
        "{\"locations\":[{\"network\":\"../x\",\"plugin\":\"host-local\",\"dir\":\"/\"}]}"
    )]
    fn without_the_file_the_installed_conflist_counts(#[case] text: &str) {
        let (_root, dirs) = node();
        fs::create_dir_all(&dirs.state_dir).unwrap();
        if !text.is_empty() {
            files::write_atomic(&dirs.state_dir.join(FILE), text.as_bytes(), MODE).unwrap();
        }
        assert_eq!(LeaseStoreLocations::load(&dirs).locations, []);
        let conflist =
            br#"{"name":"a","plugins":[{"type":"headcni","ipam":{"type":"headcni-ipam"}}]}"#;
        files::write_atomic(&dirs.conflist(), conflist, MODE).unwrap();
        let known = LeaseStoreLocations::load(&dirs);
        known.check(&location("a"), pods(1)).unwrap();
        known.check(&location("b"), pods(1)).unwrap_err();
    }
}
