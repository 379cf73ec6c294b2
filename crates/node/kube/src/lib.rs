//! The Kubernetes API: watches Nodes, and publishes this node's annotations, `NetworkUnavailable`
//! condition and Events.
//!
//! Pods run without it. The last known Nodes stay in force while the API is unreachable, also across
//! restarts.

mod cleanup;
mod client;
mod controller;
mod events;
mod node;
mod node_cache;
mod node_patch;
mod own_node;
mod publisher;
mod state;
mod watch_config;
mod watch_health;

use std::path::Path;
use std::time::Duration;

pub use cleanup::cleanup;
pub use controller::KubeController;

use node_config::Kubernetes;
use node_core::KubeNodes;

/// For single requests. Watches and lists have more time.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(5);

/// The Nodes that an earlier daemon saved; blocks.
pub fn load(config: &Kubernetes, state_dir: &Path) -> KubeNodes {
    KubeNodes {
        is_enabled: client::is_enabled(config),
        nodes: state::load(state_dir),
    }
}
