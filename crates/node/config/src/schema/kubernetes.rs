//! The Kubernetes API.

use std::path::PathBuf;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The Kubernetes API. It is optional if another source has the pod CIDRs of the node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "camelCase", default)]
pub struct Kubernetes {
    /// Use the Kubernetes API. Default: yes if `kubeconfig` is set or the daemon runs in a pod.
    pub enabled: Option<bool>,
    /// The kubeconfig file. Default: the service account of the pod.
    #[schemars(example = "/etc/headcni/kubeconfig")]
    pub kubeconfig: Option<PathBuf>,
    /// A label selector for the pods of this node to watch. Default: all pods.
    #[schemars(example = "tier=edge")]
    pub pod_selector: Option<String>,
    /// Accept a route of a peer only if a Node object confirms it, in `spec.podCIDRs` or in an
    /// annotation of headcni.
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
