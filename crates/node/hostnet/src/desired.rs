//! How the network is to be, from what the configuration says and which networks the node has.

use std::fmt;
use std::net::IpAddr;

use ipam::{Range, RangeError};
use ipnet::IpNet;
use ruleset::Contents;

use super::{Mesh, Overlap};
use node_config::{Config, Mode, UnmanagedLinks};
use node_core::tailnet::TAILNET;

/// How the network that all pods share is to be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Desired {
    /// The networks of this node's pods.
    pub local: Vec<IpNet>,
    /// Addresses of `lo`: the pods' gateways, where no bridge has them.
    pub gateways: Vec<IpAddr>,
    /// The networks of all pods of the cluster.
    pub pods: Vec<IpNet>,
    /// What pods reach under their own address, and where hostPorts don't apply: pods and services.
    pub cluster: Vec<IpNet>,
    /// What the table `inet headcni` is to know else.
    pub contents: Contents,
    /// The way to other nodes, if there is to be one.
    pub mesh: Option<Mesh>,
    /// What this node sends from to other nodes' pods: the pods' gateways, wherever they are.
    pub sources: Vec<IpAddr>,
    /// Networks of other nodes that get no route.
    pub overlaps: Vec<Overlap>,
    /// Whether others are told to keep off our links.
    pub unmanaged_links: UnmanagedLinks,
}

/// Why the node's networks can't be used.
#[derive(Debug, thiserror::Error)]
pub enum DesiredError {
    /// The node has no network.
    #[error("the node has no network for its pods")]
    NoNetwork,
    /// There is no gateway in one.
    #[error("choose the gateway of {network}")]
    Gateway {
        /// The node's network.
        network: IpNet,
        /// Why.
        #[source]
        source: RangeError,
    },
}

impl Desired {
    /// `local` are the networks of this node's pods, `base` those of the whole cluster's as far as
    /// they are known, and `mesh` is the way to the others.
    pub fn new(
        config: &Config,
        local: &[IpNet],
        base: &[IpNet],
        mesh: Option<&Mesh>,
    ) -> Result<Self, DesiredError> {
        if local.is_empty() {
            return Err(DesiredError::NoNetwork);
        }
        let (mesh, overlaps) = mesh.map(|mesh| mesh.judged(local)).unzip();
        let remotes = mesh.iter().flat_map(|mesh| &mesh.remotes).copied();
        let pods: Vec<IpNet> = [base, local].concat().into_iter().chain(remotes).collect();
        let pods = largest(&pods);
        let members = mesh.iter().flat_map(Mesh::guarded);
        let guarded: Vec<IpNet> = pods.iter().copied().chain(members).collect();
        let services = &config.network.service_cidr.0;
        // Also in native mode: pods of an earlier mode may still be on it.
        let bridges = vec![config.cni.bridge.name.clone()];
        let inside = bridges
            .iter()
            .chain(mesh.iter().map(|mesh: &Mesh| &mesh.link));
        let sources = gateways(local, config.ipam.gateway);
        let (sources, gateways) = match config.cni.mode {
            Mode::Native => {
                let gateways = sources?;
                (gateways.clone(), gateways)
            }
            // The bridge has them.
            Mode::Bridge => (sources.unwrap_or_default(), Vec::new()),
        };
        Ok(Self {
            local: local.to_vec(),
            gateways,
            cluster: largest(&[pods.as_slice(), services].concat()),
            pods,
            contents: Contents {
                mesh_only: largest(&guarded),
                mesh_ifaces: inside.cloned().collect(),
                is_unmasqueraded: !config.network.masquerade,
                tailnet: mesh.iter().flat_map(|_| TAILNET).collect(),
                bridges,
            },
            mesh,
            sources,
            overlaps: overlaps.unwrap_or_default(),
            unmanaged_links: config.network.unmanaged_links,
        })
    }

    /// The networks of all pods of the cluster, of those families that pods have here.
    pub(super) fn cluster_of_pods(&self) -> impl Iterator<Item = IpNet> {
        let networks = self.pods.iter().copied();
        networks.filter(|network| self.has(Family::of(network)))
    }

    /// Whether links that the mesh's packets come by are to be tuned for them.
    pub(super) fn has_tuned_links(&self) -> bool {
        self.mesh.as_ref().is_some_and(|mesh| mesh.tune_links)
    }

    /// Whether pods have addresses of this family.
    pub(super) fn has(&self, family: Family) -> bool {
        self.local.iter().any(|net| Family::of(net) == family)
    }
}

/// IPv4 or IPv6.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Family {
    Ipv4,
    Ipv6,
}

impl Family {
    pub(super) fn of(network: &IpNet) -> Self {
        match network {
            IpNet::V4(_) => Self::Ipv4,
            IpNet::V6(_) => Self::Ipv6,
        }
    }
}

impl fmt::Display for Desired {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let local: Vec<String> = self.local.iter().map(IpNet::to_string).collect();
        write!(f, "the network for {} is in place", local.join(" and "))
    }
}

/// The gateway of each network: what IPAM gives pods.
fn gateways(local: &[IpNet], said: Option<IpAddr>) -> Result<Vec<IpAddr>, DesiredError> {
    let gateway = |network: &IpNet| {
        let said = said.filter(|gateway| network.contains(gateway));
        Range::new(*network, None, None, said)
            .map(|range| range.gateway())
            .map_err(|source| DesiredError::Gateway {
                network: *network,
                source,
            })
    };
    local.iter().map(gateway).collect()
}

