//! What the API said is known after a restart, too: a node that starts while the API is away has the
//! networks that it had.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use node_core::NodeFacts;
use node_core::files::{read_small, write_atomic};

/// Enough for some ten thousand nodes.
const MAX_LEN: u64 = 1 << 22;
const NAME: &str = "kubernetes.json";

#[derive(Serialize, Deserialize)]
struct Memory<'a> {
    nodes: Cow<'a, BTreeMap<String, NodeFacts>>,
}

fn path(state_dir: &Path) -> PathBuf {
    state_dir.join(NAME)
}

/// The nodes that were known last; blocks. A file that can't be read is as good as none.
pub(super) fn load(state_dir: &Path) -> Option<BTreeMap<String, NodeFacts>> {
    let path = path(state_dir);
    let lost = |error: &dyn std::fmt::Display| {
        tracing::warn!(path = %path.display(), %error, "what the Kubernetes API said is not known any more");
    };
    match read_small(&path, MAX_LEN) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => None,
        Err(error) => {
            lost(&error);
            None
        }
        Ok(bytes) => match serde_json::from_slice::<Memory>(&bytes) {
            Ok(memory) => Some(memory.nodes.into_owned()),
            Err(error) => {
                lost(&error);
                None
            }
        },
    }
}

/// Keeps them; blocks.
pub(super) fn save(state_dir: &Path, nodes: &BTreeMap<String, NodeFacts>) -> io::Result<()> {
    let memory = Memory {
        nodes: Cow::Borrowed(nodes),
    };
    write_atomic(&path(state_dir), &serde_json::to_vec(&memory)?, 0o600)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_kept_is_known_again_and_what_is_torn_is_not() {
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
        // As it was written before addresses were kept.
        let older = br#"{"nodes":{"n1":{"assigned":["10.244.1.0/24"]}}}"#;
        write_atomic(&path(dir.path()), older, 0o600).unwrap();
        assert!(load(dir.path()).unwrap()["n1"].tailnet_ips.is_empty());
        write_atomic(&path(dir.path()), b"{\"nodes\":{", 0o600).unwrap();
        assert_eq!(load(dir.path()), None);
    }
}
