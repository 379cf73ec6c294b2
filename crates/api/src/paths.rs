//! Where things are on a node unless the configuration says otherwise.

/// What this node's pods get: written by the daemon, read by the plugin.
pub const SUBNET_FILE: &str = "/run/headcni/subnet.env";

/// The plugin's own records, one per attachment.
pub const PLUGIN_DATA_DIR: &str = "/var/lib/cni/headcni";

/// Where the daemon listens for the plugin and for people.
pub const DAEMON_SOCKET: &str = "/run/headcni/daemon.sock";

/// What the plugin could not tell the daemon: a line of JSON per call.
pub const EVENT_SPOOL: &str = "/run/headcni/events.spool";

/// The daemon's configuration.
pub const DAEMON_CONFIG: &str = "/etc/headcni/daemon.yaml";

/// What the daemon keeps over a reboot.
pub const DAEMON_STATE_DIR: &str = "/var/lib/headcni";

/// Where the daemon's own tailscaled listens.
pub const TAILSCALED_SOCKET: &str = "/run/headcni/tailscaled.sock";

/// Locked by the daemon while it runs: one per node.
pub const DAEMON_LOCK: &str = "/run/headcni/daemon.lock";
