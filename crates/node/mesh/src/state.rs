//! The state file `mesh.json`: whether the mesh ever served this node, which advertised routes are ours,
//! and the host tailscaled's original prefs.

use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};

use ipnet::IpNet;
use serde::{Deserialize, Serialize};
use tokio::task::spawn_blocking;

use node_core::files::{read_small, write_atomic};
use node_core::{MeshLink, MeshState};

const MAX_LEN: u64 = 1 << 20;
const NAME: &str = "mesh.json";
/// A node has a few routes, and extra host routes of pods that come and go.
const MAX_ROUTES: usize = 1024;
/// Former Headscale IDs of this node.
const MAX_IDS: usize = 8;
/// Routes of peers that are offline.
const MAX_OFFLINE: usize = 1024;

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct MeshRecord {
    /// Peers have sent packets for this node's pods. From then on pods start even without the mesh.
    pub has_served: bool,
    /// Our ID in Headscale: on uninstall, tailscaled may not run any more.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub id: Option<u64>,
    /// Headscale IDs of the managed tailscaled, the latest last.
    pub numbers: Vec<u64>,
    /// Routes that the daemon may have advertised and approved.
    pub routes: Vec<IpNet>,
    /// Routes that this node has served: a peer that advertises one came later.
    pub served: Vec<IpNet>,
    /// The last known mesh interface, used until it is observed again: a daemon restart must not drop a
    /// packet.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub link: Option<MeshLink>,
    /// Accepted peer routes, likewise.
    pub remotes: Vec<IpNet>,
    /// Shadowed prefixes, likewise.
    pub shadowed: Vec<IpNet>,
    /// Routes of peers, also of some that are offline, the oldest first.
    pub known: Vec<IpNet>,
    /// Tailnet addresses of peers.
    pub members: Vec<Ipv4Addr>,
    /// Extra host routes.
    pub outside: Vec<IpNet>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub host: Option<HostPrefs>,
    /// The managed tailscaled is in its own netns, and stays there until the configuration changes.
    pub is_apart: bool,
}

impl MeshRecord {
    /// Removes obsolete routes, and the oldest of too many, but no desired one.
    pub fn forget_routes(&mut self, desired: &[IpNet], is_over: impl Fn(&IpNet) -> bool) {
        self.routes.retain(|route| !is_over(route));
        let mut excess = self.routes.len().saturating_sub(MAX_ROUTES);
        self.routes.retain(|route| {
            let is_too_much = excess > 0 && !desired.contains(route);
            excess -= usize::from(is_too_much);
            !is_too_much
        });
    }

    pub fn note_number(&mut self, number: u64) {
        if self.numbers.last() != Some(&number) {
            self.numbers.retain(|one| *one != number);
            self.numbers.push(number);
            let old = self.numbers.len().saturating_sub(MAX_IDS);
            self.numbers.drain(..old);
        }
    }

    /// Records the accepted peer routes. A route keeps its age while its node is offline, so that no other
    /// peer gets it during a reboot.
    pub fn meet(&mut self, remotes: Vec<IpNet>) {
        let old: BTreeSet<IpNet> = self.known.iter().copied().collect();
        let new = remotes.iter().filter(|network| !old.contains(network));
        self.known.extend(new);
        let present: BTreeSet<&IpNet> = remotes.iter().collect();
        let mut room = MAX_OFFLINE;
        self.known.retain(|network| {
            // A pod that is gone does not come back.
            let is_pods = network.prefix_len() == network.max_prefix_len();
            let is_away = !present.contains(network);
            let stays = !is_away || (room > 0 && !is_pods);
            room -= usize::from(is_away && stays);
            stays
        });
        self.remotes = remotes;
    }

    /// The JSON, without what can be observed again if it would be too long to read.
    fn text(&self) -> serde_json::Result<String> {
        let fits = |text: &String| text.len() as u64 <= MAX_LEN;
        let whole = serde_json::to_string_pretty(self)?;
        if fits(&whole) {
            return Ok(whole);
        }
        let mut less = self.clone();
        less.known.clear();
        let text = serde_json::to_string_pretty(&less)?;
        if fits(&text) {
            return Ok(text);
        }
        less.remotes.clear();
        less.shadowed.clear();
        serde_json::to_string_pretty(&less)
    }

    pub fn view(&self) -> MeshState {
        MeshState {
            link: self.link.clone(),
            peer_routes: self.remotes.clone(),
            shadowed: self.shadowed.clone(),
            peer_ips: self.members.clone(),
            extra_host_routes: self.outside.clone(),
            has_served: self.has_served,
            tailnet_ips: Vec::new(),
        }
    }
}

