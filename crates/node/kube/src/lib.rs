//! What the Kubernetes API says about nodes, as far as this one needs it, and what this node says there.
//!
//! Nothing here is needed for pods to run. What was known stays when the API is away, over restarts
//! too, and a node without an API does without.

mod client;
mod farewell;
mod keep;
mod memory;
mod node;
mod nodes;
mod own;
mod reach;
mod selection;
mod tell;
mod teller;
mod told;

use std::path::Path;
use std::time::Duration;

pub use farewell::take_back;
pub use keep::{Ends, keep};

use node_config::Kubernetes;
use node_core::KubeNodes;

/// For an answer to what is asked now and then. Watches and lists have more time.
const ANSWER: Duration = Duration::from_secs(5);

/// The Nodes as they were known before this start; blocks.
pub fn load(config: &Kubernetes, state_dir: &Path) -> KubeNodes {
    KubeNodes {
        is_enabled: client::is_asked(config),
        nodes: memory::load(state_dir),
    }
}
