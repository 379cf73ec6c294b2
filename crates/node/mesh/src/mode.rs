//! Owner tailscaled makes this node a member of the mesh, and where it runs.

use node_config::{Config, TailscaleMode, TailscaledNetns};

/// How this node is a member.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TailscaledMode {
    /// It is none.
    Disabled,
    /// By the host's own tailscaled.
    Host,
    /// By ours, in the host's network.
    Managed,
    /// By ours, in a network of its own.
    ManagedNetns,
}

impl TailscaledMode {
    /// `has_another` is whether another tailscaled runs in the host's network, or did when ours went
    /// out of its way: it may be back any moment, and each move costs seconds of traffic.
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
            // It is where it was started, and nobody moves it.
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
    fn ours_keeps_away_from_another_unless_it_is_told() {
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
