//! Default paths on a node.

/// The node's subnets: written by the daemon, read by the plugin.
pub const SUBNET_FILE: &str = "/run/headcni/subnet.env";

/// The plugin's records, one per attachment.
pub const PLUGIN_DATA_DIR: &str = "/var/lib/cni/headcni";

/// The daemon's API.
pub const DAEMON_SOCKET: &str = "/run/headcni/daemon.sock";

/// The daemon's configuration file.
pub const DAEMON_CONFIG: &str = "/etc/headcni/daemon.yaml";

/// The daemon's persistent state.
pub const DAEMON_STATE_DIR: &str = "/var/lib/headcni";

/// The `LocalAPI` of the tailscaled that the daemon manages.
pub const TAILSCALED_SOCKET: &str = "/run/headcni/tailscaled.sock";

/// Locked by the running daemon: one per node.
pub const DAEMON_LOCK: &str = "/run/headcni/daemon.lock";
