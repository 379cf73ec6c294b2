//! What the mesh controller reconciles by.

use std::sync::Arc;

use node_config::{Config, NodeConfig};
use node_core::{KubeNodes, MeshState, NodeName, PodCidrs};

/// The latest values of the channels that the mesh controller consumes.
#[derive(Clone, Debug)]
pub(crate) struct MeshInputs {
    pub(crate) config: Arc<Config>,
    pub(crate) node: NodeName,
    pub(crate) pod_cidrs: Option<Arc<PodCidrs>>,
    pub(crate) kube_nodes: Arc<KubeNodes>,
    /// What the controller published last.
    pub(crate) published: Arc<MeshState>,
}

impl MeshInputs {
    pub(crate) fn new(
        node_config: NodeConfig,
        kube_nodes: Arc<KubeNodes>,
        published: Arc<MeshState>,
    ) -> Self {
        let NodeConfig {
            config,
            node,
            pod_cidrs,
        } = node_config;
        Self {
            config,
            node,
            pod_cidrs,
            kube_nodes,
            published,
        }
    }
}
