//! What has to be known about the mesh after a restart: whether it ever served this node, which
//! networks of the list that a tailscaled advertises are ours, and how the host's was before us.

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

/// It has a few hundred bytes, unless it is somebody else's.
const MAX_LEN: u64 = 1 << 20;
const NAME: &str = "mesh.json";
/// So many networks that may be ours are kept in mind: a node has a few, and some more of pods that
/// are outside of them and come and go.
const MOST_ROUTES: usize = 1024;
/// So many of our own tailscaled's numbers are remembered.
const MOST_NUMBERS: usize = 8;
/// So many networks of nodes that are away are kept in mind.
const MOST_AWAY: usize = 1024;

/// What has to be known again.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct MeshRecord {
    /// Whether packets for this node's pods were ever sent here. From then on pods start whatever
    /// becomes of the mesh.
    pub has_served: bool,
    /// Our number in the server's list: whoever takes us out of it may have no tailscaled left to ask.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub id: Option<u64>,
    /// What the server called our own tailscaled, now and before, the latest last.
    pub numbers: Vec<u64>,
    /// Networks that we may have added to what is advertised and approved.
    pub routes: Vec<IpNet>,
    /// Those of this node's networks that have led here: whoever claims one of them came later.
    pub served: Vec<IpNet>,
    /// How packets got into the mesh, as it was known last. Until it is known again it stays: a
    /// daemon that starts must not cost a packet.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub link: Option<MeshLink>,
    /// The networks of other nodes, likewise.
    pub remotes: Vec<IpNet>,
    /// Parts of them that the mesh would send to somebody else, likewise.
    pub shadowed: Vec<IpNet>,
    /// The networks of other nodes, and of some that are away, the oldest first.
    pub known: Vec<IpNet>,
    /// Addresses of members, likewise.
    pub members: Vec<Ipv4Addr>,
    /// Addresses of this node's pods that are in none of its networks, likewise.
    pub outside: Vec<IpNet>,
    /// How the host's tailscaled was before us.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub host: Option<HostPrefs>,
    /// Whether ours is in a network of its own. It stays there until the configuration says
    /// otherwise.
    pub is_apart: bool,
}

impl MeshRecord {
    /// Forgets networks that are over, and if there are too many, the oldest of the others. None that is
    /// wanted is forgotten.
    pub fn forget_routes(&mut self, desired: &[IpNet], is_over: impl Fn(&IpNet) -> bool) {
        self.routes.retain(|route| !is_over(route));
        let mut excess = self.routes.len().saturating_sub(MOST_ROUTES);
        self.routes.retain(|route| {
            let is_too_much = excess > 0 && !desired.contains(route);
            excess -= usize::from(is_too_much);
            !is_too_much
        });
    }

    /// Notes what the server calls our own tailscaled.
    pub fn note_number(&mut self, number: u64) {
        if self.numbers.last() != Some(&number) {
            self.numbers.retain(|one| *one != number);
            self.numbers.push(number);
            let old = self.numbers.len().saturating_sub(MOST_NUMBERS);
            self.numbers.drain(..old);
        }
    }

    /// Notes which networks lead to other nodes. A node's keeps its age while the node is away: nobody
    /// else gets it by waiting for a reboot.
    pub fn meet(&mut self, remotes: Vec<IpNet>) {
        let old: BTreeSet<IpNet> = self.known.iter().copied().collect();
        let new = remotes.iter().filter(|network| !old.contains(network));
        self.known.extend(new);
        let present: BTreeSet<&IpNet> = remotes.iter().collect();
        let mut room = MOST_AWAY;
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

    /// As much of it as can be read again. What is left out is found out again, the rest is not.
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

    /// What the rest of the daemon goes by until more is known.
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

/// How the host's tailscaled was before us.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct HostPrefs {
    /// Whether it sent packets to the networks of others.
    pub accepts_routes: bool,
    /// Whether packets kept their source.
    pub keeps_source: bool,
    /// Whether packets passed that belonged to no connection it knew of; none if it was never said.
    pub passes_stateless: Option<bool>,
}

/// A memory, and the file that it is in.
#[derive(Debug)]
pub struct MeshStateFile {
    path: PathBuf,
    memory: MeshRecord,
}

impl MeshStateFile {
    /// What is in the directory. A file that can't be read is as good as none: pods must start all
    /// the same.
    pub fn load(state_dir: &Path) -> Self {
        let path = state_dir.join(NAME);
        let mut memory: MeshRecord = match read_small(&path, MAX_LEN) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => MeshRecord::default(),
            Err(error) => lost(&path, &error),
            Ok(bytes) => serde_json::from_slice(&bytes).unwrap_or_else(|error| lost(&path, &error)),
        };
        // Whoever wrote it did not note them, or had no room.
        if memory.known.is_empty() {
            memory.known.clone_from(&memory.remotes);
        }
        Self { path, memory }
    }

    /// What is known.
    pub fn memory(&self) -> &MeshRecord {
        &self.memory
    }

    /// Changes it, and writes it if that makes a difference. It blocks until the disk has it.
    pub fn change(&mut self, change: impl FnOnce(&mut MeshRecord)) -> io::Result<()> {
        let Some(new) = self.changed(change) else {
            return Ok(());
        };
        write(&self.path, &new)?;
        self.memory = new;
        Ok(())
    }

