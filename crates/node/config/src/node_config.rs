//! The configuration in force on this node, with the pod CIDRs that were discovered by it.

use std::path::Path;
use std::sync::Arc;

use node_core::{NodeName, PodCidrs};

use crate::{Config, Dirs};

/// What every controller reconciles by. Configuration and pod CIDRs change at once, so that none
/// combines a new one with an old one.
#[derive(Clone, Debug)]
pub struct NodeConfig {
    pub config: Arc<Config>,
    pub node: NodeName,
    /// Known pod CIDRs stay while they can't be discovered.
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
