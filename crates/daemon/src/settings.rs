//! What the parts of the daemon go by: the configuration in force, what the Kubernetes API says, the
//! node's networks, the mesh.

use std::path::Path;
use std::sync::Arc;

use api::paths;

use crate::cniconf::Dirs;
use crate::config::Config;
use crate::kubernetes::Known;
use crate::mesh::View;
use crate::mesh::memory::Kept;
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
    /// What the Kubernetes API says.
    pub kubernetes: Arc<Known>,
    /// The mesh.
    pub mesh: Arc<View>,
}

impl Settings {
    /// With what was known before this start; blocks.
    pub fn at_start(config: Config, node: NodeName) -> Self {
        let state_dir = Path::new(paths::DAEMON_STATE_DIR);
        let mut settings = Self::new(config, node);
        let kubernetes = &settings.config.kubernetes;
        settings.kubernetes = Arc::new(Known::at_start(kubernetes, state_dir));
        settings.mesh = Arc::new(Kept::load(state_dir).memory().view());
        settings
    }

    /// Nothing is known of the networks yet.
    pub fn new(config: Config, node: NodeName) -> Self {
        Self {
            config: Arc::new(config),
            node,
            discovery: None,
            networks: None,
            kubernetes: Arc::default(),
            mesh: Arc::default(),
        }
    }

    /// Whether the configuration and the word of Kubernetes are still those of an earlier look.
    /// Whoever notes what it has said itself must not take a change of these for its own.
    pub fn has_sources_of(&self, earlier: &Self) -> bool {
        Arc::ptr_eq(&self.config, &earlier.config)
            && Arc::ptr_eq(&self.kubernetes, &earlier.kubernetes)
    }

    /// Where the files of runtimes are.
    pub fn dirs(&self) -> Dirs {
        Dirs::locate(&self.config.cni, Path::new("/"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_kubernetes_says_meanwhile_is_no_echo() {
        let node = crate::node_name::find(Some("n1"), None).unwrap();
        let earlier = Settings::new(Config::default(), node);
        let mut now = earlier.clone();
        // This is what those who look say themselves.
        now.mesh = Arc::new(View {
            has_served: true,
            ..View::default()
        });
        assert!(now.has_sources_of(&earlier));
        now.kubernetes = Arc::default();
        assert!(!now.has_sources_of(&earlier));
        now.kubernetes = Arc::clone(&earlier.kubernetes);
        now.config = Arc::default();
        assert!(!now.has_sources_of(&earlier));
    }
}
