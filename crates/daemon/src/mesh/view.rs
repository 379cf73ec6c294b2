//! What the rest of the daemon goes by.

use std::net::{IpAddr, Ipv4Addr};

use ipnet::IpNet;
use serde::{Deserialize, Serialize};

use super::Way;
use crate::config::Config;

/// The mesh as the rest of the daemon sees it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct View {
    /// How packets get into it; nothing while that is not known.
    pub link: Option<MeshLink>,
    /// The networks of other nodes, sorted.
    pub remotes: Vec<IpNet>,
    /// Parts of them that the mesh would send to somebody else, sorted.
    pub stolen: Vec<IpNet>,
    /// Addresses of all members, as far as each of them is guarded for itself.
    pub members: Vec<Ipv4Addr>,
    /// Addresses of this node's pods that are in none of its networks.
    pub outside: Vec<IpNet>,
    /// Whether packets for this node's pods were ever sent here.
    pub has_served: bool,
    /// This node's addresses in the mesh; none until they are known.
    pub addresses: Vec<IpAddr>,
}

/// How packets get into the mesh.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct MeshLink {
    /// The link's name on the host.
    pub name: String,
    /// Who takes packets there, by family, if the link is not the mesh's own interface.
    pub via: Vec<IpAddr>,
}

impl View {
    /// Why no pod may start yet: on a node that the mesh never served, it would reach nobody.
    pub fn gate(&self, config: &Config) -> Result<(), String> {
        // Where tailscaled runs makes no difference here.
        if self.has_served || Way::choose(config, false) == Way::None {
            return Ok(());
        }
        Err(
            "waiting for the mesh to send packets for this node's pods here for the first time: \
             see NetworksServed and MeshJoined"
                .to_owned(),
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_node_that_the_mesh_never_served_starts_no_pods() {
        let mut config = Config::default();
        let mut view = View::default();
        assert_eq!(view.gate(&config), Ok(()));
        config.headscale.url = Some("https://10.99.0.1".to_owned());
        assert!(view.gate(&config).is_err());
        view.has_served = true;
        assert_eq!(view.gate(&config), Ok(()));
    }
}
