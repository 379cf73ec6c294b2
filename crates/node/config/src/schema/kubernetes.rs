//! The Kubernetes API.

use std::path::PathBuf;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The Kubernetes API. A node without one works as well: its networks are said by other sources.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "camelCase", default)]
pub struct Kubernetes {
    /// Whether it is asked. Unless it is said, it is if `kubeconfig` is set or this is a pod.
    pub enabled: Option<bool>,
    /// How it is reached; a pod knows that by itself.
    #[schemars(example = "/etc/headcni/kubeconfig")]
    pub kubeconfig: Option<PathBuf>,
    /// Labels of the pods of this node that are watched; all of them unless it is said.
    #[schemars(example = "tier=edge")]
    pub pod_selector: Option<String>,
    /// Whether a network counts as another node's only if a Node object has it, in its
    /// `spec.podCIDRs` or as an annotation of ours.
    pub strict_peers: bool,
}

impl Default for Kubernetes {
    fn default() -> Self {
        Self {
            enabled: None,
            kubeconfig: None,
            pod_selector: None,
            strict_peers: true,
        }
    }
}
