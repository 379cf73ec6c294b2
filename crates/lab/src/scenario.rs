//! Ready-made set-ups for tests. Pick the smallest one that can show what you test:
//!
//! - [`PluginNode`]: one node on which the plugin is called for pods.

mod plugin_node;

pub use plugin_node::PluginNode;