/// The host tailscaled's prefs before the daemon changed them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct HostPrefs {
    pub accepts_routes: bool,
    pub keeps_source: bool,
    /// None if the pref was never set.
    pub passes_stateless: Option<bool>,
}

#[derive(Debug)]
pub struct MeshStateFile {
    path: PathBuf,
    memory: MeshRecord,
}

impl MeshStateFile {
    /// An unreadable file counts as missing: pods must start all the same.
    pub fn load(state_dir: &Path) -> Self {
        let path = state_dir.join(NAME);
        let mut memory: MeshRecord = match read_small(&path, MAX_LEN) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => MeshRecord::default(),
            Err(error) => lost(&path, &error),
            Ok(bytes) => serde_json::from_slice(&bytes).unwrap_or_else(|error| lost(&path, &error)),
        };
        // They were left out if the file was too long.
        if memory.known.is_empty() {
            memory.known.clone_from(&memory.remotes);
        }
        Self { path, memory }
    }

    pub fn memory(&self) -> &MeshRecord {
        &self.memory
    }

    /// Writes the file if the record changes. Blocks until it is on disk.
    pub fn change(&mut self, change: impl FnOnce(&mut MeshRecord)) -> io::Result<()> {
        let Some(new) = self.changed(change) else {
            return Ok(());
        };
        write(&self.path, &new)?;
        self.memory = new;
        Ok(())
    }

    /// Like [`change`](Self::change), without blocking: a disk may take seconds.
    pub async fn change_async(&mut self, change: impl FnOnce(&mut MeshRecord)) -> io::Result<()> {
        let Some(new) = self.changed(change) else {
            return Ok(());
        };
        let path = self.path.clone();
        let writing = spawn_blocking(move || write(&path, &new).map(|()| new));
        self.memory = writing.await.map_err(io::Error::other)??;
        Ok(())
    }

    fn changed(&self, change: impl FnOnce(&mut MeshRecord)) -> Option<MeshRecord> {
        let mut new = self.memory.clone();
        change(&mut new);
        (new != self.memory).then_some(new)
    }

    pub fn erase(self) -> io::Result<()> {
        match fs::remove_file(&self.path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
            _ => Ok(()),
        }
    }
}

fn write(path: &Path, memory: &MeshRecord) -> io::Result<()> {
    write_atomic(path, memory.text()?.as_bytes(), 0o600)
}

