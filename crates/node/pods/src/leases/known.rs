//! The places where pods of this node may have leases: `leases.json` in the daemon's state directory.
//!
//! It has one entry, and a second one while leases move. Where it is lost or damaged, the CNI
//! configuration that is in force says where they are.

use std::io;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::{Home, LeasesError, Life, judge};
use node_config::Dirs;
use node_core::files;

const FILE: &str = "leases.json";
const MODE: u32 = 0o600;
/// Either file has a few hundred bytes, unless it is somebody else's.
const MAX_BYTES: u64 = 1 << 20;

/// The places that are known.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Known {
    path: PathBuf,
    homes: Vec<Home>,
}

#[derive(Serialize, Deserialize)]
struct Contents {
    homes: Vec<Home>,
}

impl Known {
    /// What was known before. On a node that never was one of ours, nothing.
    pub fn load(dirs: &Dirs) -> Self {
        let path = dirs.state_dir.join(FILE);
        let homes = match read(&path) {
            Ok(homes) => homes,
            Err(error) if error.kind() == io::ErrorKind::NotFound => written(&dirs.conflist()),
            Err(error) => {
                tracing::warn!(
                    path = %path.display(), %error,
                    "where leases were is taken from the CNI configuration"
                );
                written(&dirs.conflist())
            }
        };
        Self { path, homes }
    }

    /// Whether leases may be at `now`: nobody lives who has some at another place.
    pub fn check(&self, now: &Home, life: impl Fn(&Home) -> Life) -> Result<(), LeasesError> {
        now.network()?;
        let others = self.homes.iter().filter(|home| !home.is_same(now));
        judge(now, others.map(|home| (home.clone(), life(home))))
    }

    /// Remembers that leases may be at `now`, before anybody is told so.
    pub fn note(&mut self, now: &Home) -> Result<(), LeasesError> {
        match self.homes.iter_mut().find(|home| home.is_same(now)) {
            Some(home) => {
                let mut bridges = std::mem::take(&mut home.bridges);
                *home = now.clone();
                home.bridges.append(&mut bridges);
            }
            None => self.homes.push(now.clone()),
        }
        self.save()
    }

    /// Forgets other places than `now`, after everybody was told: but for one where somebody got a
    /// lease at the last moment.
    pub fn forget_others(
        &mut self,
        now: &Home,
        life: impl Fn(&Home) -> Life,
    ) -> Result<(), LeasesError> {
        self.homes
            .retain(|home| home.is_same(now) || life(home) != Ok(0));
        self.save()
    }

    fn save(&self) -> Result<(), LeasesError> {
        let contents = Contents {
            homes: self.homes.clone(),
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

fn read(path: &Path) -> io::Result<Vec<Home>> {
    let text = files::read_small(path, MAX_BYTES)?;
    let contents: Contents = serde_json::from_slice(&text)?;
    if let Some(error) = contents.homes.iter().find_map(|home| home.network().err()) {
        return Err(io::Error::other(error));
    }
    Ok(contents.homes)
}

/// Where the CNI configuration that is in its place puts leases.
fn written(conflist: &Path) -> Vec<Home> {
    let text = files::read_small(conflist, MAX_BYTES).unwrap_or_default();
    let conflist = serde_json::from_slice(&text).unwrap_or_default();
    Home::of_conflist(&conflist).into_iter().collect()
}

#[cfg(test)]
mod tests {
    use std::fs;

    use rstest::rstest;
    use tempfile::{TempDir, tempdir};

    use super::*;
    use node_config::{Cni, Config};

    fn home(name: &str) -> Home {
        let mut config = Config::default();
        config.cni.name = name.to_owned();
        Home::of(&config)
    }

    fn node() -> (TempDir, Dirs) {
        let root = tempdir().unwrap();
        let dirs = Dirs::locate(&Cni::default(), root.path());
        (root, dirs)
    }

    fn pods(count: usize) -> impl Fn(&Home) -> Life {
        move |_| Ok(count)
    }

    #[test]
    fn leases_move_when_nobody_has_some_any_more_and_not_before() {
        let (_root, dirs) = node();
        let mut first = Known::load(&dirs);
        first.check(&home("a"), pods(1)).unwrap();
        first.note(&home("a")).unwrap();
        first.forget_others(&home("a"), pods(1)).unwrap();

        let mut later = Known::load(&dirs);
        assert_eq!(later, first);
        later.check(&home("a"), pods(1)).unwrap();
        later.check(&home("b"), pods(1)).unwrap_err();
        later.check(&home("b"), pods(0)).unwrap();
        later.note(&home("b")).unwrap();
        // Whoever is killed here knows both afterwards.
        assert_eq!(Known::load(&dirs).homes, [home("a"), home("b")]);
        later.forget_others(&home("b"), pods(1)).unwrap();
        assert_eq!(later.homes, [home("a"), home("b")], "one was quicker");
        later.forget_others(&home("b"), pods(0)).unwrap();
        assert_eq!(Known::load(&dirs).homes, [home("b")]);
    }

    #[test]
    fn every_bridge_that_pods_may_be_on_is_remembered() {
        let (_root, dirs) = node();
        let mut known = Known::load(&dirs);
        let mut config = Config::default();
        for bridge in ["br1", "br2"] {
            config.cni.bridge.name = bridge.to_owned();
            known.note(&Home::of(&config)).unwrap();
        }
        let bridges = &Known::load(&dirs).homes[0].bridges;
        assert_eq!(bridges.len(), 2, "{bridges:?}");
    }

    #[rstest]
    #[case::lost("")]
    #[case::torn("{\"homes\":[{\"netw")]
    #[case::not_ours("[]")]
    #[case::nonsense(
        "{\"homes\":[{\"network\":\"../x\",\"plugin\":\"host-local\",\"dir\":\"/\"}]}"
    )]
    fn without_the_file_the_document_in_force_tells(#[case] text: &str) {
        let (_root, dirs) = node();
        fs::create_dir_all(&dirs.state_dir).unwrap();
        if !text.is_empty() {
            files::write_atomic(&dirs.state_dir.join(FILE), text.as_bytes(), MODE).unwrap();
        }
        assert_eq!(Known::load(&dirs).homes, []);
        let conflist =
            br#"{"name":"a","plugins":[{"type":"headcni","ipam":{"type":"headcni-ipam"}}]}"#;
        files::write_atomic(&dirs.conflist(), conflist, MODE).unwrap();
        let known = Known::load(&dirs);
        known.check(&home("a"), pods(1)).unwrap();
        known.check(&home("b"), pods(1)).unwrap_err();
    }
}
