//! What a pod's network is to be, decided before anything is touched.
//!
//! Pure: who the attachment is, what the configuration says and what IPAM gave go in; names,
//! hardware addresses, routes and the answer to the runtime come out.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use cni::{Attachment, Dns, Error, Interface, IpConfig, NetResult};
use ipnet::IpNet;
use net::Mac;
use serde_json::Map;
use state::link;

use super::kernel::Place;
use super::settings::Settings;

/// The next hop where IPAM names no gateway. The host needs no such address: the pod is told the
/// hardware address behind it.
const UNNAMED_GATEWAY_V4: IpAddr = IpAddr::V4(Ipv4Addr::new(169, 254, 1, 1));
const UNNAMED_GATEWAY_V6: IpAddr = IpAddr::V6(Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0, 0, 1));

/// Interface numbers of ours begin here, far above those that the kernel gives out.
const FIRST_INDEX: u32 = 1 << 28;
const SCOPE_LINK: u32 = 253;

/// A pod's network.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Wiring {
    pub(crate) host_name: String,
    pub(crate) pod_name: String,
    pub(crate) host_mac: Mac,
    pub(crate) pod_mac: Mac,
    pub(crate) mtu_bytes: u32,
    pub(crate) addresses: Vec<PodAddress>,
    /// Where the pod's packets go.
    pub(crate) routes: Vec<PodRoute>,
    dns: Dns,
    /// What IPAM said of routes, or what we made of its silence.
    stated_routes: Vec<cni::Route>,
}

/// An address of a pod.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct PodAddress {
    pub(crate) net: IpNet,
    /// The gateway's address, which the node is to have.
    pub(crate) gateway: Option<IpAddr>,
}

impl From<&IpConfig> for PodAddress {
    fn from(stated: &IpConfig) -> Self {
        Self {
            net: stated.address,
            gateway: stated.gateway,
        }
    }
}

impl PodAddress {
    pub(crate) fn ip(&self) -> IpAddr {
        self.net.addr()
    }

    /// What the pod's packets are sent to.
    fn next_hop(&self) -> IpAddr {
        self.gateway.unwrap_or(match self.net {
            IpNet::V4(_) => UNNAMED_GATEWAY_V4,
            IpNet::V6(_) => UNNAMED_GATEWAY_V6,
        })
    }
}

/// A route in the pod.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct PodRoute {
    pub(crate) stated: cni::Route,
    pub(crate) next_hop: IpAddr,
}

impl Wiring {
    /// Decides on a pod's network.
    pub(crate) fn new(
        to: &Attachment,
        settings: &Settings,
        leased: NetResult,
    ) -> Result<Self, Error> {
        let addresses: Vec<PodAddress> = leased.ips.iter().map(PodAddress::from).collect();
        let Some(first) = addresses.first() else {
            return Err(Error::config("ipam gave no address for the pod"));
        };
        if let Some(wrong) = addresses
            .iter()
            .find(|address| address.net.addr().is_ipv6() && settings.allows_ipv6 == Some(false))
        {
            return Err(Error::config(format!(
                "ipam gave {}, and enable_ipv6 is false: remove one of them",
                wrong.net
            )));
        }
        let stated_routes = if leased.routes.is_empty() {
            default_routes(&addresses)
        } else {
            leased.routes
        };
        let routes = stated_routes
            .iter()
            .map(|route| PodRoute {
                stated: route.clone(),
                next_hop: route
                    .gw
                    .unwrap_or_else(|| next_hop_to(&addresses, route.dst)),
            })
            .chain(routes_to_own_subnets(&addresses, &stated_routes));
        Ok(Self {
            host_name: link::host_name(&to.container, &to.ifname),
            pod_name: to.ifname.to_string(),
            host_mac: host_mac(to),
            pod_mac: settings.mac.unwrap_or_else(|| mac_of(first.ip())),
            mtu_bytes: settings.mtu_bytes,
            routes: routes.collect(),
            addresses,
            dns: leased.dns,
            stated_routes,
        })
    }

    /// Everything that the pod sends packets to directly.
    pub(crate) fn next_hops(&self) -> Vec<IpAddr> {
        let mut hops: Vec<IpAddr> = Vec::new();
        let of_addresses = self.addresses.iter().map(PodAddress::next_hop);
        let of_routes = self.routes.iter().map(|route| route.next_hop);
        for hop in of_addresses.chain(of_routes) {
            if !hops.contains(&hop) {
                hops.push(hop);
            }
        }
        hops
    }

    /// The gateways' addresses, which the node is to have.
    pub(crate) fn gateways(&self) -> impl Iterator<Item = IpAddr> {
        self.addresses.iter().filter_map(|address| address.gateway)
    }

    pub(crate) fn has_ipv6(&self) -> bool {
        self.addresses
            .iter()
            .any(|address| address.net.addr().is_ipv6())
    }

    pub(crate) fn ips(&self) -> Vec<IpAddr> {
        self.addresses.iter().map(PodAddress::ip).collect()
    }

