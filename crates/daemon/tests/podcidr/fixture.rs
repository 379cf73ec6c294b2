//! A node with files, a configuration and an environment variable.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};

use node_config::{Network, Networks};
use node_core::files::write_atomic;
use node_core::node_name::{self, NodeName};
use node_core::{CidrSource, KubeNodes};
use node_podcidr::{Discovery, DiscoveryInput, SourceReport, SourceResult, discover};
use tempfile::TempDir;

pub(crate) struct PodCidrNode {
    root: PathBuf,
    own_root: Option<TempDir>,
    pub(crate) node: NodeName,
    pub(crate) network: Network,
    pub(crate) variable: Option<String>,
    pub(crate) kubernetes: KubeNodes,
}

impl PodCidrNode {
    pub(crate) fn of(fixture: &str) -> Self {
        let fixtures = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/podcidr/fixtures");
        let root = fixtures.join(fixture);
        assert!(root.is_dir(), "there is no fixture {fixture}");
        Self {
            root,
            own_root: None,
            node: node_name::find(Some("worker-1"), None).unwrap(),
            network: Network::default(),
            variable: None,
            kubernetes: KubeNodes::default(),
        }
    }

    pub(crate) fn with(files: &[(&str, &str)]) -> Self {
        let root = TempDir::new().unwrap();
        for (path, text) in files {
            let path = root.path().join(path.trim_start_matches('/'));
            write_atomic(&path, text.as_bytes(), 0o600).unwrap();
        }
        Self {
            root: root.path().to_owned(),
            own_root: Some(root),
            ..Self::of("kubeadm-worker")
        }
    }

    pub(crate) fn empty() -> Self {
        Self::with(&[])
    }

    pub(crate) fn root(&self) -> &Path {
        self.own_root.as_ref().map_or(&self.root, TempDir::path)
    }

    pub(crate) fn discover(&self) -> Discovery {
        discover(&DiscoveryInput {
            root: self.root(),
            node: &self.node,
            network: &self.network,
            variable: self.variable.as_deref().map(OsStr::new),
            kubernetes: self.kubernetes.assigned(&self.node),
        })
    }

    /// The node's pod CIDRs, the cluster CIDRs, and the source of the former.
    pub(crate) fn found(&self) -> (String, String, CidrSource) {
        let discovery = self.discover();
        match discovery.outcome {
            Ok(networks) => (
                Networks(networks.local).to_string(),
                Networks(networks.base).to_string(),
                networks.source,
            ),
            Err(error) => panic!("{error}"),
        }
    }

    pub(crate) fn error(&self) -> String {
        match self.discover().outcome {
            Ok(networks) => panic!("{networks:?}"),
            Err(error) => error.to_string(),
        }
    }
}

pub(crate) fn nets(text: &str) -> Networks {
    text.parse().unwrap()
}

pub(crate) fn file(path: &str) -> CidrSource {
    CidrSource::File(PathBuf::from(path))
}

pub(crate) fn result<'a>(discovery: &'a Discovery, source: &CidrSource) -> &'a SourceResult {
    let sources = discovery.sources.iter().find(|l| l.source == *source);
    let Some(SourceReport { result, .. }) = sources else {
        panic!("{source} is not in {:?}", discovery.sources)
    };
    result
}

/// Why a source was skipped.
pub(crate) fn skipped<'a>(discovery: &'a Discovery, source: &CidrSource) -> &'a str {
    match result(discovery, source) {
        SourceResult::Skipped(why) => why,
        other => panic!("{source}: {other:?}"),
    }
}