fn lost(path: &Path, error: &dyn std::error::Error) -> MeshRecord {
    tracing::warn!(path = %path.display(), %error, "failed to read the mesh state file, starting without it");
    MeshRecord::default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn former_ids_are_recorded_the_latest_last() {
        let mut memory = MeshRecord::default();
        for number in [1, 1, 2, 1, 3] {
            memory.note_number(number);
        }
        assert_eq!(memory.numbers, [2, 1, 3]);
        (10..20).for_each(|number| memory.note_number(number));
        assert_eq!(memory.numbers, (12..20).collect::<Vec<u64>>());
    }

    #[test]
    fn a_record_survives_a_reload() {
        let dir = tempfile::tempdir().unwrap();
        let mut kept = MeshStateFile::load(dir.path());
        assert_eq!(kept.memory(), &MeshRecord::default());
        kept.change(|memory| {
            memory.has_served = true;
            memory.routes = vec!["10.244.1.0/24".parse().unwrap()];
        })
        .unwrap();
        let again = MeshStateFile::load(dir.path());
        assert_eq!(again.memory(), kept.memory());
        again.erase().unwrap();
        assert_eq!(
            MeshStateFile::load(dir.path()).memory(),
            &MeshRecord::default()
        );
    }

    #[tokio::test]
    async fn an_async_change_survives_a_reload() {
        let dir = tempfile::tempdir().unwrap();
        let state_dir = dir.path().join("state");
        let mut kept = MeshStateFile::load(&state_dir);
        kept.change_async(|_| ()).await.unwrap();
        assert!(!state_dir.exists());
        let change = kept.change_async(|memory| memory.has_served = true);
        change.await.unwrap();
        assert!(kept.memory().has_served);
        assert_eq!(MeshStateFile::load(&state_dir).memory(), kept.memory());

        // What is not on the disk is not known: it has to be written the next time.
        fs::remove_dir_all(&state_dir).unwrap();
        write_atomic(&state_dir, b"in the way", 0o600).unwrap();
        let change = kept.change_async(|memory| memory.has_served = false);
        change.await.unwrap_err();
        assert!(kept.memory().has_served);
    }

    #[test]
    fn the_oldest_of_too_many_routes_are_removed_but_no_desired_one() {
        let route = |n: usize| -> IpNet {
            let [.., high, low] = n.to_be_bytes();
            format!("10.9.{high}.{low}/32").parse().unwrap()
        };
        let mut memory = MeshRecord {
            routes: (0..MAX_ROUTES + 3).map(route).collect(),
            ..MeshRecord::default()
        };
        memory.forget_routes(&[route(0), route(2)], |over| *over == route(7));
        let kept = |n| memory.routes.contains(&route(n));
        assert_eq!(memory.routes.len(), MAX_ROUTES);
        assert_eq!(
            [0, 1, 2, 3, 4, 7].map(kept),
            [true, false, true, false, true, false]
        );
    }

    fn nets(texts: &[&str]) -> Vec<IpNet> {
        texts.iter().map(|text| text.parse().unwrap()).collect()
    }

    #[test]
    fn a_route_keeps_its_age_while_its_node_is_offline() {
        let [b, c, pod, around] = [
            "10.244.2.0/24",
            "10.244.3.0/24",
            "10.244.9.7/32",
            "10.244.0.0/17",
        ];
        let mut memory = MeshRecord::default();
        let mut meet = |remotes: &[&str]| {
            memory.meet(nets(remotes));
            assert_eq!(memory.remotes, nets(remotes));
            memory.known.clone()
        };
        assert_eq!(meet(&[b, pod]), nets(&[b, pod]));
        assert_eq!(meet(&[c]), nets(&[b, c]));
        assert_eq!(meet(&[around]), nets(&[b, c, around]));
        assert_eq!(meet(&[b, c]), nets(&[b, c, around]));
    }

    #[test]
    fn the_oldest_routes_of_offline_peers_are_kept() {
        let network = |n: usize| -> IpNet { format!("fd00:{n:x}::/64").parse().unwrap() };
        let mut memory = MeshRecord::default();
        memory.meet((0..=MAX_OFFLINE).map(network).collect());
        memory.meet(vec![network(7)]);
        assert_eq!(memory.known.len(), MAX_OFFLINE + 1);
        memory.meet(vec![network(MAX_OFFLINE + 1)]);
        let is_known = |n| memory.known.contains(&network(n));
        assert_eq!(
            [0, 7, MAX_OFFLINE - 1, MAX_OFFLINE, MAX_OFFLINE + 1].map(is_known),
            [true, true, true, false, true]
        );
    }

    #[test]
    fn a_record_without_ages_uses_the_order_of_its_routes() {
        let dir = tempfile::tempdir().unwrap();
        let older = br#"{"hasServed": true, "routes": [], "remotes": ["10.244.2.0/24"]}"#;
        write_atomic(&dir.path().join(NAME), older, 0o600).unwrap();
        let kept = MeshStateFile::load(dir.path());
        assert!(kept.memory().has_served);
        assert_eq!(kept.memory().known, nets(&["10.244.2.0/24"]));
    }

    #[test]
    fn a_record_that_is_too_long_is_written_without_observable_parts() {
        let dir = tempfile::tempdir().unwrap();
        let many = |count: u32| -> Vec<IpNet> {
            let network = |n: u32| format!("fd00:244:{:x}:{:x}::/64", n >> 16, n & 0xffff);
            let all = (0..count).map(|n| network(n).parse().unwrap());
            all.collect()
        };
        let mut kept = MeshStateFile::load(dir.path());
        // As many as fit once, and as many as don't.
        for (count, are_kept) in [(20_000, true), (100_000, false)] {
            kept.change(|memory| {
                memory.has_served = true;
                memory.routes = nets(&["10.244.1.0/24"]);
                memory.meet(many(count));
                memory.shadowed = nets(&["fd00:244::9/128"]);
            })
            .unwrap();
            assert_eq!(kept.memory().remotes.len(), many(count).len());
            let again = MeshStateFile::load(dir.path());
            assert!(again.memory().has_served);
            assert_eq!(again.memory().routes, nets(&["10.244.1.0/24"]));
            assert_eq!(again.memory().remotes.is_empty(), !are_kept);
            assert_eq!(again.memory().shadowed.is_empty(), !are_kept);
            assert_eq!(again.memory().known, again.memory().remotes);
        }
    }

    #[test]
    fn a_torn_file_counts_as_missing() {
        let dir = tempfile::tempdir().unwrap();
        write_atomic(&dir.path().join(NAME), b"{\"hasServed\": tr", 0o600).unwrap();
        let mut kept = MeshStateFile::load(dir.path());
        assert_eq!(kept.memory(), &MeshRecord::default());
        kept.change(|memory| memory.has_served = true).unwrap();
        assert!(MeshStateFile::load(dir.path()).memory().has_served);
    }

    #[test]
    fn an_unchanged_record_is_not_written() {
        let dir = tempfile::tempdir().unwrap();
        let mut kept = MeshStateFile::load(dir.path());
        kept.change(|_| ()).unwrap();
        assert!(!dir.path().join(NAME).exists());
    }
}
