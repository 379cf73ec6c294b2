//! The Kubernetes API.

use std::path::PathBuf;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The Kubernetes API. It is optional: other sources can name the pod CIDR.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "camelCase", default)]
pub struct Kubernetes {
    /// Use the API. Default: yes in a pod or if `kubeconfig` is set.
    pub enabled: Option<bool>,
    /// kubeconfig file. Not needed in a pod.
    #[schemars(example = "/etc/headcni/kubeconfig")]
    pub kubeconfig: Option<PathBuf>,
    /// Label selector of the pods of this node to watch. Default: all.
    #[schemars(example = "tier=edge")]
    pub pod_selector: Option<String>,
    /// Accept a peer's route only if a Node has that prefix, in `spec.podCIDRs` or in our annotation.
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
