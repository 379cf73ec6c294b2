//! What the parts of the daemon go by: the configuration in force, the node's networks, the mesh.

use std::path::Path;
use std::sync::Arc;

use crate::cniconf::Dirs;
use crate::config::Config;
use crate::mesh::View;
use crate::node_name::NodeName;
use crate::podcidr::{Discovery, NodeNetworks};

/// A configuration, and what was found out by it.
#[derive(Clone, Debug)]
pub struct Settings {
    /// The configuration in force.
    pub config: Arc<Config>,
    /// This node.
    pub node: NodeName,
    /// How the node's networks were found out; nothing before the first look.
    pub discovery: Option<Arc<Discovery>>,
    /// The node's networks. Those that were known stay, if they are not known any more.
    pub networks: Option<Arc<NodeNetworks>>,
    /// The mesh.
    pub mesh: Arc<View>,
}

impl Settings {
    /// Nothing is known of the networks yet.
    pub fn new(config: Config, node: NodeName) -> Self {
        Self {
            config: Arc::new(config),
            node,
            discovery: None,
            networks: None,
            mesh: Arc::default(),
        }
    }

    /// Where the files of runtimes are.
    pub fn dirs(&self) -> Dirs {
        Dirs::locate(&self.config.cni, Path::new("/"))
    }
}
