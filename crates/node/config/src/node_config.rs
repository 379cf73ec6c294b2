//! The effective configuration and the discovered pod CIDRs of this node.

use std::path::Path;
use std::sync::Arc;

use node_core::{NodeName, PodCidrs};

use crate::{Config, Dirs};

/// The input of every controller. Configuration and pod CIDRs change together, so that no controller
/// combines a new one with an old one.
#[derive(Clone, Debug)]
pub struct NodeConfig {
    pub config: Arc<Config>,
    pub node: NodeName,
    /// The last discovered pod CIDRs stay if discovery fails.
    pub pod_cidrs: Option<Arc<PodCidrs>>,
}

impl NodeConfig {
    pub fn new(config: Arc<Config>, node: NodeName) -> Self {
        Self {
            config,
            node,
            pod_cidrs: None,
        }
    }

    /// The directories of the container runtime.
    pub fn dirs(&self) -> Dirs {
        Dirs::locate(&self.config.cni, Path::new("/"))
    }
}
