//! Whose tailscaled makes this node a member of the mesh, and where it runs.

use node_config::{Config, MeshMode, TailscaledNetns};

/// How this node is a member.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Way {
    /// It is none.
    None,
    /// By the host's own tailscaled.
    Hosts,
    /// By ours, in the host's network.
    Ours,
    /// By ours, in a network of its own.
    OursApart,
}

impl Way {
    /// `has_another` is whether another tailscaled runs in the host's network, or did when ours went
    /// out of its way: it may be back any moment, and each move costs seconds of traffic.
    pub fn choose(config: &Config, has_another: bool) -> Self {
        let ours = match config.tailscale.netns {
            TailscaledNetns::Own => Self::OursApart,
            TailscaledNetns::Auto if has_another => Self::OursApart,
            TailscaledNetns::Host | TailscaledNetns::Auto => Self::Ours,
        };
        match config.tailscale.mode {
            MeshMode::Off => Self::None,
            MeshMode::Auto if config.headscale.url.is_none() => Self::None,
            MeshMode::Host => Self::Hosts,
            MeshMode::Auto | MeshMode::Daemon => ours,
            // It is where it was started, and nobody moves it.
            MeshMode::Container => Self::Ours,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn without_a_server_there_is_no_mesh() {
        assert_eq!(Way::choose(&Config::default(), false), Way::None);
    }

    #[test]
    fn ours_keeps_away_from_another_unless_it_is_told() {
        let mut config = Config::default();
        config.headscale.url = Some("https://10.99.0.1".to_owned());
        assert_eq!(Way::choose(&config, false), Way::Ours);
        assert_eq!(Way::choose(&config, true), Way::OursApart);
        config.tailscale.netns = TailscaledNetns::Host;
        assert_eq!(Way::choose(&config, true), Way::Ours);
        config.tailscale.netns = TailscaledNetns::Own;
        assert_eq!(Way::choose(&config, false), Way::OursApart);
        config.tailscale.mode = MeshMode::Host;
        assert_eq!(Way::choose(&config, false), Way::Hosts);
        config.tailscale.mode = MeshMode::Container;
        assert_eq!(Way::choose(&config, true), Way::Ours);
        config.tailscale.mode = MeshMode::Off;
        assert_eq!(Way::choose(&config, true), Way::None);
    }
}