/// The same networks without those that are part of another one.
fn largest(networks: &[IpNet]) -> Vec<IpNet> {
    IpNet::aggregate(&networks.to_vec())
}

#[cfg(test)]
mod tests {
    use super::*;
    use node_config::Networks;

    fn networks(text: &str) -> Vec<IpNet> {
        text.parse::<Networks>().unwrap().0
    }

    fn desired(config: &Config, local: &str, base: &str, mesh: Option<&Mesh>) -> Desired {
        Desired::new(config, &networks(local), &networks(base), mesh).unwrap()
    }

    fn mesh(remotes: &str) -> Mesh {
        Mesh {
            link: "mesh0".to_owned(),
            remotes: networks(remotes),
            ..Mesh::default()
        }
    }

    fn ips(texts: &[&str]) -> Vec<IpAddr> {
        texts.iter().map(|text| text.parse().unwrap()).collect()
    }

    #[test]
    fn native_pods_have_their_gateways_on_lo() {
        let mut config = Config::default();
        config.network.service_cidr = "10.96.0.0/12".parse().unwrap();
        let base = "10.244.0.0/16,fd00:244::/56";
        let mesh = mesh("10.244.4.0/24");
        let found = desired(
            &config,
            "10.244.3.0/24,fd00:244:0:3::/64",
            base,
            Some(&mesh),
        );
        assert_eq!(found.gateways, ips(&["10.244.3.1", "fd00:244:0:3::1"]));
        assert_eq!(found.pods, networks(base));
        assert_eq!(
            found.cluster,
            networks("10.96.0.0/12,10.244.0.0/16,fd00:244::/56")
        );
        assert_eq!(found.contents.mesh_ifaces, ["headcni0", "mesh0"]);
        assert_eq!(found.contents.bridges, ["headcni0"]);
        assert!(!found.contents.is_unmasqueraded);
        assert!(found.has(Family::Ipv4) && found.has(Family::Ipv6));
    }

    #[test]
    fn pods_on_a_bridge_have_theirs_there() {
        let mut config = Config::default();
        config.cni.mode = Mode::Bridge;
        config.network.masquerade = false;
        let found = desired(&config, "10.244.3.0/24", "", Some(&mesh("")));
        assert_eq!(found.gateways, ips(&[]));
        assert_eq!(found.sources, ips(&["10.244.3.1"]));
        assert_eq!(found.contents.mesh_ifaces, ["headcni0", "mesh0"]);
        assert_eq!(found.contents.bridges, ["headcni0"]);
        assert!(found.contents.is_unmasqueraded);
        assert!(!found.has(Family::Ipv6));
        assert_eq!(found.pods, networks("10.244.3.0/24"));
    }

    #[test]
    fn members_are_guarded_beside_pods_where_their_addresses_are_the_mesh_s() {
        let config = Config::default();
        let mut mesh = mesh("");
        mesh.members = vec!["100.64.0.2".parse().unwrap(), "100.64.0.9".parse().unwrap()];
        let members = "100.64.0.2/32,100.64.0.9/32,100.100.100.100/32";
        let guarded = |mesh: &Mesh| desired(&config, "10.244.3.0/24", "", Some(mesh));
        let found = guarded(&mesh);
        let all = format!("10.244.3.0/24,{members},fd7a:115c:a1e0::/48");
        assert_eq!(found.contents.mesh_only, networks(&all));
        assert_eq!(found.pods, networks("10.244.3.0/24"), "these have routes");
        assert_eq!(found.cluster, found.pods, "those are masqueraded elsewhere");
        // Beside a host's own, which may be of another mesh.
        mesh.via_ipv4 = Some("198.51.100.106".parse().unwrap());
        assert_eq!(guarded(&mesh).contents.mesh_only, networks("10.244.3.0/24"));
    }

    #[test]
    fn the_gateway_that_is_said_counts_for_its_network() {
        let mut config = Config::default();
        config.ipam.gateway = Some("10.244.3.254".parse().unwrap());
        let found = desired(&config, "10.244.3.0/24,fd00::/64", "", None);
        assert_eq!(found.gateways, ips(&["10.244.3.254", "fd00::1"]));
    }

    #[test]
    fn where_the_cluster_s_networks_are_not_known_those_of_other_nodes_count() {
        let config = Config::default();
        let remotes = mesh("10.244.4.0/24,10.244.3.0/25,10.7.0.0/16");
        let found = desired(&config, "10.244.3.0/24", "", Some(&remotes));
        let expected = networks("10.7.0.0/16,10.244.3.0/24,10.244.4.0/24");
        assert_eq!(found.pods, expected);
        assert_eq!(found.cluster, expected);
        assert_eq!(found.overlaps.len(), 1);
        assert_eq!(found.contents.tailnet, TAILNET);
        let without = desired(&config, "10.244.3.0/24", "", None);
        assert_eq!(without.contents.mesh_only, networks("10.244.3.0/24"));
        assert_eq!(without.contents.tailnet, []);
    }

    #[test]
    fn a_network_without_room_is_refused() {
        let config = Config::default();
        let refused = |local: &str| Desired::new(&config, &networks(local), &[], None).unwrap_err();
        assert_eq!(
            refused("10.244.3.0/31").to_string(),
            "choose the gateway of 10.244.3.0/31"
        );
        let error = refused("").to_string();
        assert_eq!(error, "the node has no network for its pods");
    }
}
