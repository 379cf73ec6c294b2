//! The desired host network, from the configuration, the pod CIDRs and the mesh.

use std::fmt;
use std::net::IpAddr;

use ipam::{Range, RangeError};
use ipnet::IpNet;
use ruleset::Contents;

use super::{MeshRoutes, RejectedRoute};
use node_config::{Config, Mode, UnmanagedLinks};
use node_core::tailnet::TAILNET;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Desired {
    /// This node's pod CIDRs.
    pub local: Vec<IpNet>,
    /// The pods' gateways, on `lo` unless a bridge has them.
    pub gateways: Vec<IpAddr>,
    /// The pod CIDRs of the cluster.
    pub pods: Vec<IpNet>,
    /// Pods and services: not masqueraded, and hostPorts do not apply.
    pub cluster: Vec<IpNet>,
    /// The other sets of the table `inet headcni`.
    pub contents: Contents,
    pub mesh: Option<MeshRoutes>,
    /// Source addresses of packets from this node to other nodes' pods: the pods' gateways.
    pub sources: Vec<IpAddr>,
    pub rejected: Vec<RejectedRoute>,
    pub unmanaged_links: UnmanagedLinks,
}

#[derive(Debug, thiserror::Error)]
pub enum DesiredError {
    #[error("the node has no pod CIDR")]
    NoPodCidr,
    #[error("choose the gateway of {network}")]
    Gateway {
        network: IpNet,
        #[source]
        source: RangeError,
    },
}

impl Desired {
    /// `local` are this node's pod CIDRs, `base` the cluster CIDRs as far as they are known.
    pub fn new(
        config: &Config,
        local: &[IpNet],
        base: &[IpNet],
        mesh: Option<&MeshRoutes>,
    ) -> Result<Self, DesiredError> {
        if local.is_empty() {
            return Err(DesiredError::NoPodCidr);
        }
        let (mesh, rejected) = mesh.map(|mesh| mesh.without_overlaps(local)).unzip();
        let peer_routes = mesh.iter().flat_map(|mesh| &mesh.peer_routes).copied();
        let pods: Vec<IpNet> = [base, local]
            .concat()
            .into_iter()
            .chain(peer_routes)
            .collect();
        let pods = largest(&pods);
        let peers = mesh.iter().flat_map(MeshRoutes::guarded);
        let guarded: Vec<IpNet> = pods.iter().copied().chain(peers).collect();
        let services = &config.network.service_cidr.0;
        // Also in native mode: pods of an earlier mode may still be on it.
        let bridges = vec![config.cni.bridge.name.clone()];
        let mesh_ifaces = bridges
            .iter()
            .chain(mesh.iter().map(|mesh: &MeshRoutes| &mesh.link));
        let sources = gateways(local, config.ipam.gateway);
        let (sources, gateways) = match config.cni.mode {
            Mode::Native => {
                let gateways = sources?;
                (gateways.clone(), gateways)
            }
            // The bridge has the gateways.
            Mode::Bridge => (sources.unwrap_or_default(), Vec::new()),
        };
        Ok(Self {
            local: local.to_vec(),
            gateways,
            cluster: largest(&[pods.as_slice(), services].concat()),
            pods,
            contents: Contents {
                mesh_only: largest(&guarded),
                mesh_ifaces: mesh_ifaces.cloned().collect(),
                is_unmasqueraded: !config.network.masquerade,
                tailnet: mesh.iter().flat_map(|_| TAILNET).collect(),
                bridges,
            },
            mesh,
            sources,
            rejected: rejected.unwrap_or_default(),
            unmanaged_links: config.network.unmanaged_links,
        })
    }

    /// The pod CIDRs of the cluster, of the families that local pods have.
    pub(super) fn cluster_cidrs(&self) -> impl Iterator<Item = IpNet> {
        let networks = self.pods.iter().copied();
        networks.filter(|network| self.has(Family::of(network)))
    }

    pub(super) fn has_tuned_links(&self) -> bool {
        self.mesh.as_ref().is_some_and(|mesh| mesh.tune_links)
    }

