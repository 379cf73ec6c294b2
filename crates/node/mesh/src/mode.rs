//! Which tailscaled this node uses, and in which netns.

use node_config::{Config, TailscaleMode, TailscaledNetns};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TailscaledMode {
    /// No mesh.
    Disabled,
    /// The host's own tailscaled.
    Host,
    /// The daemon's tailscaled in the host netns.
    Managed,
    /// The daemon's tailscaled in its own netns.
    ManagedNetns,
}

impl TailscaledMode {
    /// `has_another`: a host tailscaled runs, or did when ours moved into its netns. It may be back any
    /// moment, and each move costs seconds of traffic.
    pub fn choose(config: &Config, has_another: bool) -> Self {
        let ours = match config.tailscale.netns {
            TailscaledNetns::Own => Self::ManagedNetns,
            TailscaledNetns::Auto if has_another => Self::ManagedNetns,
            TailscaledNetns::Host | TailscaledNetns::Auto => Self::Managed,
        };
        match config.tailscale.mode {
            TailscaleMode::Off => Self::Disabled,
            TailscaleMode::Auto if config.headscale.url.is_none() => Self::Disabled,
            TailscaleMode::Host => Self::Host,
            TailscaleMode::Auto | TailscaleMode::Daemon => ours,
            // The sidecar stays in its netns.
            TailscaleMode::Container => Self::Managed,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn without_a_server_there_is_no_mesh() {
        assert_eq!(
            TailscaledMode::choose(&Config::default(), false),
            TailscaledMode::Disabled
        );
    }

    #[test]
    fn auto_uses_an_own_netns_beside_a_host_tailscaled() {
        let mut config = Config::default();
        config.headscale.url = Some("https://10.99.0.1".to_owned());
        assert_eq!(
            TailscaledMode::choose(&config, false),
            TailscaledMode::Managed
        );
        assert_eq!(
            TailscaledMode::choose(&config, true),
            TailscaledMode::ManagedNetns
        );
        config.tailscale.netns = TailscaledNetns::Host;
        assert_eq!(
            TailscaledMode::choose(&config, true),
            TailscaledMode::Managed
        );
        config.tailscale.netns = TailscaledNetns::Own;
        assert_eq!(
            TailscaledMode::choose(&config, false),
            TailscaledMode::ManagedNetns
        );
        config.tailscale.mode = TailscaleMode::Host;
        assert_eq!(TailscaledMode::choose(&config, false), TailscaledMode::Host);
        config.tailscale.mode = TailscaleMode::Container;
        assert_eq!(
            TailscaledMode::choose(&config, true),
            TailscaledMode::Managed
        );
        config.tailscale.mode = TailscaleMode::Off;
        assert_eq!(
            TailscaledMode::choose(&config, true),
            TailscaledMode::Disabled
        );
    }
}
