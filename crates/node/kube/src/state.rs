//! The Nodes on disk: a node that starts while the API is unreachable keeps its pod CIDRs.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use node_core::NodeFacts;
use node_core::files::{read_small, write_atomic};

/// Enough for some ten thousand Nodes.
const MAX_LEN: u64 = 1 << 22;
const NAME: &str = "kubernetes.json";

#[derive(Serialize, Deserialize)]
struct SavedNodes<'a> {
    nodes: Cow<'a, BTreeMap<String, NodeFacts>>,
}

fn path(state_dir: &Path) -> PathBuf {
    state_dir.join(NAME)
}

/// Treats an unreadable file like a missing one; blocks.
pub(super) fn load(state_dir: &Path) -> Option<BTreeMap<String, NodeFacts>> {
    let path = path(state_dir);
    let parsed = match read_small(&path, MAX_LEN) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return None,
        read => read.and_then(|bytes| Ok(serde_json::from_slice::<SavedNodes>(&bytes)?)),
    };
    match parsed {
        Ok(saved) => Some(saved.nodes.into_owned()),
        Err(error) => {
            tracing::warn!(path = %path.display(), %error, "failed to load the saved Nodes");
            None
        }
    }
}

/// Blocks.
pub(super) fn save(state_dir: &Path, nodes: &BTreeMap<String, NodeFacts>) -> io::Result<()> {
    let saved = SavedNodes {
        nodes: Cow::Borrowed(nodes),
    };
    write_atomic(&path(state_dir), &serde_json::to_vec(&saved)?, 0o600)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn saved_nodes_are_loaded_and_a_torn_file_is_ignored() {
        let dir = tempfile::tempdir().unwrap();
        assert_eq!(load(dir.path()), None);
        let facts = NodeFacts {
            assigned: vec!["10.244.1.0/24".parse().unwrap()],
            annotated: Vec::new(),
            tailnet_ips: vec!["100.64.0.1".parse().unwrap()],
        };
        let nodes: BTreeMap<_, _> = [("n1".to_owned(), facts)].into();
        save(dir.path(), &nodes).unwrap();
        assert_eq!(load(dir.path()), Some(nodes));
        let without_ips = br#"{"nodes":{"n1":{"assigned":["10.244.1.0/24"]}}}"#;
        write_atomic(&path(dir.path()), without_ips, 0o600).unwrap();
        assert!(load(dir.path()).unwrap()["n1"].tailnet_ips.is_empty());
        write_atomic(&path(dir.path()), b"{\"nodes\":{", 0o600).unwrap();
        assert_eq!(load(dir.path()), None);
    }
}