    /// The same for whoever must not block: a disk may take seconds.
    pub async fn change_aside(&mut self, change: impl FnOnce(&mut MeshRecord)) -> io::Result<()> {
        let Some(new) = self.changed(change) else {
            return Ok(());
        };
        let path = self.path.clone();
        let writing = spawn_blocking(move || write(&path, &new).map(|()| new));
        self.memory = writing.await.map_err(io::Error::other)??;
        Ok(())
    }

    /// How it is after a change, if that makes a difference.
    fn changed(&self, change: impl FnOnce(&mut MeshRecord)) -> Option<MeshRecord> {
        let mut new = self.memory.clone();
        change(&mut new);
        (new != self.memory).then_some(new)
    }

    /// Forgets everything.
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
    fn what_our_own_was_called_is_remembered_the_latest_last() {
        let mut memory = MeshRecord::default();
        for number in [1, 1, 2, 1, 3] {
            memory.note_number(number);
        }
        assert_eq!(memory.numbers, [2, 1, 3]);
        (10..20).for_each(|number| memory.note_number(number));
        assert_eq!(memory.numbers, (12..20).collect::<Vec<u64>>());
    }

    #[test]
    fn what_is_kept_is_there_again() {
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
    async fn what_is_changed_aside_is_kept_likewise() {
        let dir = tempfile::tempdir().unwrap();
        let state_dir = dir.path().join("state");
        let mut kept = MeshStateFile::load(&state_dir);
        kept.change_aside(|_| ()).await.unwrap();
        assert!(!state_dir.exists());
        let change = kept.change_aside(|memory| memory.has_served = true);
        change.await.unwrap();
        assert!(kept.memory().has_served);
        assert_eq!(MeshStateFile::load(&state_dir).memory(), kept.memory());

        // What is not on the disk is not known: it has to be written the next time.
        fs::remove_dir_all(&state_dir).unwrap();
        write_atomic(&state_dir, b"in the way", 0o600).unwrap();
        let change = kept.change_aside(|memory| memory.has_served = false);
        change.await.unwrap_err();
        assert!(kept.memory().has_served);
    }

    #[test]
    fn the_oldest_of_too_many_networks_are_forgotten_but_none_that_is_wanted() {
        let route = |n: usize| -> IpNet {
            let [.., high, low] = n.to_be_bytes();
            format!("10.9.{high}.{low}/32").parse().unwrap()
        };
        let mut memory = MeshRecord {
            routes: (0..MOST_ROUTES + 3).map(route).collect(),
            ..MeshRecord::default()
        };
        memory.forget_routes(&[route(0), route(2)], |over| *over == route(7));
        let kept = |n| memory.routes.contains(&route(n));
        assert_eq!(memory.routes.len(), MOST_ROUTES);
        assert_eq!(
            [0, 1, 2, 3, 4, 7].map(kept),
            [true, false, true, false, true, false]
        );
    }

    fn nets(texts: &[&str]) -> Vec<IpNet> {
        texts.iter().map(|text| text.parse().unwrap()).collect()
    }

    #[test]
    fn a_network_keeps_its_age_while_its_node_is_away() {
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
    fn of_too_many_that_are_away_the_oldest_are_kept() {
        let network = |n: usize| -> IpNet { format!("fd00:{n:x}::/64").parse().unwrap() };
        let mut memory = MeshRecord::default();
        memory.meet((0..=MOST_AWAY).map(network).collect());
        memory.meet(vec![network(7)]);
        assert_eq!(memory.known.len(), MOST_AWAY + 1);
        memory.meet(vec![network(MOST_AWAY + 1)]);
        let is_known = |n| memory.known.contains(&network(n));
        assert_eq!(
            [0, 7, MOST_AWAY - 1, MOST_AWAY, MOST_AWAY + 1].map(is_known),
            [true, true, true, false, true]
        );
    }

    #[test]
    fn who_kept_no_ages_has_those_of_the_networks_that_he_knew() {
        let dir = tempfile::tempdir().unwrap();
        let older = br#"{"hasServed": true, "routes": [], "remotes": ["10.244.2.0/24"]}"#;
        write_atomic(&dir.path().join(NAME), older, 0o600).unwrap();
        let kept = MeshStateFile::load(dir.path());
        assert!(kept.memory().has_served);
        assert_eq!(kept.memory().known, nets(&["10.244.2.0/24"]));
    }

    #[test]
    fn what_is_too_long_to_be_read_again_is_written_without_what_can_be_found_out() {
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
    fn a_torn_file_is_as_good_as_none() {
        let dir = tempfile::tempdir().unwrap();
        write_atomic(&dir.path().join(NAME), b"{\"hasServed\": tr", 0o600).unwrap();
        let mut kept = MeshStateFile::load(dir.path());
        assert_eq!(kept.memory(), &MeshRecord::default());
        kept.change(|memory| memory.has_served = true).unwrap();
        assert!(MeshStateFile::load(dir.path()).memory().has_served);
    }

    #[test]
    fn what_is_the_same_is_not_written() {
        let dir = tempfile::tempdir().unwrap();
        let mut kept = MeshStateFile::load(dir.path());
        kept.change(|_| ()).unwrap();
        assert!(!dir.path().join(NAME).exists());
    }
}