    /// The answer to the runtime.
    pub(crate) fn result(
        &self,
        netns: &str,
        place: Place,
        previous: Option<NetResult>,
    ) -> NetResult {
        let mut result = previous.unwrap_or_default();
        let pod_interface = result.interfaces.len() + 1;
        let interface = |name: &str, mac: Mac, sandbox: Option<&str>| Interface {
            name: name.to_owned(),
            mac: Some(mac.to_string()),
            mtu: Some(self.mtu_bytes),
            sandbox: sandbox.map(str::to_owned),
            ..Interface::default()
        };
        result.interfaces.extend([
            interface(&self.host_name, self.host_mac, None),
            interface(&self.pod_name, self.pod_mac, Some(netns)),
        ]);
        result
            .ips
            .extend(self.addresses.iter().map(|address| IpConfig {
                interface: Some(pod_interface),
                address: address.net,
                gateway: address.gateway,
                extra: Map::new(),
            }));
        let mut routes = self.stated_routes.clone();
        if let Place::Second { table } = place {
            for route in &mut routes {
                route.table.get_or_insert(table);
            }
        }
        result.routes.append(&mut routes);
        if result.dns.is_empty() {
            result.dns = self.dns.clone();
        }
        result
    }
}

/// Interface numbers for the `attempt`th try, on the host and in the pod.
pub(crate) fn indexes(of: &Attachment, attempt: u32) -> (u32, u32) {
    let hash = hash_of(of).rotate_left(attempt * 7);
    let [a, b, c, d, ..] = hash.to_be_bytes();
    let host = FIRST_INDEX | (u32::from_be_bytes([a, b, c, d]) >> 5);
    (host, host + FIRST_INDEX)
}

/// Whether a number can be one of our links inside a pod.
pub(crate) fn is_index(number: u32) -> bool {
    number >= FIRST_INDEX
}

fn hash_of(attachment: &Attachment) -> u64 {
    link::hash(&attachment.container, &attachment.ifname)
}

/// A hardware address that follows from the link's name, more or less.
fn host_mac(of: &Attachment) -> Mac {
    let [_, _, octets @ ..] = hash_of(of).to_be_bytes();
    Mac::local(octets)
}

/// A hardware address that follows from the pod's address: when an address is used again, what
/// others remember of it stays true.
fn mac_of(address: IpAddr) -> Mac {
    let [a, b, c, d] = match address {
        IpAddr::V4(address) => address.octets(),
        IpAddr::V6(address) => {
            let mut folded = [0; 4];
            for (index, octet) in address.octets().iter().enumerate() {
                folded[index % 4] ^= octet;
            }
            folded
        }
    };
    Mac::local([0x0a, 0x58, a, b, c, d])
}

/// A default route per family.
fn default_routes(addresses: &[PodAddress]) -> Vec<cni::Route> {
    let mut routes: Vec<cni::Route> = Vec::new();
    for address in addresses {
        let dst = everything(address.ip());
        if !routes.iter().any(|route| route.dst == dst) {
            routes.push(cni::Route {
                gw: address.gateway,
                ..cni::Route::to(dst)
            });
        }
    }
    routes
}

/// The pod's own subnets, where the stated routes don't lead there: without a bridge its
/// neighbours are behind the gateway like everyone else.
fn routes_to_own_subnets(
    addresses: &[PodAddress],
    stated: &[cni::Route],
) -> impl Iterator<Item = PodRoute> {
    addresses.iter().filter_map(|address| {
        let subnet = address.net.trunc();
        let is_alone = subnet.prefix_len() == subnet.max_prefix_len();
        let is_covered = stated.iter().any(|route| route.dst.contains(&subnet));
        (!is_alone && !is_covered).then(|| PodRoute {
            stated: cni::Route::to(subnet),
            next_hop: address.next_hop(),
        })
    })
}

/// The next hop of a route that names none: the gateway of an address of its family.
fn next_hop_to(addresses: &[PodAddress], dst: IpNet) -> IpAddr {
    let is_of_family = |address: &&PodAddress| address.net.addr().is_ipv4() == dst.addr().is_ipv4();
    let unnamed = PodAddress {
        net: dst,
        gateway: None,
    };
    addresses
        .iter()
        .find(is_of_family)
        .unwrap_or(&unnamed)
        .next_hop()
}

/// The destination of the default route of this address's family.
pub(crate) fn everything(like: IpAddr) -> IpNet {
    match like {
        IpAddr::V4(_) => IpNet::V4(ipnet::Ipv4Net::default()),
        IpAddr::V6(_) => IpNet::V6(ipnet::Ipv6Net::default()),
    }
}

impl PodRoute {
    /// The route for the kernel, out of the pod's link with this number.
    pub(crate) fn to_kernel(&self, link: u32, protocol: u8) -> net::Route {
        let stated = &self.stated;
        let kind = net::RouteKind::Via {
            link,
            gateway: Some(self.next_hop),
        };
        let mut route = net::Route::new(stated.dst.trunc(), kind, protocol);
        route.metric = stated.priority;
        route.mtu = stated.mtu;
        route.advmss = stated.advmss;
        route.table = stated.table.unwrap_or(net::TABLE_MAIN);
        // Nothing is on the link but the node, so a route that is said to end there goes by it.
        route.scope = stated
            .scope
            .filter(|scope| *scope < SCOPE_LINK)
            .and_then(|scope| u8::try_from(scope).ok());
        route
    }
}

#[cfg(test)]
mod tests;