    pub(super) fn has(&self, family: Family) -> bool {
        self.local.iter().any(|net| Family::of(net) == family)
    }
}

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
        write!(f, "host network for {} is in place", local.join(" and "))
    }
}

/// The gateway of each pod CIDR: the one that IPAM gives pods.
fn gateways(local: &[IpNet], configured: Option<IpAddr>) -> Result<Vec<IpAddr>, DesiredError> {
    let gateway = |network: &IpNet| {
        let configured = configured.filter(|gateway| network.contains(gateway));
        Range::new(*network, None, None, configured)
            .map(|range| range.gateway())
            .map_err(|source| DesiredError::Gateway {
                network: *network,
                source,
            })
    };
    local.iter().map(gateway).collect()
}

/// The same prefixes, aggregated.
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

    fn desired(config: &Config, local: &str, base: &str, mesh: Option<&MeshRoutes>) -> Desired {
        Desired::new(config, &networks(local), &networks(base), mesh).unwrap()
    }

    fn mesh(peer_routes: &str) -> MeshRoutes {
        MeshRoutes {
            link: "mesh0".to_owned(),
            peer_routes: networks(peer_routes),
            ..MeshRoutes::default()
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
    fn bridged_pods_have_their_gateways_on_the_bridge() {
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
    fn peer_ips_are_mesh_only_unless_tailscaled_has_its_own_netns() {
        let config = Config::default();
        let mut mesh = mesh("");
        mesh.peer_ips = vec!["100.64.0.2".parse().unwrap(), "100.64.0.9".parse().unwrap()];
        let peer_ips = "100.64.0.2/32,100.64.0.9/32,100.100.100.100/32";
        let guarded = |mesh: &MeshRoutes| desired(&config, "10.244.3.0/24", "", Some(mesh));
        let found = guarded(&mesh);
        let all = format!("10.244.3.0/24,{peer_ips},fd7a:115c:a1e0::/48");
        assert_eq!(found.contents.mesh_only, networks(&all));
        assert_eq!(
            found.pods,
            networks("10.244.3.0/24"),
            "peer IPs are no pods"
        );
        assert_eq!(found.cluster, found.pods, "peer IPs are not in the cluster");
        mesh.via_ipv4 = Some("198.51.100.106".parse().unwrap());
        assert_eq!(guarded(&mesh).contents.mesh_only, networks("10.244.3.0/24"));
    }

    #[test]
    fn a_configured_gateway_applies_to_its_pod_cidr() {
        let mut config = Config::default();
        config.ipam.gateway = Some("10.244.3.254".parse().unwrap());
        let found = desired(&config, "10.244.3.0/24,fd00::/64", "", None);
        assert_eq!(found.gateways, ips(&["10.244.3.254", "fd00::1"]));
    }

    #[test]
    fn without_cluster_cidrs_the_peer_routes_are_the_cluster() {
        let config = Config::default();
        let peer_routes = mesh("10.244.4.0/24,10.244.3.0/25,10.7.0.0/16");
        let found = desired(&config, "10.244.3.0/24", "", Some(&peer_routes));
        let expected = networks("10.7.0.0/16,10.244.3.0/24,10.244.4.0/24");
        assert_eq!(found.pods, expected);
        assert_eq!(found.cluster, expected);
        assert_eq!(found.rejected.len(), 1);
        assert_eq!(found.contents.tailnet, TAILNET);
        let without = desired(&config, "10.244.3.0/24", "", None);
        assert_eq!(without.contents.mesh_only, networks("10.244.3.0/24"));
        assert_eq!(without.contents.tailnet, []);
    }

    #[test]
    fn a_pod_cidr_without_room_for_a_gateway_is_an_error() {
        let config = Config::default();
        let refused = |local: &str| Desired::new(&config, &networks(local), &[], None).unwrap_err();
        assert_eq!(
            refused("10.244.3.0/31").to_string(),
            "choose the gateway of 10.244.3.0/31"
        );
        let error = refused("").to_string();
        assert_eq!(error, "the node has no pod CIDR");
    }
}
