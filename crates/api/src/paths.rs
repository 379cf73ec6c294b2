//! Where things are on a node unless the configuration says otherwise.

/// What this node's pods get: written by the daemon, read by the plugin.
pub const SUBNET_FILE: &str = "/run/headcni/subnet.env";

/// The plugin's own records, one per attachment.
pub const PLUGIN_DATA_DIR: &str = "/var/lib/cni/headcni";
